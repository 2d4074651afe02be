#!/usr/bin/env python3
"""The codings of package keys in plain Python, as SKCompress (sections 5.1 and 5.2) and FastSGD (Algorithm 2) describe theirs, and
the vectors that they make.

It shares nothing with the Go package but the comments of packages keys and huffman. Bits are strings of 0 and 1, and every choice is
made by trying all ways. Run without arguments it writes the *.txt beside it, with --check it only says which would change.
"""
import os, random, sys


def packed(bits):
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def binary(x, n):
    assert 0 <= x < 2**n
    return format(x, "0%db" % n) if n else ""


def leb128(x):
    out = []
    while x > 127:
        out.append(x & 127 | 128)
        x >>= 7
    return bytes(out + [x])


def deltas(keys):
    return [k - p for k, p in zip(keys, [0] + keys)]


def delta_binary(keys):
    grain = 1 if max(deltas(keys)) < 2**32 else 2
    prefixes, out = [0] * -(-len(keys) // 4), b""
    for i, d in enumerate(deltas(keys)):
        n = next(n for n in range(1, 5) if d < 256**(n * grain))
        prefixes[i // 4] |= (n - 1) << i % 4 * 2
        out += d.to_bytes(n * grain, "little")
    return bytes([grain]) + bytes(prefixes) + out


def bit_grain(keys, l=2):
    M, bits = max(deltas(keys)).bit_length(), ""
    for d in deltas(keys):
        lengths = [-(-(f + 1) * M // 2**l) for f in range(2**l)]
        flag = next(f for f in range(2**l) if lengths[f] >= d.bit_length())
        bits += binary(flag, l) + binary(d, lengths[flag])
    return bytes([M]) + packed(bits)


def huffman_lengths(counts):
    """Moffat and Katajainen's: counts ascending, equal ones by descending symbol, and a leaf before a tree as heavy."""
    leaves = sorted([(c, -s, [s]) for s, c in enumerate(counts) if c])
    trees, lengths = [], [0] * len(counts)
    while len(leaves) + len(trees) > 1:
        both = []
        for _ in range(2):
            both.append(leaves.pop(0) if leaves and (not trees or leaves[0][0] <= trees[0][0]) else trees.pop(0))
        members = both[0][2] + both[1][2]
        for s in members:
            lengths[s] += 1
        trees.append((both[0][0] + both[1][0], 0, members))
    return lengths


def huffman(counts):
    """The words of symbols, and the table."""
    lengths, used = huffman_lengths(counts), [s for s, c in enumerate(counts) if c]
    words, code, last = {}, 0, 0
    for s in sorted(used, key=lambda s: (lengths[s], s)):
        code <<= lengths[s] - last
        last = lengths[s]
        words[s] = binary(code, last)
        code += 1
    table, last, s = "", (len(counts) - 1).bit_length(), 0
    while s < len(counts):
        if s not in words:
            k = 1
            while s + k < len(counts) and s + k not in words:
                k += 1
            table += "110" + "0" * (k.bit_length() - 1) + bin(k)[2:]
            s += k
            continue
        n = lengths[s]
        table += "0" if n == last else "100" if n == last + 1 else "101" if n == last - 1 else "111" + binary(n, 6)
        last, s = n, s + 1
    return words, table


def adaptive(keys):
    wide, best = max(deltas(keys)) >= 2**32, None
    for log2m in range(1, 5):
        for coded in (False, True):
            m = 2**log2m
            b = (64 if wide else 32) // m
            taken = [max(1, -(-d.bit_length() // b)) for d in deltas(keys)]
            words, table = {n - 1: binary(n - 1, log2m) for n in taken}, ""
            if coded:
                words, table = huffman([taken.count(n + 1) for n in range(m)])
            bits = table + "".join(words[n - 1] + binary(d, n * b) for n, d in zip(taken, deltas(keys)))
            if best is None or len(bits) < len(best[1]):
                best = log2m - 1 | coded << 2 | wide << 3, bits
    return bytes([best[0]]) + packed(best[1])


def rice(keys):
    def code(j, thirds):
        bits = ""
        for p, k in zip(keys, keys[1:]):
            q, low = (k - p - 1) >> j, (k - p - 1) % 2**j
            high = ""
            if thirds:
                q, high = q // 3, ["0", "10", "11"][q % 3]
            bits += "1" * q + "0" + high + binary(low, j)
        return bits
    gaps = max([k - p for p, k in zip(keys, keys[1:])], default=0)
    best = min((len(code(j, False)), j, False) for j in range(max(0, gaps.bit_length() - 12), gaps.bit_length() + 1))
    best = min([best] + [(len(code(j, True)), j, True) for j in range(max(0, best[1] - 2), best[1])], key=lambda c: c[0])
    return bytes([best[1] | best[2] << 6]) + leb128(keys[0]) + packed(code(*best[1:]))


def bitmap(keys):
    first, span, forms = keys[0], keys[-1] - keys[0], [b"\x00" + rice(keys)]
    if len(keys) > 1 and span <= 4 * len(keys):
        missing = sorted(set(range(1, span)) - {k - first for k in keys})
        if len(missing) <= len(keys):
            forms.append(b"\x01" + leb128(first) + leb128(len(missing)) + (rice(missing) if missing else b""))
        bits = "".join("01"[k in set(keys)] for k in range(first + 1, keys[-1] + 1))
        octets = list(packed(bits))
        words, table = huffman([octets.count(b) for b in range(256)])
        forms.append(b"\x02" + leb128(first) + packed(table + "".join(words[b] for b in octets)))
    return min(forms, key=len)


CODINGS = {"delta-binary": delta_binary, "adaptive-prefix": adaptive, "rice": rice, "bit-grain": bit_grain, "bitmap": bitmap}
CODINGS.update({"bit-grain(l=%d)" % l: lambda keys, l=l: bit_grain(keys, l) for l in (1, 3, 4, 5, 6)})


def hexes(b):
    return [b[i:i + 32].hex(" ") for i in range(0, len(b), 32)]


def good(source, coding, keys, want=None):
    b = CODINGS[coding](keys) if keys else b""
    assert want is None or b.hex() == want, (source, b.hex(), want)
    return ["# from: " + source, "coding: " + coding, "expect: ok", "keys:"] + [str(k) for k in keys] + ["bytes:"] + hexes(b)


def elements(source, coding, dtype, keys):
    """A block of the element codec."""
    rest = [k - keys[0] for k in keys[1:]]
    b = leb128(keys[0]) + (CODINGS[coding](rest) if rest else b"")
    return ["# from: " + source, "coding: " + coding, "dtype: " + dtype, "expect: ok", "keys:"] + [str(k) for k in keys] + ["bytes:"] + hexes(b)


def unsuited(source, coding, dtype, keys, why):
    return ["# from: " + source, "coding: " + coding, "dtype: " + dtype, "expect: unsuited, " + why, "keys:"] + [str(k) for k in keys]


def corrupt(source, coding, n, b, why, dtype=None):
    return ["# from: " + source, "coding: " + coding] + (["dtype: " + dtype] if dtype else []) + \
        ["n: %d" % n, "expect: corrupt, " + why, "bytes:"] + hexes(bytes.fromhex(b))


def uniform(seed, size, density):
    r = random.Random(seed)
    return [k for k in range(size) if r.random() < density]


def skewed(seed, n, most):
    r, k, keys = random.Random(seed), 0, []
    for _ in range(n):
        k += int(2**(r.random() * most))
        keys.append(k)
    return keys


FIGURE9 = [1, 2, 1, 3, 1, 2, 1, 4]  # intervals of 4 bits, in which Huffman's prefixes take 14 bits
far = [5, 6, 2**33, 2**63, 2**64 - 1]
FILES = {
    "figure-3": good("FastSGD, Figure 3, and by hand: M = 8; the last key 578 is 00 for two bits and 11 for its delta 3; before it 11 11101000, 11 10101000 and 11 10101111",
                     "bit-grain", [232, 400, 575, 578], "08" + "fa3a8ebcc0"),
    "figure-8-lengths": good("by hand: SKCompress, section 5.1: deltas of one, two, three and four bytes have prefixes 00, 01, 10 and 11, from the low bits on",
                             "delta-binary", [255, 255 + 256, 511 + 65536, 66047 + 2**24], "01" + "e4" + "ff" + "0001" + "000001" + "00000001"),
    "figure-9": good("reference.py: SKCompress, section 5.2: deltas of 1, 2, 1, 3, 1, 2, 1 and 4 intervals of 4 bits; a table of words would cost more than it saves", "adaptive-prefix",
                     [sum(2**(4 * n - 2) for n in FIGURE9[:i + 1]) for i in range(8)]),
    "figure-9-often": good("reference.py: as Figure 9 thirty times, in Huffman's prefixes", "adaptive-prefix",
                           [sum(2**(4 * n - 2) for n in (FIGURE9 * 30)[:i + 1]) for i in range(240)]),
    "adaptive-alone": good("reference.py: deltas of one length need no prefixes", "adaptive-prefix", list(range(9, 900, 11))),
    "adaptive-dense": good("reference.py: one in three", "adaptive-prefix", uniform(1, 600, 1 / 3)),
    "adaptive-skewed": good("reference.py: gaps of all magnitudes", "adaptive-prefix", skewed(1, 200, 30)),
    "adaptive-wide": good("reference.py: gaps of over 32 bits", "adaptive-prefix", skewed(2, 100, 40)),
    "adaptive-far": good("reference.py: the greatest keys", "adaptive-prefix", far),
    "delta-binary-uniform": good("reference.py: one in 56", "delta-binary", uniform(2, 9000, 1 / 56)),
    "delta-binary-far": good("by hand: a delta of over 32 bits makes grains of two bytes", "delta-binary", [1, 2**40],
                             "02" + "08" + "0100" + "ffffffffff00"),
    "delta-binary-farthest": good("reference.py: the greatest keys", "delta-binary", far),
    "bit-grain-zero": good("by hand: the key 0 alone has M = 0 and a flag", "bit-grain", [0], "00" + "00"),
    "bit-grain-one": good("by hand: l = 1, M = 3, lengths 2 and 3: 1 100, 0 01, 0 11", "bit-grain(l=1)", [4, 5, 8], "03" + "c2c0"),
    "bit-grain-uniform": good("reference.py: one in ten", "bit-grain", uniform(3, 2000, 0.1)),
    "bit-grain-three": good("reference.py: one in ten", "bit-grain(l=3)", uniform(3, 2000, 0.1)),
    "bit-grain-five": good("reference.py: more lengths than bits", "bit-grain(l=5)", uniform(3, 500, 0.1)),
    "bit-grain-far": good("reference.py: the greatest keys", "bit-grain", far),
    "rice-one": good("by hand: a key alone is its number", "rice", [300], "00" + "ac02"),
    "rice-two": good("by hand: 2^1, gaps 2, 3, 0 and 3: 10 0, 10 1, 0 0, 10 1", "rice", [0, 3, 7, 8, 12], "01" + "00" + "94a0"),
    "rice-uniform": good("reference.py: one in a hundred", "rice", uniform(4, 9000, 0.01)),
    "rice-thirds": good("reference.py: one in ten", "rice", uniform(5, 3000, 0.1)),
    "rice-dense": good("reference.py: all but a few", "rice", uniform(6, 300, 0.9)),
    "rice-late": good("reference.py: a first key that is far", "rice", [10**12 + k for k in uniform(7, 3000, 0.1)]),
    "bitmap-sparse": good("reference.py: one in ten, by Rice", "bitmap", uniform(14, 900, 0.1)),
    "bitmap-half": good("reference.py: some numbers more often than others, in bytes", "bitmap",
                        [5 + 8 * i + b for i, n in enumerate(random.Random(12).choices([3, 17, 40, 200], [9, 3, 2, 1], k=300)) for b in range(8) if n >> b & 1]),
    "bitmap-holes": good("reference.py: all but a few", "bitmap", [2**40 + k for k in uniform(13, 900, 0.95)]),
    "bitmap-all": good("by hand: from 7 on, none is missing", "bitmap", list(range(7, 400)), "01" + "07" + "00"),
    "none": good("by hand: no key takes no byte", "rice", [], ""),
    "elements-int32": elements("reference.py: the first element, then all others less the first", "bit-grain", "int32", [10**9 + k for k in uniform(8, 900, 0.1)]),
    "elements-int64": elements("reference.py: the first element, then all others less the first", "rice", "int64", [2**60 + k for k in uniform(9, 900, 0.1)]),
    "elements-uint32": elements("reference.py: up to the greatest element", "delta-binary", "uint32", [2**32 - 1 - k for k in uniform(10, 900, 0.1)][::-1]),
    "elements-uint64": elements("reference.py: up to the greatest element", "adaptive-prefix", "uint64", [2**64 - 1 - k for k in uniform(11, 900, 0.1)][::-1]),
    "unsuited-equal": unsuited("by hand", "rice", "int32", [1, 2, 2, 3], "element 2 is not greater"),
    "unsuited-negative": unsuited("by hand", "delta-binary", "int32", [-7, -5, -1], "an element is negative"),
    "unsuited-long": unsuited("by hand: five bytes for four", "bit-grain", "int32", [2**31 - 1], "no gain"),
    "corrupt-empty": corrupt("by hand", "rice", 1, "", "0 bytes are too few"),
    "corrupt-delta-binary-grain": corrupt("by hand", "delta-binary", 1, "030001", "grain is 3"),
    "corrupt-delta-binary-padding": corrupt("by hand: a prefix of a second key", "delta-binary", 1, "010401", "prefixes beyond its 1 keys"),
    "corrupt-delta-binary-short": corrupt("by hand: two bytes are announced", "delta-binary", 1, "010101", "3 bytes are too few"),
    "corrupt-delta-binary-equal": corrupt("by hand", "delta-binary", 2, "01000500", "key 1 is not greater"),
    "corrupt-bit-grain-length": corrupt("by hand", "bit-grain", 1, "4100", "deltas have 65 bits"),
    "corrupt-bit-grain-equal": corrupt("by hand", "bit-grain", 2, "0830", "key 1 is not greater"),
    "corrupt-bit-grain-end": corrupt("by hand: the last bit is none of a key", "bit-grain", 1, "0831", "bits do not end"),
    "corrupt-adaptive-head": corrupt("by hand", "adaptive-prefix", 1, "1000", "first byte is 0x10"),
    "corrupt-adaptive-table": corrupt("by hand: the first length is 63", "adaptive-prefix", 1, "04ffff", "table of 2 prefixes is none"),
    "corrupt-adaptive-overflow": corrupt("by hand: two deltas of 2^63", "adaptive-prefix", 2, "08" + "c000000000000000" + "6000000000000000" + "00", "key 1 is not greater"),
    "corrupt-rice-divisor": corrupt("by hand: 3·2^63", "rice", 2, "7f0000", "divisor is 0x7f"),
    "corrupt-rice-first": corrupt("by hand", "rice", 1, "0080", "first key is no number"),
    "corrupt-rice-overflow": corrupt("by hand: divisor 3·2^62, a quotient of 1 and a remainder of 2^62", "rice", 2, "7e00" + "a0" + "00" * 8,
                                     "key 1 is not greater"),
    "corrupt-rice-end": corrupt("by hand: ones without an end", "rice", 2, "0000ff", "bits do not end"),
    "corrupt-bitmap-form": corrupt("by hand", "bitmap", 2, "0300", "form is 3"),
    "corrupt-bitmap-first": corrupt("by hand", "bitmap", 2, "0180", "first key is no number"),
    "corrupt-bitmap-count": corrupt("by hand: three are missing among two", "bitmap", 2, "010703" + "0001" + "00", "number of missing integers"),
    "corrupt-bitmap-missing": corrupt("by hand: 4 is missing after the last key, 2", "bitmap", 3, "010001" + "0004", "not between the first key"),
    "corrupt-bitmap-missing-first": corrupt("by hand: 0 is missing and the first key", "bitmap", 3, "010001" + "0000", "not between the first key"),
    "corrupt-bitmap-overflow": corrupt("by hand: two keys from 2^64-1 on", "bitmap", 2, "01ffffffffffffffffff01" + "00", "key 1 is not greater"),
    "corrupt-bitmap-table": corrupt("by hand: the first length is 63", "bitmap", 2, "0200" + "ffff", "table of bytes is none"),
    "corrupt-bitmap-endless": corrupt("by hand: all bytes are 0, which is a word of no bits", "bitmap", 2, "0200" + packed("111" + "000000" + "110" + "0000000" + "11111111").hex(),
                                      "bits do not end"),
    "corrupt-elements-wide": corrupt("by hand: 2^31 is no int32", "rice", 1, "8080808008", "an element is none of 4 bytes", "int32"),
    "corrupt-elements-trailing": corrupt("by hand", "rice", 1, "0000", "1 bytes follow", "int32"),
}


def main():
    here, changed = os.path.dirname(os.path.abspath(__file__)), []
    for name, text in FILES.items():
        path, want = os.path.join(here, name + ".txt"), "\n".join(text) + "\n"
        if not os.path.exists(path) or open(path, encoding="utf-8").read() != want:
            changed.append(name)
            if "--check" not in sys.argv:
                open(path, "w", encoding="utf-8").write(want)
    changed += [f for f in os.listdir(here) if f.endswith(".txt") and f[:-4] not in FILES]
    if "--check" in sys.argv and changed:
        sys.exit("these differ from what reference.py makes: " + ", ".join(changed))


main()

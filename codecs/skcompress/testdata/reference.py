#!/usr/bin/env python3
"""SKCompress as the comments of packages skcompress, keys (Adaptive), huffman and bitio say, in plain Python, and the vectors
that it makes, *.txt. Quantiles are those of sorted values, as the sketch has them of up to
1,064. See codectest/vectors.py.
"""
import math, os, random, struct, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
import vectors
from vectors import *


def leb128(v):
    out = b""
    while v > 127:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def word(v, n):
    return format(v, "0%db" % n) if n else ""


def to_bytes(bits):
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


# Package huffman.

def code_lengths(counts):
    leaves = sorted((n, -s) for s, n in enumerate(counts) if n)
    leaves, trees = [(n, [-s]) for n, s in leaves], []
    lengths = {l[1][0]: 0 for l in leaves}
    while len(leaves) + len(trees) > 1:
        node = (0, [])
        for _ in range(2):
            least = leaves if leaves and (not trees or leaves[0][0] <= trees[0][0]) else trees
            n, symbols = least.pop(0)
            for s in symbols:
                lengths[s] += 1
            node = (node[0] + n, node[1] + symbols)
        trees.append(node)
    return lengths


def words(lengths):
    out, code, last = {}, 0, 0
    for n, s in sorted((n, s) for s, n in lengths.items()):
        code <<= n - last
        out[s] = word(code, n)
        code, last = code + 1, n
    return out


def table(lengths, symbols):
    out, last, s = "", fixed(symbols), 0
    while s < symbols:
        if s not in lengths:
            k = 1
            while s + k < symbols and s + k not in lengths:
                k += 1
            out += "110" + word(k, 2 * k.bit_length() - 1)
            s += k
            continue
        n = lengths[s]
        out += {last: "0", last + 1: "100", last - 1: "101"}.get(n) or "111" + word(n, 6)
        last, s = n, s + 1
    return out


def fixed(symbols):
    return (max(symbols, 1) - 1).bit_length()


# keys.Adaptive.

def adaptive(keys):
    if not keys:
        return b""
    deltas = [keys[0]] + [b - a for a, b in zip(keys, keys[1:])]
    wide, best = max(deltas) >= 1 << 32, None
    for log2m in 1, 2, 3, 4:
        interval = (64 if wide else 32) >> log2m
        need = [max(1, -(-d.bit_length() // interval)) for d in deltas]
        counts = [need.count(k + 1) for k in range(1 << log2m)]
        lengths = code_lengths(counts)
        prefixes = {k: word(k, log2m) for k in range(1 << log2m)}
        for flag, tab, code in (0, "", prefixes), (4, table(lengths, 1 << log2m), words(lengths)):
            bits = tab + "".join(code[k - 1] + word(d, k * interval) for k, d in zip(need, deltas))
            if best is None or len(bits) < len(best[1]):
                best = log2m - 1 | flag | wide << 3, bits
    return bytes([best[0]]) + to_bytes(best[1])


# Package skcompress.

def buckets(v, q):
    """Splits of sorted magnitudes, and what buckets they make: (low, high, mean)."""
    splits = [v[0]]
    for i in range(1, q):
        splits.append(v[min(int(i / q * len(v)), len(v) - 1)])
    splits.append(v[-1])
    kept = []
    for s in splits:
        if kept[-2:] != [s, s]:
            kept.append(s)
    return [(a, b, f32((a + b) / 2)) for a, b in zip(kept, kept[1:])]


def bucket(of, v):
    i = min(i for i, b in enumerate(of) if v <= b[1])
    return i + 1 if i + 1 < len(of) and of[i + 1][1] == v else i


def share(q, n, p, joint):
    if joint and n and p:
        a = min(max(1, (q * n + (n + p) // 2) // (n + p)), q - 1)
        return min(a, n), min(q - a, p)
    return min(-(-q * n // (n + p)), n), min(-(-q * p // (n + p)), p)


M64 = (1 << 64) - 1


GAMMA = 0x9E3779B97F4A7C15


def splitmix(state):
    z = state + GAMMA & M64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
    return z ^ z >> 31


def columns(key, rows, t, salt):
    z = splitmix(key + salt * GAMMA & M64)
    low, high = z & 0xFFFFFFFF, z >> 32
    return [((low + i * high & 0xFFFFFFFF) * t) >> 32 for i in range(rows)]


def salt_of(sides):
    """What the encoder takes; a decoder takes any."""
    h = 0
    for v in sides:
        bits = [struct.unpack("<I", struct.pack("<f", m))[0] for m in (v[0], v[-1])] if v else [0, 0]
        for n in [len(v)] + bits:
            h = splitmix(h ^ n)
    return h & 255


def coded(numbers, alphabet):
    counts = [numbers.count(s) for s in range(alphabet)]
    lengths = code_lengths(counts)
    w = words(lengths)
    short = "1" + table(lengths, alphabet) + "".join(w[v] for v in numbers)
    long = "0" + "".join(word(v, fixed(alphabet)) for v in numbers)
    return short if len(short) < len(long) else long


def encode_block(x, q, r, rows, cols, mode):
    sides = [sorted(-v for v in x if v < 0), sorted(v for v in x if v > 0)]
    if not sides[0] and not sides[1]:
        return bytes([0]), [0.0] * len(x)
    joint, zeros = mode == "joint", 0
    of = [buckets(s, k) if k else [] for s, k in zip(sides, share(q, len(sides[0]), len(sides[1]), joint))]
    if joint:
        zeros = int(len(sides[0]) + len(sides[1]) < len(x))
    per = -(-q // r)
    groups = [-(-len(b) // per) for b in of]
    both = min(map(len, of))
    alphabet = zeros + len(of[0]) + len(of[1]) if joint else min(per, max(map(len, of)))
    classes, index, mean = [], [], {}
    for v in x:
        if v == 0:
            c, i, m = int(joint), 0, 0.0
        else:
            sign = int(v > 0)
            b = bucket(of[sign], abs(v))
            m = of[sign][b][2]
            m = m if sign else -m
            if joint:
                c, i = 1, zeros + (2 * b + sign if b < both else both + b)
            else:
                c, i = 1 + sign * groups[0] + b // per, b % per
        classes.append(c)
        index.append(i)
    for sign in 0, 1:
        for b, (_, _, m) in enumerate(of[sign]):
            place = (1, zeros + (2 * b + sign if b < both else both + b)) if joint else (1 + sign * groups[0] + b // per, b % per)
            mean[place] = m if sign else -m
    if zeros:
        mean[1, 0] = 0.0
    salt = salt_of(sides)
    head = bytes([salt]) + leb128(len(of[0])) + leb128(len(of[1])) + b"".join(struct.pack("<f", b[2]) for b in of[0] + of[1])
    total = 2 if joint else 1 + sum(groups)
    cells, sketch = [], {}
    for c in range(1, total):
        n = classes.count(c)
        t = math.ceil(cols * n)
        s = [[None] * t for _ in range(rows)]
        for k in range(len(x)):
            if classes[k] == c:
                for row, col in enumerate(columns(k, rows, t, salt)):
                    s[row][col] = index[k] if s[row][col] is None else min(s[row][col], index[k])
        sketch[c] = s
        cells += [v for row in s for v in row]
    counts = [cells.count(s) for s in range(alphabet)]
    cells = [counts.index(max(counts)) if v is None else v for v in cells]
    tail = coded(cells, alphabet)
    lists = b"".join(leb128(classes.count(c)) + adaptive([k for k, d in enumerate(classes) if d == c]) for c in range(1, total))
    mapped = coded(classes, total)
    if joint:
        out = bytes([3 + zeros]) + head + to_bytes(tail)
    elif mode == "sparse" or mode == "auto" and len(lists) < (len(mapped) + 7) // 8:
        out = bytes([1]) + head + lists + to_bytes(tail)
    else:
        out = bytes([2]) + head + to_bytes(mapped + tail)
    y = []
    for k, c in enumerate(classes):
        s = sketch.get(c)
        y.append(mean[c, max(s[row][col] for row, col in enumerate(columns(k, rows, len(s[0]), salt)))] if c else 0.0)
    return out, y


DEFAULT = dict(q=256, r=8, rows=2, cols=0.2, m=128, mode="auto", block=1 << 20)


def parameters(given):
    d = DEFAULT | (dict(q=16, r=1) if given.get("mode") in ("dense", "joint") else {})
    text = ",".join("%s=%s" % kv for kv in given.items())
    return d | given, "skcompress" + ("(%s)" % text if text else "")


def good(source, steps, given, dtype="float32", feedback=False, want=None):
    p, codec = parameters(given)
    encode = lambda T, number: encode_block(T, p["q"], p["r"], p["rows"], p["cols"], p["mode"])
    return vectors.good(source, codec, p["block"], encode, steps, dtype, feedback, want and want.replace(" ", ""))


def unsuited(source, x, given={}):
    return ["# from: " + source, "codec: " + parameters(given)[1], "dtype: float32", "expect: unsuited", "elements:"] + x


def corrupt(source, n, b, why, given={}):
    return vectors.corrupt(source, parameters(given)[1], n, b, why)


def normals(seed, n, zeros=0.0):
    r = random.Random(seed)
    return [0.0 if r.random() < zeros else r.gauss(0, 1) for _ in range(n)]


one = "0000803f"  # a mean of 1
dense, q4 = dict(mode="dense"), dict(q=4, r=2)
ref = "reference.py: normal numbers of Python's random"
FILES = {
    "empty": good("by hand: nothing is nothing", [[]], {}, want=""),
    "zeros": good("by hand: zeros of both signs are one byte", [[0.0, -0.0, 0.0]], {}, want="00"),
    # The bits: Huffman's code for 3 groups, none of 0 (110 1), of -1 one bit less than two (101), of +1 as many (0); 16
    # words; and cells that need no bits, in words of one length (0).
    "signs": good("by hand, but for the salt: a bit tells signs, and one bucket each needs no cells", [[1.0, -1.0] * 8], dict(q=2, mode="dense"),
                  want="02 90 01 01" + one + one + "ed 55 55 00"),
    # The list of the keys 3 and 17: in intervals of 4 bits (02), after prefixes of 3, 000 0011 000 1110.
    "lists": good("by hand, but for the salt: one bucket, and two keys of twenty", [[0.0] * 3 + [1.0] + [0.0] * 13 + [1.0, 0.0, 0.0]], dict(q=2, r=1, mode="sparse"),
                  want="01 bd 00 01" + one + "02 02 06 38 00"),
    "auto": good(ref, [normals(1, 170)], dict(q=16, r=4)),
    "auto-sparse": good(ref + ", one in twelve", [normals(2, 900, 0.92)], dict(q=16, r=4)),
    "sparse": good(ref, [normals(3, 200, 0.5)], dict(q=8, r=2, mode="sparse")),
    "dense": good(ref, [normals(4, 180, 0.1)], dense),
    "joint": good(ref, [normals(5, 170)], dict(mode="joint")),
    "joint-zeros": good(ref, [normals(6, 240, 0.3)], dict(mode="joint", cols=0.5)),
    "one-sign": good(ref + ", without their signs", [[abs(v) for v in normals(7, 96)]], dict(q=16, r=3)),
    "few-negative": good(ref + ", but for three without their signs", [[abs(v) if i % 40 else -abs(v) for i, v in enumerate(normals(8, 99))]], q4),
    "ties": good("reference.py: seven numbers", [[round(v * 2) / 2 for v in normals(9, 180)]], q4),
    "rows-1": good(ref, [normals(10, 170)], dict(q=16, r=2, rows=1, cols=1.0)),
    "rows-4": good(ref, [normals(11, 170)], dict(q=16, r=2, rows=4, cols=0.1)),
    "blocks": good(ref + ", in blocks, the second of zeros", [normals(12, 80) + [0.0] * 80 + normals(13, 23)], dict(q=4, r=1, block=80)),
    "ends": good("reference.py: the smallest and the largest magnitudes", [[2.0**-149, -(2.0**-149), f32(2.0**128 - 2.0**104), 1.0, -1.0] * 8], dict(q=6, r=2)),
    "bfloat16": good("reference.py: means are rounded once more", [[bf16(v) for v in normals(14, 150)]], q4, dtype="bfloat16"),
    "feedback": good(ref, [normals(20 + k, 90) for k in range(4)], q4, feedback=True),
    "unsuited-nan": unsuited("by hand", ["0x1p+0 x 40", "NaN"]),
    "unsuited-infinity": unsuited("by hand", ["0x1p+0 x 40", "-Inf"]),
    "unsuited-gain": unsuited("by hand: a mean is as long as a value", ["0x1p+0", "0x1p+1"]),
    "corrupt-empty": corrupt("by hand", 3, "", "it ends before a block's form"),
    "corrupt-form": corrupt("by hand", 3, "05", "its form is 5"),
    "corrupt-form-mode": corrupt("by hand", 3, "02", "its form is 2", dict(mode="joint")),
    "corrupt-salt": corrupt("by hand", 3, "01", "it ends before a block's salt"),
    "corrupt-buckets-none": corrupt("by hand", 3, "02000000", "it has 0 buckets, and not 1 to 3", dict(q=2, r=1)),
    "corrupt-buckets-many": corrupt("by hand", 3, "02000202" + one * 4, "it has 4 buckets, and not 1 to 3", dict(q=2, r=1)),
    "corrupt-buckets-long": corrupt("by hand", 3, "0200ffff03", "how many buckets it has is no number up to 32768"),
    "corrupt-means-short": corrupt("by hand", 3, "02000101" + one, "it ends before the means of 2 buckets"),
    "corrupt-mean-zero": corrupt("by hand", 3, "0200000100000000", "the mean of bucket 0 is 0"),
    "corrupt-mean-negative": corrupt("by hand", 3, "02000001000080bf", "the mean of bucket 0 is -1"),
    "corrupt-mean-infinite": corrupt("by hand", 3, "02000101" + one + "0000807f", "the mean of bucket 1 is +Inf"),
    "corrupt-map": corrupt("by hand: groups 0 and 1 in two bits each, and then 3", 3, "02000101" + one * 2 + "0e", "its groups do not fit 3 values",
                           dict(q=2, mode="dense")),
    "corrupt-map-short": corrupt("by hand", 30, "02000101" + one * 2 + "00", "its groups do not fit 30 values", dict(q=2, mode="dense")),
    "corrupt-list-long": corrupt("by hand", 3, "01000001" + one + "04", "group 1 has more values than there are"),
    "corrupt-list-key": corrupt("by hand: key 3 of 3", 3, "01000001" + one + "01" + adaptive([3]).hex() + "00", "value 3 of 3 is in group 1"),
    "corrupt-list-twice": corrupt("by hand: key 1 in both lists", 3, "01000101" + one * 2 + ("01" + adaptive([1]).hex()) * 2 + "00", "value 1 of 3 is in group 2"),
    "corrupt-cells": corrupt("by hand: one bit of a cell is there, of two", 30, "01000003" + one * 3 + "01" + adaptive([1]).hex(), "its cells are not 2 numbers below 3", dict(q=3, r=1)),
    "corrupt-cell-alphabet": corrupt("by hand: a cell has 3", 30, "01000003" + one * 3 + "01" + adaptive([1]).hex() + "60", "its cells are not 2 numbers below 3", dict(q=3, r=1)),
    "corrupt-cell-group": corrupt("by hand: the second group has one bucket, and a cell says the second", 30,
                                  "01000003" + one * 3 + "00" + "01" + adaptive([1]).hex() + "60", "value 1 is in bucket 1 of 1 in group 2", dict(q=4, r=2)),
    "corrupt-bits": corrupt("by hand: the last byte does not end with zeros", 16, "02000101" + one * 2 + "ed555501", "its bits do not end", dict(q=2, mode="dense")),
    "corrupt-trailing": corrupt("by hand", 3, "0000", "1 bytes follow its 3 values"),
}

main(__file__, FILES)

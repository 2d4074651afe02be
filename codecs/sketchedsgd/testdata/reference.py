#!/usr/bin/env python3
"""Sketched-SGD as its paper and this package's comment say, in plain Python, and the vectors that it makes: *.txt of the
codec, and those of whole steps of a server and its workers, in integration/cmd/papers/sketched.

It shares nothing with the Go packages but their comments, and the count sketch's own reference. Run without arguments it
writes the files, with --check it only says which would change.
"""
import importlib.util, os, random, struct, sys

HERE = os.path.dirname(os.path.abspath(__file__))
EXCHANGE = os.path.join(HERE, "../../../integration/cmd/papers/sketched/testdata/exchange")
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("countsketch", os.path.join(HERE, "../../countsketch/testdata/reference.py"))
cs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cs)
f32, M64, G, mix = cs.f32, cs.M64, cs.G, cs.mix


# Package rng.


def rotate(x, n):
    return (x << n | x >> 64 - n) & M64


def hash_of(x):
    lanes = [len(x), 1, 2, 3]
    whole = len(x) // 4 * 4
    for i, v in enumerate(x):
        lane = i % 4 if i < whole else 0
        bits = struct.unpack("<I", struct.pack("<f", v))[0]
        lanes[lane] = rotate((lanes[lane] ^ bits) * 0x9FB21C651E98DF25 & M64, 29)
    a, b, c, d = lanes
    return mix(mix(mix(a + G & M64) + b & M64) + c & M64) + mix(d) & M64


class Source:
    def __init__(self, seed, step, x):
        self.state = mix(mix(mix(seed + G & M64) + step + G & M64) + hash_of(x) & M64)

    def next(self):
        self.state = self.state + G & M64
        return mix(self.state)

    def below(self, n):
        product = self.next() * n
        too_many = (1 << 64) % n
        while product & M64 < too_many:
            product = self.next() * n
        return product >> 64


# Package keys: the Rice code, with the divisor that costs least.


def leb128(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def gap_bits(g, j, thirds):
    low = format(g & (1 << j) - 1, "0%db" % j) if j else ""
    t = g >> j
    if not thirds:
        return "1" * t + "0" + low
    return "1" * (t // 3) + "0" + ("0", "10", "11")[t % 3] + low


def rice(keys):
    if not keys:
        return b""
    gaps = [b - a - 1 for a, b in zip(keys, keys[1:])]
    j, thirds = 0, False
    if gaps:
        def cost(j, thirds):
            return sum(len(gap_bits(g, j, thirds)) for g in gaps)
        # Downhill from near the mean gap, and then a smaller divisor of three times a power of two, if it costs less.
        j = max(0, (sum(gaps) // len(gaps)).bit_length() - 1)
        for step in (1, -1):
            while 0 <= j + step <= 63 and cost(j + step, False) < cost(j, False):
                j += step
        for i in range(max(2, j) - 2, j):
            if cost(i, True) < cost(j, False):
                j, thirds = i, True
                break
    bits = "".join(gap_bits(g, j, thirds) for g in gaps)
    bits += "0" * (-len(bits) % 8)
    return bytes([j | thirds << 6]) + leb128(keys[0]) + bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def coordinates(keys):
    return leb128(len(keys)) + rice(keys)


def floats(v):
    return struct.pack("<%df" % len(v), *v)


# The paper.


def largest(x, m):
    """The indices of the m largest magnitudes, without zeros; of equal ones the first."""
    order = sorted((i for i in range(len(x)) if x[i] != 0), key=lambda i: (-abs(x[i]), i))
    return sorted(order[:m])


class Plan:
    def __init__(self, d, k, p=4, rows=5, columns=1, width=4, seed=0, pick="topk", small=0):
        self.d, self.k, self.p, self.rows, self.columns, self.width, self.seed, self.pick, self.small = d, k, p, rows, columns, width, seed, pick, small

    def params(self):
        return struct.pack("<BQQIBBIQBQ", 1, self.d, self.k, self.p, self.rows, self.width == 2, self.columns, self.seed, self.pick == "heavymix", self.small)

    def sketch(self, x):
        s = cs.Sketch(self.rows, self.columns, self.seed)
        for i, v in enumerate(x):
            s.insert(i, v)
        return s

    def candidates(self, s, step):
        """Algorithm 3, line 9, or Algorithm 1."""
        estimates = [s.query(i) for i in range(self.d)]
        if self.pick == "topk":
            return largest(estimates, self.p * self.k)
        norm = s.squared_norm()
        if norm == 0:
            return []
        heavy = {i for i, e in enumerate(estimates) if e * e >= norm / self.k}
        if len(heavy) >= self.k:
            return largest(estimates, self.k)
        source = Source(self.seed, step, [v for row in s.cells for v in row])
        out, left, rest = [], self.k - len(heavy), self.d - len(heavy)
        for i in range(self.d):
            if i in heavy:
                out.append(i)
                continue
            if left and source.below(rest) < left:
                out.append(i)
                left -= 1
            rest -= 1
        return out


# Files.


def lines(v):
    out, i = [], 0
    while i < len(v):
        k = 1
        while i + k < len(v) and (v[i + k], str(v[i + k])) == (v[i], str(v[i])):
            k += 1
        out.append(v[i].hex() + (" x %d" % k if k > 1 else ""))
        i += k
    return out


hexes = cs.hexes


def good(source, steps, k=0.01, p=4, rows=5, cols=0.03125, width=4, pick="topk", feedback=False, want=None):
    """A file of a codec's steps; want are the bytes of the first, where they are known by hand."""
    d = len(steps[0])
    part = lambda fraction: max(1, int(fraction * d + 0.5))
    plan = Plan(d, part(k), p, rows, part(cols), width, 1, pick)
    given = [("k", k, 0.01), ("p", p, 4), ("rows", rows, 5), ("cols", cols, 0.03125), ("cells", "float16" if width == 2 else "float32", "float32"), ("pick", pick, "topk")]
    codec = "sketchedsgd(" + ",".join("%s=%s" % (n, v) for n, v, default in given if v != default) + ")"
    text = ["# from: " + source, "codec: " + codec, "dtype: float32", "expect: ok"]
    e = [0.0] * d
    for step, x in enumerate(steps):
        x = [f32(v) for v in x]
        T = [f32(a + b) for a, b in zip(x, e)] if feedback else x
        b, y = bytes([0]), []
        if d:
            s = plan.sketch(T)
            if width == 2:
                s = s.rounded(2)
            asked = plan.candidates(s, step)
            keys = [asked[j] for j in largest([T[i] for i in asked], plan.k)]
            b = coordinates(keys) + floats([T[i] for i in keys])
            y = [T[i] if i in set(keys) else 0.0 for i in range(d)]
        if want is not None:
            assert b.hex() == want.replace(" ", ""), (source, b.hex(), want)
            want = None
        text += ["elements:"] + lines(x) + ["bytes:"] + hexes(b) + ["delivered:"] + lines(y)
        if feedback:
            e = [f32(t - v) for t, v in zip(T, y)]
            text += ["residual:"] + lines(e)
    return text


def unsuited(source, steps, k):
    text = good(source, steps[:1], k, feedback=True)
    text[3] = "expect: unsuited"
    residual = text[text.index("residual:"):]
    return text + ["elements:"] + [v if isinstance(v, str) else f32(v).hex() for v in steps[1]] + residual


def corrupt(source, n, b, why, codec="sketchedsgd(k=0.1)"):
    return ["# from: " + source, "codec: " + codec, "dtype: float32", "n: %d" % n, "expect: corrupt, " + why, "bytes:"] + hexes(bytes.fromhex(b))


def exchange(source, plan, gradients, momentum=0.0, masking=False, forget="sent"):
    """A file of steps of Algorithm 2 or 3; gradients[step][worker]."""
    W = len(gradients[0])
    text = ["# from: " + source, "expect: ok", "workers: %d" % W, "momentum: " + float(momentum).hex(), "masking: %s" % str(masking).lower(), "forget: " + forget]
    text += ["params:"] + hexes(plan.params())
    u, v = [[[0.0] * plan.d for _ in range(W)] for _ in range(2)]
    for step, gs in enumerate(gradients):
        head = lambda kind: struct.pack("<BI", kind, step)
        total = cs.Sketch(plan.rows, plan.columns, plan.seed)
        whole = [0.0] * plan.d
        for w, g in enumerate(gs):
            g = [f32(x) for x in g]
            u[w] = [f32(f32(f32(momentum) * a) + x) for a, x in zip(u[w], g)] if momentum else g  # line 5
            v[w] = [f32(a + b) for a, b in zip(v[w], u[w])]  # line 6
            text += ["gradient %d:" % w] + lines(g) + ["first %d:" % w]
            if plan.d <= plan.small:
                text += hexes(head(6) + floats(v[w]))
                whole = [f32(a + b) for a, b in zip(whole, v[w])]
                v[w] = [0.0] * plan.d
                continue
            s = plan.sketch(v[w])  # line 7
            text += hexes(head(2) + s.bytes(plan.width))
            other = s.rounded(plan.width)
            total.cells = [[f32(a + b) for a, b in zip(x, y)] for x, y in zip(total.cells, other.cells)]  # line 8
        if plan.d <= plan.small:
            text += ["update:"] + hexes(head(7) + struct.pack("<I", W) + floats(whole))
        else:
            asked = plan.candidates(total, step)  # line 9
            text += ["candidates:"] + hexes(head(3) + coordinates(asked))
            sums = [0.0] * len(asked)
            for w in range(W):
                values = [v[w][i] for i in asked]
                text += ["values %d:" % w] + hexes(head(4) + floats(values))
                sums = [f32(a + b) for a, b in zip(sums, values)]  # line 10
            chosen = largest(sums, plan.k)
            update = {asked[j]: sums[j] for j in chosen}
            text += ["update:"] + hexes(head(5) + struct.pack("<I", W) + coordinates(list(update)) + floats(list(update.values())))  # line 11
            for w in range(W):
                for i, total_i in update.items():  # line 13, or Algorithm 2's line 9
                    v[w][i] = 0.0 if forget == "sent" else f32(v[w][i] - f32(total_i / W))
                    if masking:
                        u[w][i] = 0.0
        for w in range(W):
            text += ["residual %d:" % w] + lines(v[w])
    return text


def refused(source, part, change, why):
    """A file of a step, of which the message of a part comes once before as change makes it of the right one. Workers go on
    as if it had not come; a server ends."""
    if part.startswith("small "):
        part, text = part[6:], exchange(source, Plan(3, 1, 4, 1, 1, small=3), [[[1.0, 2.0, 3.0]]])
    else:
        text = exchange(source, Plan(9, 2, 2, 1, 4, seed=5), [[[5.0, 4.0, 3.0, 2.0, 1.0] + [0.0] * 4]])
    text[1] = "expect: " + why
    at = text.index(part + ":")
    right = b""
    for line in text[at + 1:]:
        if ":" in line:
            break
        right += bytes.fromhex(line)
    goes_on = part in ("candidates", "update")
    return text[:at] + ["refused " + part + ":"] + hexes(change(right)) + (text[at:] if goes_on else [])


def gauss(seed, n):
    r = random.Random(seed)
    return [r.gauss(0, 1) for _ in range(n)]


def heavy(seed, n):
    r = random.Random(seed)
    return [r.gauss(0, 1) ** 5 for _ in range(n)]


one, two = "0000803f", "00000040"
FILES = {
    "empty": good("by hand: of no values none are sent", [[]], k=0.1, want="00"),
    "one": good("by hand: one value, at position 0; the divisor of no gaps is 1", [[1.0]], k=0.1, want="01 00 00" + one),
    "zeros": good("by hand: zeros are not sent", [[0.0] * 100], k=0.1, want="00"),
    "two": good("by hand: two values of 20, 1 at 3 and 2 at 7, and a gap of 3: 2^1 is the best divisor, 10 1", [[0, 0, 0, 1, 0, 0, 0, 2] + [0] * 12], k=0.1, cols=1.0,
                want="02 01 03 a0" + one + two),
    "all": good("reference.py: every value is sent", [gauss(1, 30)], k=1.0, p=1, cols=0.5),
    "normal": good("reference.py: normal numbers of Python's random", [gauss(2, 500)], k=0.05),
    "heavy": good("reference.py: fifth powers of normal numbers", [heavy(3, 800)], k=0.02, cols=0.1),
    "rows-15": good("reference.py: 15 rows, and few candidates", [heavy(4, 300)], k=0.03, p=1, rows=15, cols=0.1),
    "float16": good("reference.py: cells of 16 bits", [gauss(5, 400)], k=0.02, width=2, cols=0.01),
    "heavymix": good("reference.py: Algorithm 1; steps draw differently", [heavy(6, 300)] * 3, k=0.05, cols=0.2, pick="heavymix"),
    "heavymix-flat": good("reference.py: Algorithm 1 where nothing is heavy", [[1.0, -1.0] * 60], k=0.1, cols=0.5, pick="heavymix"),
    "feedback": good("reference.py: normal numbers, with error feedback", [gauss(i, 150) for i in range(4)], k=0.1, cols=0.1, feedback=True),
    "unsuited-nan": unsuited("by hand", [[1.0, 0.5, 0.25], [0.0, "NaN", 0.0]], 0.1),
    "unsuited-infinity": unsuited("by hand", [[1.0, 0.5, 0.25], [0.0, 0.0, "-Inf"]], 0.1),
    "unsuited-large": unsuited("by hand: more than 2^128/12", [[1.0, 0.5, 0.25], [0.0, 2.0**125, 0.0]], 0.1),
    "corrupt-empty": corrupt("by hand: no count", 10, "", "0 coordinates; at most 1"),
    "corrupt-count": corrupt("by hand: k is 2 of 20", 20, "03 00 00 00" + one * 3, "3 coordinates; at most 2"),
    "corrupt-count-unended": corrupt("by hand: a count that does not end", 20, "ff", "coordinates; at most 2"),
    "corrupt-short": corrupt("by hand: a value is missing", 20, "02 01 03 a0" + one, "4 bytes for 2 values"),
    "corrupt-trailing": corrupt("by hand: a byte too many", 20, "00 00", "1 bytes for 0 values"),
    "corrupt-position": corrupt("by hand: position 20 of 20", 20, "01 00 14" + one, "coordinate 20 of 20"),
    "corrupt-infinity": corrupt("by hand: the value is infinite", 20, "01 00 00 00 00 80 7f", "value 0 of 1 is +Inf"),
}
EXCHANGES = {
    "algorithm-3": exchange("reference.py: Algorithm 3, two workers", Plan(60, 4, 3, 5, 8, seed=1), [[heavy(10 * t + w, 60) for w in range(2)] for t in range(3)], 0.9, True),
    "algorithm-2": exchange("reference.py: Algorithm 2, three workers", Plan(50, 5, 4, 3, 10, seed=2, pick="heavymix"), [[heavy(10 * t + w, 50) for w in range(3)] for t in range(3)], forget="mean"),
    "float16": exchange("reference.py: sketches of 16 bits", Plan(40, 2, 2, 3, 6, 2, seed=M64), [[gauss(10 * t + w, 40) for w in range(2)] for t in range(2)]),
    "zeros": exchange("by hand: nothing is asked for, and nothing updated", Plan(9, 2, 2, 1, 3), [[[0.0] * 9, [0.0] * 9]]),
    "cancelled": exchange("by hand: a sum that is 0 is in no update, so that both keep their values", Plan(9, 2, 2, 1, 50, seed=3), [[[1.0] + [0.0] * 8, [0.0] * 9], [[0.0, 2.0, 0.5] + [0.0] * 6, [0.0, -2.0, 0.25] + [0.0] * 6]]),
    "small": exchange("reference.py: a small tensor, with momentum and masking", Plan(5, 1, 4, 5, 1, small=5), [[gauss(10 * t + w, 5) for w in range(2)] for t in range(3)], 0.5, True),
}

# Right are the candidates 0 to 3, and an update of 0 and 1 with 5 and 4.
asking = lambda body: lambda right: right[:5] + bytes.fromhex(body)
updating = lambda workers, keys, values: lambda right: right[:5] + struct.pack("<I", workers) + bytes.fromhex(keys) + floats(values)
NAN, INF = float("nan"), float("inf")
EXCHANGES |= {
    "corrupt-params-empty": refused("by hand", "params", lambda b: b"", "corrupt, 0 bytes are not parameters"),
    "corrupt-params-kind": refused("by hand: as a sketch begins", "params", lambda b: b"\2" + b[1:], "corrupt, 44 bytes are not parameters"),
    "corrupt-params-short": refused("by hand", "params", lambda b: b[:-1], "corrupt, 43 bytes are not parameters"),
    "corrupt-params-trailing": refused("by hand", "params", lambda b: b + b"\0", "corrupt, 45 bytes are not parameters"),
    "corrupt-params-large": refused("by hand: d and k are 2^64-1", "params", lambda b: b[:1] + b"\xff" * 16 + b[17:], "corrupt, all are below 2^31"),
    "corrupt-params-columns": refused("by hand: 2^31 columns", "params", lambda b: b[:23] + struct.pack("<I", 1 << 31) + b[27:], "corrupt, both are below 2^31"),
    "corrupt-sketch-empty": refused("by hand", "first 0", lambda b: b"", "corrupt, 0 bytes instead of a sketch"),
    "corrupt-sketch-head": refused("by hand: three bytes of five", "first 0", lambda b: b[:3], "corrupt, 3 bytes instead of a sketch"),
    "corrupt-sketch-short": refused("by hand: a byte too few", "first 0", lambda b: b[:-1], "corrupt, worker 0: countsketch: corrupt sketch: 31 bytes"),
    "corrupt-sketch-trailing": refused("by hand: a byte too many", "first 0", lambda b: b + b"\0", "corrupt, worker 0: countsketch: corrupt sketch: 33 bytes"),
    "corrupt-sketch-seed": refused("by hand: hash functions of another seed", "first 0", lambda b: b[:13] + b"\6" + b[14:], "corrupt, worker 0: countsketch: corrupt sketch: it is of"),
    "corrupt-sketch-cells": refused("by hand: cells of 3 bytes", "first 0", lambda b: b[:6] + b"\3" + b[7:], "corrupt, cells of 3 bytes"),
    "corrupt-sketch-nan": refused("by hand", "first 0", lambda b: b[:-4] + floats([NAN]), "corrupt, cell 3 is NaN"),
    "corrupt-candidates-empty": refused("by hand: no count", "candidates", asking(""), "corrupt, 0 coordinates; at most 4"),
    "corrupt-candidates-unended": refused("by hand: a count that does not end", "candidates", asking("80"), "corrupt, 0 coordinates; at most 4"),
    "corrupt-candidates-many": refused("by hand: p·k is 4", "candidates", asking(coordinates([1, 2, 3, 4, 5]).hex()), "corrupt, 5 coordinates; at most 4"),
    "corrupt-candidates-short": refused("by hand: a count alone", "candidates", asking("04"), "corrupt, 4 coordinates in 0 bytes"),
    "corrupt-candidates-beyond": refused("by hand", "candidates", asking(coordinates([9]).hex()), "corrupt, coordinate 9 of 9"),
    "corrupt-candidates-bits": refused("by hand: the last bit is none of a coordinate", "candidates", asking("04 00 00 01"), "corrupt, its bits do not end"),
    "corrupt-candidates-trailing": refused("by hand", "candidates", lambda b: b + b"\0", "corrupt, 1 bytes follow the candidates"),
    "corrupt-values-short": refused("by hand: a value is missing", "values 0", lambda b: b[:-4], "corrupt, 12 bytes for 4 values"),
    "corrupt-values-trailing": refused("by hand: a byte too many", "values 0", lambda b: b + b"\0", "corrupt, 17 bytes for 4 values"),
    "corrupt-values-infinity": refused("by hand", "values 0", lambda b: b[:-4] + floats([-INF]), "corrupt, value 3 of 4 is -Inf"),
    "corrupt-update-empty": refused("by hand: it does not say of how many workers", "update", lambda b: b[:5], "corrupt, of how many workers"),
    "corrupt-update-workers": refused("by hand: of none", "update", updating(0, coordinates([0, 1]).hex(), [5.0, 4.0]), "corrupt, of how many workers"),
    "corrupt-update-workers-many": refused("by hand: of 2^20 and one more", "update", updating((1 << 20) + 1, coordinates([0, 1]).hex(), [5.0, 4.0]), "corrupt, of how many workers"),
    "corrupt-update-unasked": refused("by hand: 4 was not asked for", "update", updating(1, coordinates([1, 4]).hex(), [4.0, 1.0]), "corrupt, coordinate 4 is updated and was not asked for"),
    "corrupt-update-beyond": refused("by hand", "update", updating(1, coordinates([1, 9]).hex(), [4.0, 1.0]), "corrupt, coordinate 9 of 9"),
    "corrupt-update-many": refused("by hand: k is 2", "update", updating(1, coordinates([0, 1, 2]).hex(), [5.0, 4.0, 3.0]), "corrupt, 3 coordinates; at most 2"),
    "corrupt-update-few": refused("by hand: a sum is missing", "update", updating(1, coordinates([0, 1]).hex(), [5.0]), "corrupt, 4 bytes for 2 values"),
    "corrupt-update-nan": refused("by hand", "update", updating(1, coordinates([0, 1]).hex(), [5.0, NAN]), "corrupt, value 1 of 2 is NaN"),
    "corrupt-small-short": refused("by hand: a value is missing", "small first 0", lambda b: b[:-4], "corrupt, 8 bytes for 3 values"),
    "corrupt-small-infinity": refused("by hand", "small first 0", lambda b: b[:5] + floats([INF]) + b[9:], "corrupt, value 0 of 3 is +Inf"),
    "corrupt-small-update-workers": refused("by hand: of none", "small update", lambda b: b[:5] + struct.pack("<I", 0) + b[9:], "corrupt, of how many workers"),
    "corrupt-small-update-trailing": refused("by hand: a byte too many", "small update", lambda b: b + b"\0", "corrupt, 13 bytes for 3 values"),
    "order-sketch": refused("by hand: values before a sketch", "first 0", lambda b: b"\4" + b[1:], "order, values of step 0 instead of a sketch of step 0"),
    "order-small": refused("by hand: a sketch of a small tensor", "small first 0", lambda b: b"\2" + b[1:], "order, a sketch of step 0 instead of a whole tensor of step 0"),
    "order-candidates": refused("by hand: the next step's", "candidates", lambda b: b[:1] + b"\1" + b[2:], "order, candidates of step 1 instead of candidates of step 0"),
    "order-update": refused("by hand: a small tensor's", "update", lambda b: b"\7" + b[1:], "order, a whole update of step 0 instead of an update of step 0"),
}


def main():
    bad = []
    for folder, files in (HERE, FILES), (EXCHANGE, EXCHANGES):
        for name, text in files.items():
            path, text = os.path.join(folder, name + ".txt"), "\n".join(text) + "\n"
            if "--check" not in sys.argv:
                open(path, "w").write(text)
            elif not os.path.exists(path) or open(path).read() != text:
                bad.append(os.path.join(folder, name))
        bad += [f for f in os.listdir(folder) if f.endswith(".txt") and f[:-4] not in files]
    if bad:
        sys.exit("not as reference.py makes them: " + " ".join(bad))


if __name__ == "__main__":
    main()

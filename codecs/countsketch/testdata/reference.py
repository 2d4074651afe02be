#!/usr/bin/env python3
"""The count sketch of this package's comment in plain Python, one coordinate at a time, and the vectors that it makes.

It shares nothing with the Go package but the comment. Run without arguments it writes the *.txt beside it, with --check it
only says which would change.
"""
import math, os, random, struct, sys

M64 = (1 << 64) - 1
G = 0x9E3779B97F4A7C15


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
    return z ^ z >> 31


def word(seed, t, i):
    return mix(mix(seed + (t + 1) * G & M64) + (i + 1) * G & M64)


def bucket(seed, r, c, i):
    a, b = word(seed, 0, 2 * r), word(seed, 0, 2 * r + 1)
    return c * ((a * i + b & M64) >> 32) >> 32


def entry(seed, t, i):
    """T_t[i]"""
    return word(seed, t + 1, i // 4) >> 16 * (i % 4) & 0xFFFF


def sign(seed, r, i):
    high, low = i >> 16, i & 0xFFFF
    bits = entry(seed, 0, high) ^ entry(seed, 1, low) ^ entry(seed, 2, high + low)
    return -1.0 if bits >> r & 1 else 1.0


class Sketch:
    def __init__(self, rows, columns, seed):
        self.rows, self.columns, self.seed = rows, columns, seed
        self.cells = [[0.0] * columns for _ in range(rows)]

    def insert(self, i, v):
        for r in range(self.rows):
            j = bucket(self.seed, r, self.columns, i)
            self.cells[r][j] = f32(self.cells[r][j] + sign(self.seed, r, i) * v)

    def query(self, i):
        # -0 sorts below +0
        estimates = [sign(self.seed, r, i) * self.cells[r][bucket(self.seed, r, self.columns, i)] for r in range(self.rows)]
        return sorted(estimates, key=lambda v: (v, math.copysign(1, v)))[self.rows // 2]

    def squared_norm(self):
        norms = []
        for row in self.cells:
            s = 0.0
            for v in row:
                s += v * v
            norms.append(s)
        return sorted(norms)[self.rows // 2]

    def bytes(self, width=4):
        e, form = 0, "<%df"
        if width == 2:
            form = "<%de"
            most = max(abs(v) for row in self.cells for v in row)
            if most:
                e = math.frexp(most)[1] - 15
        out = struct.pack("<BBhIQ", self.rows, width, e, self.columns, self.seed)
        for row in self.cells:
            out += struct.pack(form % self.columns, *[math.ldexp(v, -e) for v in row])
        return out

    def rounded(self, width):
        """What a server that reads bytes(width) has."""
        e = struct.unpack("<h", self.bytes(width)[2:4])[0]
        s = Sketch(self.rows, self.columns, self.seed)
        form = "<%d" % (self.rows * self.columns) + ("f" if width == 4 else "e")
        cells = [f32(math.ldexp(v, e)) for v in struct.unpack(form, self.bytes(width)[16:])]
        s.cells = [cells[r * s.columns:(r + 1) * s.columns] for r in range(s.rows)]
        return s


def hexes(b):
    return [b[i:i + 32].hex(" ") for i in range(0, len(b), 32)]


def good(source, rows, columns, seed, pairs, ask, width=4):
    s = Sketch(rows, columns, seed)
    text = ["# from: " + source, "rows: %d" % rows, "columns: %d" % columns, "seed: %#x" % seed, "width: %d" % width, "expect: ok", "insert:"]
    for i, v in pairs:
        v = f32(v)
        s.insert(i, v)
        text.append("%d %s" % (i, v.hex()))
    s2 = s.rounded(width)
    text += ["bytes:"] + hexes(s.bytes(width)) + ["query:"] + ["%d %s" % (i, s2.query(i).hex()) for i in ask]
    return text + ["squared norm:", s2.squared_norm().hex()]


def corrupt(source, b, why, rows=1, columns=2, seed=1):
    return ["# from: " + source, "rows: %d" % rows, "columns: %d" % columns, "seed: %#x" % seed, "expect: corrupt, " + why, "bytes:"] + hexes(bytes.fromhex(b))


def gauss(seed, n):
    r = random.Random(seed)
    return [r.gauss(0, 1) for _ in range(n)]


far = [0, 1, 65535, 65536, 65537, 131071, 1 << 20, (1 << 20) + 65535, 3 << 20]
header = "01 04 00 00 02 00 00 00 01 00 00 00 00 00 00 00"
FILES = {
    "one": good("reference.py: one coordinate, in every row", 5, 7, 1, [(3, 1.5)], range(6)),
    "collisions": good("reference.py: of one column, all coordinates collide", 3, 1, 2, [(i, i + 1.0) for i in range(6)], range(6)),
    "normal": good("reference.py: normal numbers of Python's random", 5, 64, 1, list(enumerate(gauss(1, 300))), range(300)),
    "far": good("reference.py: coordinates with upper 16 bits", 3, 11, 0xFEDCBA9876543210, [(i, 2.0**k) for k, i in enumerate(far)], far),
    "rows-15": good("reference.py: as many rows as there are", 15, 9, 7, list(enumerate(gauss(2, 40))), range(40)),
    "row-1": good("reference.py: one row", 1, 8, M64, list(enumerate(gauss(3, 20))), range(20)),
    "zero": good("by hand: the sketch of nothing is zeros; its exponent is 0", 3, 2, 1, [], range(2), width=2),
    "half": good("reference.py: cells of 16 bits", 5, 16, 1, list(enumerate(gauss(4, 50))), range(50), width=2),
    "half-small": good("reference.py: cells of 16 bits near the least float32", 3, 4, 1, [(i, (i + 1) * 2.0**-149) for i in range(5)], range(5), width=2),
    "half-large": good("reference.py: cells of 16 bits near the largest float32", 3, 4, 1, [(0, 2.0**127), (1, -2.0**126), (2, 1e-30)], range(5), width=2),
    "half-up": good("reference.py: the largest cell is rounded up to 2^15 units", 1, 1, 1, [(0, 65535.0)], range(1), width=2),
    "corrupt-short": corrupt("by hand: half a header", "01 04 00 00 02 00 00 00", "its header has 16"),
    "corrupt-empty": corrupt("by hand: nothing", "", "its header has 16"),
    "corrupt-width": corrupt("by hand: cells of 3 bytes", "01 03" + header[5:] + "00" * 6, "cells of 3 bytes"),
    "corrupt-cells": corrupt("by hand: a cell is missing", header + "00" * 4, "20 bytes; 1 x 2 cells have 24"),
    "corrupt-trailing": corrupt("by hand: a byte too many", header + "00" * 9, "25 bytes"),
    "corrupt-seed": corrupt("by hand: of another seed", header + "00" * 8, "Seed:1", seed=2),
    "corrupt-columns": corrupt("by hand: of other columns", header + "00" * 8, "Columns:2", columns=3),
    "corrupt-rows": corrupt("by hand: of other rows", header + "00" * 8, "Rows:1", rows=3),
    "corrupt-exponent": corrupt("by hand: cells of 4 bytes have no exponent", "01 04 01 00" + header[11:] + "00" * 8, "its exponent is 1"),
    "corrupt-exponent-high": corrupt("by hand: beyond the largest float32", "01 02 72 00" + header[11:] + "00" * 4, "its exponent is 114"),
    "corrupt-exponent-low": corrupt("by hand: below the least float32", "01 02 5c ff" + header[11:] + "00" * 4, "its exponent is -164"),
    "corrupt-infinity": corrupt("by hand: a cell is infinite", header + "00 00 00 00 00 00 80 7f", "cell 1 is +Inf"),
    "corrupt-nan": corrupt("by hand: a cell of 16 bits is no number", "01 02" + header[5:] + "00 7e 00 00", "cell 0 is NaN"),
    "corrupt-half-overflow": corrupt("by hand: 65504 units of 2^113", "01 02 71 00" + header[11:] + "ff 7b 00 00", "cell 0 is +Inf"),
}


def main():
    here, changed = os.path.dirname(os.path.abspath(__file__)), []
    for name, text in FILES.items():
        path, want = os.path.join(here, name + ".txt"), "\n".join(text) + "\n"
        have = open(path).read() if os.path.exists(path) else ""
        if have != want:
            changed.append(name)
            if "--check" not in sys.argv:
                open(path, "w").write(want)
    stray = {f[:-4] for f in os.listdir(here) if f.endswith(".txt")} - set(FILES)
    if "--check" in sys.argv and (changed or stray):
        sys.exit("not as reference.py makes them: " + ", ".join(changed + sorted(stray)))


if __name__ == "__main__":
    main()

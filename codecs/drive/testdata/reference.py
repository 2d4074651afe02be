#!/usr/bin/env python3
"""drive as the comment of its package says, in plain Python. See codectest/vectors.py."""
import math, os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
from vectors import *


def hadamard(x):
    """Of float32, in the order of additions that the definition by halves has."""
    h = 1
    while h < len(x):
        for i in range(0, len(x), 2 * h):
            for j in range(i, i + h):
                x[j], x[j + h] = f32(x[j] + x[j + h]), f32(x[j] - x[j + h])
        h *= 2
    return x


def flip(x, seed):
    r, out = Source(seed), []
    for i in range(0, len(x), 64):
        signs = r.uint64()
        out += [-v if signs >> k & 1 else v for k, v in enumerate(x[i:i + 64])]
    return out


def coder(seed=1, unbiased=False):
    def encode(T, number):
        s = Source(seed, number, T).uint64() >> 32
        d = 1
        while d < len(T):
            d *= 2
        y = hadamard(flip(T, s) + [0.0] * (d - len(T)))
        l1 = math.fsum(map(abs, y))
        c = f32(l1 / d / d)
        if unbiased:
            squares = math.fsum(v * v for v in T)
            c = f32(squares / l1) if squares else 0.0
        bits = sum(1 << i for i, v in enumerate(y) if v < 0)
        z = hadamard([-1.0 if v < 0 else 1.0 for v in y])
        out = flip([f32(c * v) for v in z][:len(T)], s)
        return scalar(c) + struct.pack("<I", s) + bits.to_bytes((d + 7) // 8, "little"), out

    return encode


ALL, ONE = "drive", "0000803f"
FILES = {
    "empty": good("by hand: nothing is nothing", ALL, 4096, coder(), [[]], want=""),
    "one": good("reference.py: a value alone is its own scale", ALL, 4096, coder(), [[-2.5]]),
    "two": good("reference.py: two values, of which the smaller is lost", ALL, 4096, coder(), [[3.0, 1.0]]),
    "one-of-eight": good("reference.py: of eight values one is not 0, and is delivered exactly", ALL, 4096, coder(), [[0.0] * 5 + [4.0] + [0.0] * 2]),
    "zeros": good("reference.py: zeros have scale 0", ALL, 4096, coder(), [[0.0, -0.0, 0.0]]),
    "normal": good("reference.py: normal numbers of Python's random", ALL, 4096, coder(), [normals(1, 256)]),
    "padding": good("reference.py: normal numbers of Python's random, 100 filled up to 128", ALL, 4096, coder(), [normals(2, 100)]),
    "unbiased": good("reference.py: normal numbers of Python's random, the same at each step, rotated anew", "drive(scale=unbiased)", 4096, coder(1, True), [normals(3, 64)] * 3),
    "blocks": good("reference.py: normal numbers of Python's random; every block has a number", "drive(block=16,seed=77)", 16, coder(77), [normals(k, 50) for k in range(2)]),
    "feedback": good("reference.py: normal numbers of Python's random", ALL, 4096, coder(), [normals(k, 32) for k in range(4)], feedback=True),
    "unsuited-nan": unsuited("by hand", ALL, 4096, coder(), [[1.0, 0.3], ["NaN", 0.0]]),
    "unsuited-infinity": unsuited("by hand", ALL, 4096, coder(), [[1.0, 0.3], [0.0, "-Inf"]]),
    "unsuited-large": unsuited("by hand: one of the two sums is infinite, whatever the signs", ALL, 4096, coder(), [[1.0, 0.3], [1.5 * 2.0**127, 1.5 * 2.0**127]]),
    "unsuited-large-unbiased": unsuited("by hand: the same, of the other scale", "drive(scale=unbiased)", 4096, coder(1, True), [[1.0, 0.3], [1.5 * 2.0**127, 1.5 * 2.0**127]]),
    "corrupt-empty": corrupt("by hand", ALL, 1, "", "values 0 to 0: it ends too early"),
    "corrupt-seed": corrupt("by hand", ALL, 1, ONE + "0000", "values 0 to 0: it ends too early"),
    "corrupt-short": corrupt("by hand: nine values have sixteen signs", ALL, 9, ONE + "00000000" + "00", "values 0 to 8: it ends too early"),
    "corrupt-trailing": corrupt("by hand", ALL, 8, ONE + "00000000" + "0000", "1 bytes follow its 8 values"),
    "corrupt-scale": corrupt("by hand: of two values, c is at most half of the largest float32", ALL, 2, "ffff7f7f" + "00000000" + "00", "the scale is 3.40"),
    "corrupt-scale-negative": corrupt("by hand", ALL, 1, "000080bf" + "00000000" + "00", "the scale is -1"),
    "corrupt-signs": corrupt("by hand: a sign beyond the fourth", ALL, 3, ONE + "00000000" + "10", "there are signs beyond the last value"),
}
main(__file__, FILES)

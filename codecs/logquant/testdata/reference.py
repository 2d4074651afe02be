#!/usr/bin/env python3
"""LogQuant (arXiv:1603.01025) in plain Python, and the vectors that it makes.

It shares nothing with the Go package but the package's comment; logarithms are compared as squares of fractions. See codectest/vectors.py.
"""
import os, random, struct, sys
from fractions import Fraction

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
import vectors
from vectors import *


def packed(bits):
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def log2(a):
    """Round(log2 a): the e with 2^(2e-1) < a^2 < 2^(2e+1), at most 127."""
    e, square = -160, Fraction(a) ** 2
    while square > Fraction(2) ** (2 * e + 1):
        e += 1
    return min(e, 127)


def encode(x, bits):
    levels, most = 2 ** (bits - 1) - 1, max(map(abs, x))
    if most == 0:
        return struct.pack("<h", -150), [0.0] * len(x)
    top, codes, y = log2(most), "", []
    for v in x:
        e = log2(abs(v)) if v else top - levels
        c = top + 1 - e if top + 1 - e <= levels else 0
        codes += "01"[v < 0 and c > 0] + format(c, "0%db" % (bits - 1))
        y.append(2.0**e * (-1 if v < 0 else 1) if c else 0.0)
    return struct.pack("<h", top) + packed(codes), y


def good(source, steps, bits=5, block=65536, dtype="float32", feedback=False, want=None):
    params = ["%s=%s" % (name, v) for name, v, default in [("bits", bits, 5), ("block", block, 65536)] if v != default]
    codec = "logquant" + ("(%s)" % ",".join(params) if params else "")
    return vectors.good(source, codec, block, lambda T, number: encode(T, bits), steps, dtype, feedback, want)


def unsuited(source, steps):
    return vectors.unsuited(source, "logquant", 65536, lambda T, number: encode(T, 5), steps)


def corrupt(source, n, b, why, codec="logquant"):
    return vectors.corrupt(source, codec, n, b, why)


root = 2 ** 0.5
FILES = {
    "empty": good("by hand: nothing is nothing", [[]], want=""),
    "zeros": good("by hand: zeros of either sign have no codes", [[0.0, -0.0, 0.0]], want="6aff"),
    "powers": good("by hand: top 3; 8, -4, 1, 0 and 2^-11, the last exponent of 15, are 0 0001, 1 0010, 0 0100, 0 0000 and 0 1111",
                   [[8, -4, 1, 0, 2**-11]], want="0300" + "0c880780"),
    "below": good("by hand: two bits leave one power of two: 1 and 1.4 are sent, 1.5 of another block is 2, and 0.7 is below",
                  [[1, -1.4, 0.7, 0, 1.5, 1]], bits=2, block=4, want="0000" + "70" + "0100" + "40"),
    "nearest": good("by hand: the float32 below the root of 2 is 1, that above is 2", [[f32(root) - 2**-23, f32(root), f32(root) + 2**-23, -f32(root) - 2**-23]],
                    bits=4, want="0100" + "2219"),
    "subnormal": good("reference.py: magnitudes of a few times the least float32", [[2**-149, -3 * 2**-149, 200 * 2**-149, 0, 7 * 2**-149]]),
    "large": good("by hand: 2^128 is no float32", [[f32(3.4e38), -(2.0**127), 2.0**126]], bits=8, want="7f00" + "018102"),
    "blocks": good("reference.py: each block has its range", [[x * 4**(i // 7) for i, x in enumerate(normals(5, 40))]], bits=4, block=7),
    "normal": good("reference.py: normal numbers of Python's random", [normals(1, 333)]),
    "feedback": good("reference.py: what is rounded off waits", [normals(i, 23) for i in range(4)], bits=3, feedback=True),
    "feedback-bfloat16": good("reference.py: powers of two are bfloat16 as they are", [[bf16(v) for v in normals(i, 23)] for i in range(3)], bits=3,
                              dtype="bfloat16", feedback=True),
    "unsuited-nan": unsuited("by hand: the residual stays", [[1.0, 0.6, -0.3], [1.0, "NaN", 0.0]]),
    "unsuited-infinity": unsuited("by hand: the residual stays", [[1.0, 0.6, -0.3], [1.0, "-Inf", 0.0]]),
    "corrupt-empty": corrupt("by hand", 4, "", "ends before values 0 to 3"),
    "corrupt-top-high": corrupt("by hand", 1, "8000" + "08", "largest of values 0 to 0 is 2^128"),
    "corrupt-top-low": corrupt("by hand", 1, "69ff" + "08", "largest of values 0 to 0 is 2^-151"),
    "corrupt-short": corrupt("by hand: five bits of each of four values are three bytes", 4, "0000" + "0842", "ends in values 0 to 3"),
    "corrupt-end": corrupt("by hand: three bits are left, of which one is not 0", 1, "0000" + "09", "codes do not end with value 0"),
    "corrupt-second-block": corrupt("by hand", 3, "6aff", "ends before values 2 to 2", "logquant(block=2)"),
    "corrupt-trailing": corrupt("by hand", 1, "6aff" + "00", "1 bytes follow"),
}

main(__file__, FILES)

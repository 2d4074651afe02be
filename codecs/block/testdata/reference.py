#!/usr/bin/env python3
"""int8 and int4 as the comment of package block says, in plain Python, and the vectors that it makes. See codectest/vectors.py.
"""
import math, os, struct, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
import vectors
from vectors import *


def quantize(T, levels):
    most = max((abs(t) for t in T), default=0.0)
    scale = f32(most / levels)
    if scale < 2.0**-126:  # subnormal: rounded up to a whole number of 2^-149
        scale = math.ceil(most / levels * 2.0**149) * 2.0**-149
    if scale == 0:
        return 0.0, [0] * len(T)
    if scale < 2.0**-126:
        return scale, [round(t / scale) for t in T]
    inverse = f32(1 / scale)
    return scale, [round(f32(t * inverse)) for t in T]  # Python's round takes ties to even


def pack(q, bits):
    if bits == 8:
        return bytes(v & 255 for v in q)
    half = (len(q) + 1) // 2
    low, high = q[:half], q[half:] + [0] * (len(q) % 2)
    return bytes(a + 8 | (b + 8) << 4 for a, b in zip(low, high))


def encode(T, bits):
    scale, q = quantize(T, 127 if bits == 8 else 7)
    return scalar(scale) + pack(q, bits), [f32(scale * v) for v in q]


def name(bits, block):
    return "int%d" % bits + ("(block=%d)" % block if block else "")


def good(source, bits, steps, block=0, dtype="float32", feedback=False, want=None):
    return vectors.good(source, name(bits, block), block or default(bits), lambda T, number: encode(T, bits), steps, dtype, feedback, want)


def default(bits):
    return 1024 if bits == 8 else 256


def unsuited(source, bits, steps):
    return vectors.unsuited(source, name(bits, 0), default(bits), lambda T, number: encode(T, bits), steps)


def corrupt(source, bits, n, b, why, block=0):
    return vectors.corrupt(source, name(bits, block), n, b, why)


one = "0000803f"  # scale 1
FILES = {}
for bits, levels in (8, 127), (4, 7):
    i = "int%d-" % bits
    FILES |= {
        i + "empty": good("by hand: nothing is nothing", bits, [[]], want=""),
        i + "zeros": good("by hand: zeros of both signs have scale 0 and are 0", bits, [[0.0, -0.0, 0.0]],
                          want="00000000" + ("000000" if bits == 8 else "8888")),
        i + "ends": good("by hand: the largest magnitude is the last level on either side", bits, [[-levels, levels]],
                         want=one + ("817f" if bits == 8 else "f1")),
        i + "ties": good("by hand: halves go to the even neighbour", bits, [[levels, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3]],
                         want=one + ("7f00020200fefe03" if bits == 8 else "8f686aba")),
        i + "blocks": good("by hand: each block has its scale, the last has one value", bits, [[levels, 0, -2 * levels, 2, -levels / 2]], block=2,
                           want=one + ("7f00" if bits == 8 else "8f") + "00000040" + ("8101" if bits == 8 else "91") + "0000003f" + "81"),
        i + "subnormal": good("by hand: 2^-149 is its own scale, and a scale of a fraction of it is rounded up", bits,
                              [[2.0**-149, 0, -(2.0**-149), (levels + 1) * 2.0**-149, -levels * 2.0**-149, 2.0**-149]], block=3,
                              want="01000000" + ("0100ff" if bits == 8 else "7988") + "02000000" +
                              ("40c000" if bits == 8 else "8c84")),
        i + "normal": good("reference.py: normal numbers of Python's random", bits, [normals(bits, 777)]),
        i + "feedback": good("reference.py: normal numbers of Python's random", bits, [normals(k, 61) for k in range(5)], block=20, feedback=True),
        i + "feedback-bfloat16": good("reference.py: the residual is taken against the delivered bfloat16", bits,
                                      [[bf16(v) for v in normals(k, 45)] for k in range(5)], dtype="bfloat16", feedback=True),
        i + "unsuited-nan": unsuited("by hand", bits, [[1.0, 0.4, 0.3], [0.0, "NaN", 0.0]]),
        i + "unsuited-infinity": unsuited("by hand", bits, [[1.0, 0.4, 0.3], [0.0, 0.0, "+Inf"]]),
        i + "unsuited-large": unsuited("by hand: a code more of this scale would be infinite", bits, [[1.0, 0.4, 0.3], [0.0, 0.0, -(2.0**128 - 2.0**104)]]),
        i + "corrupt-short": corrupt("by hand", bits, 4, one + "00", "5 bytes; 4 values have %d" % (8 if bits == 8 else 6)),
        i + "corrupt-trailing": corrupt("by hand", bits, 1, one + "0000", "6 bytes; 1 values have 5"),
        i + "corrupt-empty": corrupt("by hand", bits, 1, "", "0 bytes; 1 values have 5"),
        i + "corrupt-scale-nan": corrupt("by hand", bits, 1, "0000c07f00", "scale of values 0 to 0 is NaN"),
        i + "corrupt-scale-negative": corrupt("by hand", bits, 1, "0000008000", "scale of values 0 to 0 is -0"),
        i + "corrupt-scale-large": corrupt("by hand", bits, 2, one + "00" + ("0000007c" if bits == 8 else "0000007e") + "00", "scale of values 1 to 1 is", block=1),
    }

main(__file__, FILES)

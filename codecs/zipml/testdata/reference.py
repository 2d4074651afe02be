#!/usr/bin/env python3
"""zipml as the comment of package zipml says, in plain Python, and the vectors that it makes. See codectest/vectors.py.
"""
import os, random, struct, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
import vectors
from vectors import *


def up(x):  # the next float32
    return struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", x))[0] + 1))[0]


def encode(x, bits):
    low, high = min(x + [0.0]), max(x + [0.0])
    step = f32((high - low) / (2**bits - 2))
    if step * (2**bits - 2) < high - low:
        step = up(step)
    below = round(-low / step) if step else 0
    inverse = 1 / step if step else 0
    k = [round(v * inverse) for v in x]  # Python's round takes ties to even
    codes = b"".join(struct.pack("<B" if bits == 8 else "<H", v + below) for v in k)
    return struct.pack("<fH", step, below) + codes, [f32(v * step) for v in k]


def name(bits, block):
    parameters = (["bits=16"] if bits == 16 else []) + (["block=%d" % block] if block else [])
    return "zipml" + ("(%s)" % ",".join(parameters) if parameters else "")


def good(source, bits, steps, block=0, dtype="float32", feedback=False, want=None):
    return vectors.good(source, name(bits, block), block or 1 << 20, lambda T, number: encode(T, bits), steps, dtype, feedback, want)


def unsuited(source, bits, x):
    return ["# from: " + source, "codec: " + name(bits, 0), "dtype: float32", "expect: unsuited", "elements:"] + x


def corrupt(source, bits, n, b, why, block=0):
    return vectors.corrupt(source, name(bits, block), n, b, why)


def normals(seed, n, scale=1.0):
    r = random.Random(seed)
    return [r.gauss(0, scale) for _ in range(n)]


one = "0000803f"  # a step of 1
FILES = {}
for bits in 8, 16:
    i, steps = "bits%d-" % bits, 2**bits - 2
    half = steps // 2
    code = lambda *v: b"".join(struct.pack("<B" if bits == 8 else "<H", c) for c in v).hex()
    low = lambda v: struct.pack("<H", v).hex()
    FILES |= {
        i + "empty": good("by hand: nothing is nothing", bits, [[]], want=""),
        i + "zeros": good("by hand: zeros have step 0", bits, [[0.0, -0.0, 0.0]], want="00000000" + "0000" + code(0, 0, 0)),
        i + "ends": good("by hand: a step of 1 from one end to the other", bits, [[-half, 0, half]], want=one + low(half) + code(0, half, steps)),
        i + "positive": good("by hand: the range begins at 0", bits, [[1, steps]], want=one + "0000" + code(1, steps)),
        i + "negative": good("by hand: the range ends at 0", bits, [[-1, -steps]], want=one + low(steps) + code(steps - 1, 0)),
        i + "ties": good("by hand: halves go to the even multiple", bits, [[-half + 1, half + 1, 0.5, 1.5, 2.5, -0.5, -1.5]],
                         want=one + low(half - 1) + code(*(half - 1 + v for v in (-half + 1, half + 1, 0, 2, 2, 0, -2)))),
        i + "blocks": good("by hand: each block has its range, the last has one value", bits, [[-half, half, 2 * steps, 0, -steps / 2]], block=2,
                           want=one + low(half) + code(0, steps) + "00000040" + "0000" + code(steps, 0) + "0000003f" + low(steps) + code(0)),
        i + "subnormal": good("reference.py: a step that is rounded up", bits, [[2.0**-149, -(2.0**-149), 2.0**-140, 3 * 2.0**-149]]),
        i + "normal": good("reference.py: normal numbers of Python's random", bits, [normals(bits, 300)]),
        i + "skewed": good("reference.py: as SKCompress's Figure 3, from -0.353 to 0.004", bits, [[-0.353, 0.004] + normals(bits, 80, 0.001)]),
        i + "feedback": good("reference.py: normal numbers of Python's random", bits, [normals(k, 61) for k in range(4)], block=20, feedback=True),
        i + "bfloat16": good("reference.py: delivered values are rounded once more", bits, [[bf16(v) for v in normals(3, 45)]], dtype="bfloat16"),
        i + "unsuited-nan": unsuited("by hand", bits, ["0x1p+0", "NaN", "0x0p+0"]),
        i + "unsuited-infinity": unsuited("by hand", bits, ["0x1p+0", "-Inf"]),
        i + "unsuited-large": unsuited("by hand: a level more would be infinite", bits, ["0x1.fffffep+127", "0x0p+0"]),
        i + "corrupt-short": corrupt("by hand", bits, 2, one + "0000" + code(0), "%d bytes; 2 values have %d" % (6 + bits // 8, 6 + bits // 4)),
        i + "corrupt-trailing": corrupt("by hand", bits, 1, one + "0000" + code(0, 0), "1 values have %d" % (6 + bits // 8)),
        i + "corrupt-step-nan": corrupt("by hand", bits, 1, "0000c07f0000" + code(0), "steps of NaN"),
        i + "corrupt-step-negative": corrupt("by hand", bits, 1, "000000800000" + code(0), "steps of -0"),
        i + "corrupt-step-large": corrupt("by hand", bits, 3, (one + "0000" + code(0)) * 2 + "0000807e0000" + code(0), "values 2 to 2 begin 0 steps of", block=1),
    }
FILES["bits8-corrupt-low"] = corrupt("by hand", 8, 1, one + "000100", "begin 256 steps of 1 below 0")

main(__file__, FILES)

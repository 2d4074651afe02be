#!/usr/bin/env python3
"""onebit as the comment of its package says, in plain Python. See codectest/vectors.py."""
import math, os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
from vectors import *


def encode(T, number):
    high = [t for t in T if not t < 0]
    low = [-t for t in T if t < 0]
    # fsum is exact; sums in double differ from it by less than what rounds a float32 another way, but for bad luck
    h, l = (f32(math.fsum(v) / len(v)) if v else 0.0 for v in (high, low))
    signs = bytearray((len(T) + 7) // 8)
    for i, t in enumerate(T):
        if t < 0:
            signs[i // 8] |= 1 << i % 8
    return scalar(h) + scalar(l) + bytes(signs), [-l if t < 0 else h for t in T]


ALL, ONE, HALF = "onebit", "0000803f", "0000003f"
FILES = {
    "empty": good("by hand: nothing is nothing", ALL, 65536, encode, [[]], want=""),
    "means": good("by hand: 1 and 0 have the mean 0.5, -0.25, -0.75 and -2 the mean -1", ALL, 65536, encode, [[1.0, -0.25, 0.0, -0.75, -2.0]], want=HALF + ONE + "1a"),
    "signed-zeros": good("by hand: -0 is not negative", ALL, 65536, encode, [[-0.0, 0.0, -1.0]], want="00000000" + ONE + "04"),
    "negative": good("by hand: no value but negative ones", ALL, 65536, encode, [[-1.0] * 9], want="00000000" + ONE + "ff01"),
    "blocks": good("by hand: each block has its means", "onebit(block=2)", 2, encode, [[1.0, -0.5, 0.5, 0.5, -1.0]],
                   want=ONE + HALF + "02" + HALF + "00000000" + "00" + "00000000" + ONE + "01"),
    "normal": good("reference.py: normal numbers of Python's random", ALL, 65536, encode, [normals(1, 333)]),
    "feedback": good("reference.py: normal numbers of Python's random", "onebit(block=30)", 30, encode, [normals(k, 50) for k in range(5)], feedback=True),
    "feedback-bfloat16": good("reference.py: the residual is taken against the delivered bfloat16", ALL, 65536, encode,
                              [[bf16(v) for v in normals(k, 30)] for k in range(4)], dtype="bfloat16", feedback=True),
    "unsuited-nan": unsuited("by hand", ALL, 65536, encode, [[1.0, 0.3], ["NaN", 0.0]]),
    "unsuited-infinity": unsuited("by hand", ALL, 65536, encode, [[1.0, 0.3], [0.0, "-Inf"]]),
    "corrupt-empty": corrupt("by hand", ALL, 1, "", "values 0 to 0: it ends too early"),
    "corrupt-short": corrupt("by hand", ALL, 9, ONE + ONE + "00", "values 0 to 8: it ends too early"),
    "corrupt-trailing": corrupt("by hand", ALL, 8, ONE + ONE + "0000", "1 bytes follow its 8 values"),
    "corrupt-mean-nan": corrupt("by hand", ALL, 1, "0000c07f" + ONE + "00", "the mean of the values that are not negative is NaN"),
    "corrupt-mean-negative": corrupt("by hand", ALL, 1, ONE + "000080bf" + "00", "the mean of minus the negative values is -1"),
    "corrupt-signs": corrupt("by hand: a sign beyond the last value", ALL, 3, ONE + ONE + "08", "there are signs beyond the last value"),
}
main(__file__, FILES)

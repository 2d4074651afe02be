#!/usr/bin/env python3
"""Top-k sparsification in plain Python, and the vectors that it makes.

It shares nothing with the Go package but the package's comment. Run without arguments it writes the *.txt beside it, with
--check it only says which would change.
"""
import os, sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../internal/sparse/testdata"))
sys.dont_write_bytecode = True
from sparse import *


def topk(k, values="fp32"):
    def encode(x, step):
        sent = {i: round_to(x[i], values) for i in top(x, count(k, len(x)))}
        return pairs(sent, values), sent
    return encode


NORMAL = "reference.py: normal numbers of Python's random"
FILES = {
    "one": good("by hand: a count of 1, no divisor to speak of, position 2, and -2 as a float32",
                "topk(k=0.25)", topk(0.25), [[1, 0.5, -2, 0]], want="01 00 02 000000c0"),
    "two": good("by hand: positions 1 and 4, and the gap of 2 between them by a divisor of 2: a quotient of 1 and a remainder of 0, 100",
                "topk(k=0.4)", topk(0.4), [[0.5, 3, -0.25, 1, -4]], want="02 01 01 80 00004040 000080c0"),
    "all": good("by hand: gaps of 0 are a bit each, 0", "topk(k=1)", topk(1), [[1, 2, 3, 4]],
                want="04 00 00 00 0000803f 00000040 00004040 00008040"),
    "ties": good("by hand: of equal magnitudes, whatever their sign, the first are sent", "topk(k=0.5)", topk(0.5),
                 [[1, -1, 1, -1, 2, 1]], want="03 00 00 60 0000803f 000080bf 00000040"),
    "zeros": good("by hand: zeros are not sent, so there are none", "topk", topk(0.01), [[0.0, -0.0, 0.0]], want="00"),
    "few": good("by hand: no more than the values that are not zero are sent", "topk(k=1)", topk(1), [[0, 7, 0, 0]], want="01 00 01 0000e040"),
    "least": good("by hand: one value of a block at least is sent, also a subnormal one", "topk", topk(0.01),
                  [[0, 2**-149, -2**-148]], want="01 00 02 02000080"),
    "empty": good("by hand: nothing is nothing", "topk", topk(0.01), [[]], want=""),
    "blocks": good("by hand: each block has its own", "topk(k=0.5,block=2)", topk(0.5), [[1, 2, 4, 3, 5]], block=2,
                   want="01 00 01 00000040 01 00 00 00008040 01 00 00 0000a040"),
    "bf16": good("by hand: 1 + 2^-7 + 2^-8 lies between two, of which 1 + 2^-6 is even; the largest float32 is delivered as the largest bfloat16",
                 "topk(k=1,values=bf16)", topk(1, "bf16"), [[1 + 2**-7 + 2**-8, 2.0**128 - 2.0**104]], want="02 00 00 00 823f 7f7f"),
    "fp16": good("by hand: what is beyond the largest float16 is delivered as that, and a magnitude below its least as 0",
                 "topk(k=1,values=fp16)", topk(1, "fp16"), [[1e9, -1e9, 1e-9, 1.5]], want="04 00 00 00 ff7b fffb 0000 003e"),
    "feedback": good("by hand in the residuals: what is not sent grows until it is", "topk(k=0.34)", topk(0.34), [[4, 1.5, -1]] * 4, feedback=True),
    "feedback-fp16": good(NORMAL + ": the residual is what rounding to a float16 left, too", "topk(k=0.2,values=fp16,block=30)", topk(0.2, "fp16"),
                          [normals(i, 77) for i in range(4)], block=30, feedback=True),
    "normal": good(NORMAL, "topk(k=0.1)", topk(0.1), [normals(1, 500)]),
    "heavy": good("reference.py: cubes of exponential numbers of Python's random", "topk(k=0.03)", topk(0.03), [heavy(2, 900)]),
    "sampled": good(NORMAL + ": of so few, the threshold is exact", "topk(k=0.05,threshold=sampled)", topk(0.05), [normals(3, 400)]),
    "unsuited-nan": unsuited("by hand", "topk(k=0.34)", topk(0.34), [[1.0, 0.5, 0.0], [0.0, "NaN", 0.0]]),
    "unsuited-infinity": unsuited("by hand: in the second block", "topk(k=0.5,block=2)", topk(0.5), [[1.0, 0.5, 0.0], [1.0, 2.0, "-Inf"]], block=2),
    "corrupt-empty": corrupt("by hand", "topk", 1, "", "values 0 to 0: it begins with no number of positions"),
    "corrupt-count": corrupt("by hand: three of two", "topk", 2, "03 00 00 00", "more of them than values"),
    "corrupt-count-large": corrupt("by hand: 2^63 of two", "topk", 2, "80808080808080808001", "more of them than values"),
    "corrupt-position": corrupt("by hand: position 2 of values 0 and 1", "topk", 2, "01 00 02 0000803f", "position 2 is beyond the last value"),
    "corrupt-keys": corrupt("by hand: too few bytes for two keys", "topk", 9, "02 00", "codecs: corrupt encoding"),
    "corrupt-short": corrupt("by hand: three bytes of a value", "topk", 2, "01 00 01 000080", "ends 1 bytes before its last value"),
    "corrupt-infinity": corrupt("by hand", "topk", 2, "01 00 01 0000807f", "a value is not finite"),
    "corrupt-nan": corrupt("by hand: of the second block", "topk(block=1,values=bf16)", 2, "00 01 00 00 c07f", "values 1 to 1: a value is not finite"),
    "corrupt-trailing": corrupt("by hand", "topk", 2, "01 00 01 0000803f 00", "1 bytes follow"),
}

main(__file__, FILES)

#!/usr/bin/env python3
"""Deep Gradient Compression's encoder in plain Python, and the vectors that it makes.

It shares nothing with the Go package but the package's comment. Run without arguments it writes the *.txt beside it, with
--check it only says which would change.
"""
import os, sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../internal/sparse/testdata"))
sys.dont_write_bytecode = True
from sparse import *


def dgc(k, warmup=0, values="fp32"):
    def encode(x, step):
        density = max(k, 4.0 ** -(step // warmup + 1)) if warmup else k
        sent = {i: round_to(x[i], values) for i in top(x, count(density, len(x)))}
        return pairs(sent, values), sent
    return encode


NORMAL = "reference.py: normal numbers of Python's random"
FILES = {
    "one": good("by hand: a count of 1, no divisor to speak of, position 2, and -2 as a float32", "dgc", dgc(0.001), [[1, 0.5, -2, 0]], want="01 00 02 000000c0"),
    "zeros": good("by hand: zeros are not sent, so there are none", "dgc", dgc(0.001), [[0.0, -0.0, 0.0]], want="00"),
    "empty": good("by hand: nothing is nothing", "dgc", dgc(0.001), [[]], want=""),
    "warmup": good("reference.py: section 4.1's 25 %, 6.25 % and 1.5625 %, an encoding each, and then k, of normal numbers of Python's random",
                   "dgc(k=0.005,warmup=1)", dgc(0.005, 1), [normals(i, 192) for i in range(5)]),
    "warmup-short": good("reference.py: k is reached in the third stage", "dgc(k=0.05,warmup=2,values=bf16)", dgc(0.05, 2, "bf16"), [normals(i, 50) for i in range(6)]),
    "feedback": good(NORMAL, "dgc(k=0.1,block=30)", dgc(0.1), [normals(i, 77) for i in range(4)], block=30, feedback=True),
    "unsuited-nan": unsuited("by hand: and the stage of the warm-up stays", "dgc(k=0.1,warmup=2)", dgc(0.1, 2), [normals(5, 8), ["NaN"] + normals(6, 7)]),
    "corrupt-empty": corrupt("by hand", "dgc", 1, "", "values 0 to 0: it begins with no number of positions"),
    "corrupt-count": corrupt("by hand: three of two", "dgc", 2, "03 00 00 00", "more of them than values"),
    "corrupt-position": corrupt("by hand: position 2 of values 0 and 1", "dgc", 2, "01 00 02 0000803f", "position 2 is beyond the last value"),
    "corrupt-infinity": corrupt("by hand", "dgc", 2, "01 00 01 0000807f", "a value is not finite"),
    "corrupt-short": corrupt("by hand", "dgc", 2, "01 00 01 000080", "ends 1 bytes before its last value"),
    "corrupt-trailing": corrupt("by hand", "dgc", 2, "01 00 01 0000803f 00", "1 bytes follow"),
}

main(__file__, FILES)

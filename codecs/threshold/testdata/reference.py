#!/usr/bin/env python3
"""Sparsification by a threshold in plain Python, and the vectors that it makes.

It shares nothing with the Go package but the package's comment. Run without arguments it writes the *.txt beside it, with
--check it only says which would change.
"""
import os, sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../internal/sparse/testdata"))
sys.dont_write_bytecode = True
from sparse import *


def threshold(t, values="fp32"):
    def encode(x, step):
        sent = {i: round_to(v, values) for i, v in enumerate(x) if abs(v) >= t}
        return pairs(sent, values), sent
    return encode


NORMAL = "reference.py: normal numbers of Python's random"
FILES = {
    "reached": good("by hand: what is as large as the threshold is sent, the float32 below is not", "threshold(t=1)", threshold(1),
                    [[1, f32(1 - 2**-24), -1, 0.5]], want="02 00 00 80 0000803f 000080bf"),
    "between": good("by hand: 0.1 lies between two float32, of which the larger is sent", "threshold(t=0.1)", threshold(0.1),
                    [[f32(0.1), f32(f32(0.1) - 2**-27)]], want="01 00 00 cdcccc3d"),
    "least": good("by hand: a threshold that all reach but zeros", "threshold(t=1.401298464324817e-45)", threshold(2.0**-149), [[0, 2**-149, -0.0]], want="01 00 01 01000000"),
    "none": good("by hand: nothing reaches it", "threshold(t=100)", threshold(100), [[1, 2, 3]], want="00"),
    "empty": good("by hand: nothing is nothing", "threshold", threshold(0.001), [[]], want=""),
    "normal": good(NORMAL, "threshold(t=1.5,values=bf16,block=100)", threshold(1.5, "bf16"), [normals(1, 333)], block=100),
    "feedback": good(NORMAL, "threshold(t=2)", threshold(2), [normals(i, 50) for i in range(4)], feedback=True),
    "unsuited-nan": unsuited("by hand", "threshold(t=1)", threshold(1), [[1.0, 0.5, 0.0], [0.0, "NaN", 0.0]]),
    "unsuited-infinity": unsuited("by hand", "threshold(t=1)", threshold(1), [[1.0, 0.5, 0.0], [0.0, "Inf", 0.0]]),
    "corrupt-empty": corrupt("by hand", "threshold", 1, "", "values 0 to 0: it begins with no number of positions"),
    "corrupt-count": corrupt("by hand: three of two", "threshold", 2, "03 00 00 00", "more of them than values"),
    "corrupt-position": corrupt("by hand: position 2 of values 0 and 1", "threshold", 2, "01 00 02 0000803f", "position 2 is beyond the last value"),
    "corrupt-infinity": corrupt("by hand", "threshold", 2, "01 00 01 0000807f", "a value is not finite"),
    "corrupt-short": corrupt("by hand", "threshold", 2, "01 00 01 000080", "ends 1 bytes before its last value"),
    "corrupt-trailing": corrupt("by hand", "threshold", 2, "01 00 01 0000803f 00", "1 bytes follow"),
}

main(__file__, FILES)

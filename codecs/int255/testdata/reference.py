#!/usr/bin/env python3
"""int255 as the comments of packages int255 and block say, in plain Python. See codectest/vectors.py."""
import os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
from vectors import *


def encode(T, number):
    most = max(map(abs, T), default=0.0)
    scale = f32(most / 127)
    if scale == 0:
        return scalar(0.0) + bytes(len(T)), [0.0] * len(T)
    assert scale >= 2.0**-126  # else the package rounds up
    inverse = f32(1 / scale)
    q = [round(f32(t * inverse)) for t in T]  # Python's round takes ties to even
    return scalar(scale) + bytes(v & 255 for v in q), [f32(scale * v) for v in q]


ALL, ONE = "int255", "0000803f"
FILES = {
    "levels": good("by hand: section 5.1, -127 to 127", ALL, 65536, encode, [[-127.0, -1.0, 0.0, 1.0, 127.0]], want=ONE + "81ff00017f"),
    "ties": good("by hand: halves go to the even neighbour", ALL, 65536, encode, [[127.0, 0.5, 1.5, -0.5, -1.5, 2.5]], want=ONE + "7f000200fe02"),
    "zeros": good("by hand: zeros of both signs have scale 0", ALL, 65536, encode, [[0.0, -0.0]], want="00000000" + "0000"),
    "one-scale": good("reference.py: 500 values of Python's random have one scale", ALL, 65536, encode, [normals(1, 500)]),
    "blocks": good("reference.py: normal numbers of Python's random, a scale each hundred", "int255(block=100)", 100, encode, [normals(2, 250)]),
    "feedback": good("reference.py: normal numbers of Python's random", ALL, 65536, encode, [normals(k, 50) for k in range(4)], feedback=True),
    "unsuited-nan": unsuited("by hand", ALL, 65536, encode, [[1.0, 0.3], ["NaN", 0.0]]),
    "corrupt-short": corrupt("by hand", ALL, 2, ONE + "00", "2 values have 6"),
    "corrupt-trailing": corrupt("by hand", ALL, 2, ONE + "000000", "2 values have 6"),
    "corrupt-scale": corrupt("by hand", ALL, 1, "0000c07f00", "scale of values 0 to 0 is NaN"),
    "corrupt-scale-negative": corrupt("by hand: of the second block", "int255(block=1)", 2, ONE + "00" + "000080bf" + "00", "scale of values 1 to 1 is -1"),
    "corrupt-scale-large": corrupt("by hand: 2^121, the largest there is is less", ALL, 1, "0000007c" + "00", "scale of values 0 to 0 is 2.658456e+36"),
}
main(__file__, FILES)

#!/usr/bin/env python3
"""fp16 and bf16 as the comment of package cast says, in plain Python. See codectest/vectors.py."""
import os, struct, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
from vectors import *


def fp16(T, number):
    T = [max(min(v, 65504.0), -65504.0) for v in T]
    b = b"".join(struct.pack("<e", v) for v in T)  # rounds to nearest even
    return b, [v for v, in struct.iter_unpack("<e", b)]


def brain(T, number):
    top = 2.0**128 - 2.0**120
    y = [bf16(max(min(v, top), -top)) for v in T]
    return b"".join(struct.pack("<I", bits32(v))[2:] for v in y), y


FILES = {}
for name, encode, top, next_ in ("fp16", fp16, 65504.0, 65520.0), ("bf16", brain, 2.0**128 - 2.0**120, 2.0**128 - 2.0**119):
    low = 2.0**-24 if name == "fp16" else 2.0**-133
    ulp = 2.0**-10 if name == "fp16" else 2.0**-7  # above 1
    i = name + "-"
    FILES |= {
        i + "empty": good("by hand: nothing is nothing", name, 4096, encode, [[]], want=""),
        i + "ends": good("by hand: the largest value, the least subnormal, and zeros of both signs", name, 4096, encode, [[top, -top, low, -low, 0.0, -0.0]],
                         want="ff7bfffb0100018000000080" if name == "fp16" else "7f7f7fff0100018000000080"),
        i + "ties": good("by hand: halfway goes to the even neighbour, of 1 and of 1 and a unit", name, 4096, encode,
                         [[1 + ulp / 2, 1 + 3 * ulp / 2, -1 - ulp / 2, low / 2, 3 * low / 2, 1 + ulp / 2 + 2**-22]],
                         want="003c023c00bc00000200013c" if name == "fp16" else "803f823f80bf00000200813f"),
        i + "normal": good("reference.py: normal numbers of Python's random", name, 4096, encode, [normals(1, 333)]),
        i + "feedback": good("reference.py: normal numbers of Python's random", name, 4096, encode, [normals(k, 40) for k in range(4)], feedback=True),
        i + "saturated": good("by hand: beyond the largest value there is only that one", name, 4096, encode, [[next_, -next_, 2.0**128 - 2.0**104, 1.0]],
                              want="ff7bfffbff7b003c" if name == "fp16" else "7f7f7fff7f7f803f", feedback=True),
        i + "unsuited-nan": unsuited("by hand", name, 4096, encode, [[1.0, 0.3], ["NaN", 0.0]]),
        i + "unsuited-infinity": unsuited("by hand", name, 4096, encode, [[1.0, 0.3], [0.0, "-Inf"]]),
        i + "corrupt-infinity": corrupt("by hand", name, 2, "0000" + ("007c" if name == "fp16" else "80ff"), "values 0 to 1: a value is NaN or infinite"),
        i + "corrupt-short": corrupt("by hand", name, 2, "000000", "values 0 to 1: it ends too early"),
        i + "corrupt-trailing": corrupt("by hand", name, 1, "000000", "1 bytes follow its 1 values"),
    }
FILES |= {
    "bf16-bfloat16": good("by hand: elements of the type itself are delivered as they are, and leave nothing", "bf16", 4096, brain,
                          [[bf16(v) for v in normals(2, 20)]], dtype="bfloat16", feedback=True),
}

main(__file__, FILES)

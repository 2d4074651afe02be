#!/usr/bin/env python3
"""3LC's sparsification with a bitmap in plain Python, and the vectors that it makes.

It shares nothing with the Go package but the package's comment. Run without arguments it writes the *.txt beside it, with
--check it only says which would change.
"""
import os, sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../internal/sparse/testdata"))
sys.dont_write_bytecode = True
from sparse import *


def sparsify(k, values="fp32"):
    def encode(x, step):
        sent = {i: round_to(x[i], values) for i in top(x, count(k, len(x)))}
        bitmap = sum(1 << i for i in sent).to_bytes((len(x) + 7) // 8, "little")
        return bitmap + b"".join(pack(sent[i], values) for i in sorted(sent)), sent
    return encode


NORMAL = "reference.py: normal numbers of Python's random"
FILES = {
    "bitmap": good("by hand: values 2 and 8 of nine", "sparsify(k=0.2)", sparsify(0.2), [[0, 1, -3, 0, 0, 0, 0, 1, 2]], want="04 01 000040c0 00000040"),
    "zeros": good("by hand: zeros are not sent, but have their bits", "sparsify", sparsify(0.25), [[0.0] * 10], want="00 00"),
    "all": good("by hand", "sparsify(k=1)", sparsify(1), [[1, 2]], want="03 0000803f 00000040"),
    "empty": good("by hand: nothing is nothing", "sparsify", sparsify(0.25), [[]], want=""),
    "blocks": good("by hand: each block has its own bitmap", "sparsify(k=0.5,block=2)", sparsify(0.5), [[1, 2, 4, 3, 5]], block=2,
                   want="02 00000040 01 00008040 01 0000a040"),
    "normal": good(NORMAL, "sparsify", sparsify(0.25), [normals(1, 333)]),
    "feedback": good(NORMAL, "sparsify(k=0.05,values=fp16,block=50)", sparsify(0.05, "fp16"), [normals(i, 121) for i in range(4)], block=50, feedback=True),
    "unsuited-nan": unsuited("by hand", "sparsify", sparsify(0.25), [[1.0, 0.5, 0.0], [0.0, "NaN", 0.0]]),
    "corrupt-bitmap-short": corrupt("by hand: one byte of two", "sparsify", 9, "01", "ends after 1 bytes of the bitmap's 2"),
    "corrupt-bitmap-long": corrupt("by hand: a bit for a third value of two", "sparsify", 2, "04 0000803f", "bits beyond the last value"),
    "corrupt-short": corrupt("by hand: one value of two", "sparsify", 2, "03 0000803f", "ends 4 bytes before its last value"),
    "corrupt-infinity": corrupt("by hand", "sparsify", 2, "01 000080ff", "a value is not finite"),
    "corrupt-trailing": corrupt("by hand", "sparsify", 2, "01 0000803f 00", "1 bytes follow"),
}

main(__file__, FILES)

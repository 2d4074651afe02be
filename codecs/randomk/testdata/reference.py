#!/usr/bin/env python3
"""Random-k sparsification in plain Python, and the vectors that it makes.

It shares nothing with the Go package but the package's comment. Run without arguments it writes the *.txt beside it, with
--check it only says which would change.
"""
import os, sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../internal/sparse/testdata"))
sys.dont_write_bytecode = True
from sparse import *


def choose(state, left, n):
    """Knuth's Algorithm S."""
    draw, chosen = Source(state), []
    for i in range(n):
        if left and draw.uint64() * (n - i) >> 64 < left:
            chosen.append(i)
            left -= 1
    return chosen


def randomk(k, scale=False, seed=1, values="fp32"):
    def encode(x, step):
        state, c = Source(seed, step, x).uint64(), count(k, len(x))
        by = f32(len(x) / c) if scale else 1.0
        sent = {i: round_to(f32(x[i] * by), values) for i in choose(state, c, len(x))}
        return state.to_bytes(8, "little") + b"".join(pack(sent[i], values) for i in sorted(sent)), sent
    return encode


NORMAL = "reference.py: normal numbers of Python's random"
FILES = {
    "all": good("reference.py: every position, whatever is drawn", "randomk(k=1)", randomk(1), [[1, 2, 3]]),
    "zeros": good("reference.py: zeros are sent like other values", "randomk(k=0.25)", randomk(0.25), [[0.0] * 8]),
    "empty": good("by hand: nothing is nothing", "randomk", randomk(0.01), [[]], want=""),
    "normal": good(NORMAL + ": the same values draw other positions at each step", "randomk(k=0.1)", randomk(0.1), [normals(1, 200)] * 3),
    "seed": good(NORMAL + ": another seed draws others", "randomk(k=0.1,seed=77)", randomk(0.1, seed=77), [normals(1, 200)]),
    "unbiased": good(NORMAL + ": 17 of 333 are sent, times 333/17", "randomk(k=0.05,scale=unbiased)", randomk(0.05, True), [normals(2, 333)]),
    "blocks": good(NORMAL + ": of each block at least one", "randomk(k=0.01,values=bf16,block=50)", randomk(0.01, values="bf16"), [normals(3, 120)], block=50),
    "feedback": good(NORMAL, "randomk(k=0.2,values=fp16)", randomk(0.2, values="fp16"), [normals(i, 60) for i in range(3)], feedback=True),
    "unsuited-nan": unsuited("by hand: also where it is not sent, and the step does not count", "randomk(k=0.1)", randomk(0.1), [normals(4, 20), ["NaN"] + normals(5, 19)]),
    "unsuited-scaled": unsuited("by hand: ten times 10^38 is more than a float32 can be", "randomk(k=0.1,scale=unbiased)", randomk(0.1, True), [normals(4, 20), [1e38] * 20]),
    "corrupt-empty": corrupt("by hand", "randomk", 1, "", "0 bytes are left; it has 12"),
    "corrupt-short": corrupt("by hand", "randomk(k=1)", 2, "0000000000000000 0000803f", "12 bytes are left; it has 16"),
    "corrupt-nan": corrupt("by hand", "randomk", 2, "0000000000000000 0000c07f", "a value is not finite"),
    "corrupt-trailing": corrupt("by hand", "randomk", 2, "0000000000000000 0000803f 00", "1 bytes follow"),
}

main(__file__, FILES)

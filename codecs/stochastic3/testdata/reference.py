#!/usr/bin/env python3
"""stochastic3 as the comment of its package says, in plain Python. See codectest/vectors.py."""
import os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
from vectors import *


def quartic(q):
    """3LC's section 3.2, steps 1 to 6."""
    a = [v + 1 for v in q]
    a += [0] * (-len(a) % 5)
    p = len(a) // 5
    return bytes(a[j] * 81 + a[p + j] * 27 + a[2 * p + j] * 9 + a[3 * p + j] * 3 + a[4 * p + j] for j in range(p))


def coder(seed=1):
    def encode(T, number):
        M = max(map(abs, T))
        r, draws = Source(seed, number, T), []
        for _ in range(0, len(T), 2):
            u = r.uint64()
            draws += [u & 0xFFFFFFFF, u >> 32]
        q = [(t > 0) - (t < 0) if u * (M * 2.0**-32) < abs(t) else 0 for t, u in zip(T, draws)]
        return scalar(M) + quartic(q), [M * v if v else 0.0 for v in q]

    return encode


ALL, ONE = "stochastic3", "0000803f"
FILES = {
    "empty": good("by hand: nothing is nothing", ALL, 65536, coder(), [[]], want=""),
    "zeros": good("by hand: zeros of both signs have scale 0; five are 121", ALL, 65536, coder(), [[0.0, -0.0, 0.0, 0.0, -0.0]], want="00000000" + "79"),
    "no-runs": good("by hand: ten zeros are two bytes, not a run", ALL, 65536, coder(), [[0.0] * 10], want="00000000" + "7979"),
    "largest": good("by hand: section 3.2, step 6: 2·81 + 1·27 + 0·9 + 1·3 + 2 = 194", ALL, 65536, coder(), [[2.0, 0.0, -2.0, 0.0, 2.0]], want="00000040" + "c2"),
    "padding": good("by hand: beyond the last value the digits are 0", ALL, 65536, coder(), [[1.0] * 6], want=ONE + "eaea"),
    "normal": good("reference.py: normal numbers of Python's random", ALL, 65536, coder(), [normals(1, 333)]),
    "again": good("reference.py: normal numbers of Python's random, the same at each step, drawn anew", ALL, 65536, coder(), [normals(3, 60)] * 3),
    "blocks": good("reference.py: normal numbers of Python's random; every block has a number", "stochastic3(block=20,seed=77)", 20, coder(77), [normals(k, 50) for k in range(2)]),
    "unsuited-nan": unsuited("by hand", ALL, 65536, coder(), [[1.0, 0.3], ["NaN", 0.0]]),
    "unsuited-infinity": unsuited("by hand", ALL, 65536, coder(), [[1.0, 0.3], [0.0, "-Inf"]]),
    "corrupt-empty": corrupt("by hand", ALL, 1, "", "values 0 to 0: it ends too early"),
    "corrupt-short": corrupt("by hand", ALL, 6, ONE + "00", "values 0 to 5: it ends too early"),
    "corrupt-trailing": corrupt("by hand", ALL, 5, ONE + "0000", "1 bytes follow its 5 values"),
    "corrupt-scale": corrupt("by hand", ALL, 1, "0000807f" + "00", "the scale is +Inf"),
    "corrupt-run": corrupt("by hand: a byte of zero-run encoding", ALL, 10, ONE + "f379", "a byte is no quartic one"),
}
main(__file__, FILES)

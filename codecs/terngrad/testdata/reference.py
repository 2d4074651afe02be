#!/usr/bin/env python3
"""terngrad as the comment of its package says, in plain Python. See codectest/vectors.py."""
import math, os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
from vectors import *


def pack(q):
    q = q + [0] * (-len(q) % 4)
    return bytes(sum((v & 3) << 2 * k for k, v in enumerate(q[i:i + 4])) for i in range(0, len(q), 4))


def coder(clip=2.5, seed=1):
    def encode(T, number):
        s = max(map(abs, T))
        if clip:
            s = min(s, f32(clip * math.sqrt(math.fsum(t * t for t in T) / len(T))))
        r, draws = Source(seed, number, T), []
        for _ in range(0, len(T), 2):
            u = r.uint64()
            draws += [u & 0xFFFFFFFF, u >> 32]
        q = [(t > 0) - (t < 0) if u * (s * 2.0**-32) < abs(t) else 0 for t, u in zip(T, draws)]
        return scalar(s) + pack(q), [s * v if v else 0.0 for v in q]

    return encode


ALL, BARE, ONE = "terngrad", "terngrad(clip=0)", "0000803f"
FILES = {
    "empty": good("by hand: nothing is nothing", ALL, 65536, coder(), [[]], want=""),
    "zeros": good("by hand: zeros of both signs have scale 0 and are 0", ALL, 65536, coder(), [[0.0, -0.0, 0.0]], want="00000000" + "00"),
    "largest": good("by hand: the largest magnitudes are always sent, zeros never", BARE, 65536, coder(0), [[1.0, -1.0, 0.0, 1.0, -1.0]], want=ONE + "4d" + "03"),
    "constant": good("by hand: values all alike are within 2.5 standard deviations about 0", ALL, 65536, coder(), [[-1.0] * 4], want=ONE + "ff"),
    "normal": good("reference.py: normal numbers of Python's random", ALL, 65536, coder(), [normals(1, 333)]),
    "clipped": good("reference.py: normal numbers of Python's random, and a large one", "terngrad(clip=1)", 65536, coder(1), [normals(2, 99) + [30.0]]),
    "bare": good("reference.py: normal numbers of Python's random, the same at each step, drawn anew", BARE, 65536, coder(0), [normals(3, 60)] * 3),
    "blocks": good("reference.py: normal numbers of Python's random; every block has a number", "terngrad(block=20,seed=77)", 20, coder(2.5, 77), [normals(k, 50) for k in range(2)]),
    "bfloat16": good("reference.py: normal numbers of Python's random, as bfloat16", ALL, 65536, coder(), [[bf16(v) for v in normals(4, 40)]], dtype="bfloat16"),
    "unsuited-nan": unsuited("by hand", ALL, 65536, coder(), [[1.0, 0.3], ["NaN", 0.0]]),
    "unsuited-infinity": unsuited("by hand", BARE, 65536, coder(0), [[1.0, 0.3], [0.0, "-Inf"]]),
    "corrupt-empty": corrupt("by hand", ALL, 1, "", "values 0 to 0: it ends too early"),
    "corrupt-short": corrupt("by hand", ALL, 5, ONE + "00", "values 0 to 4: it ends too early"),
    "corrupt-trailing": corrupt("by hand", ALL, 4, ONE + "0000", "1 bytes follow its 4 values"),
    "corrupt-scale": corrupt("by hand", ALL, 1, "0000807f" + "00", "the scale is +Inf"),
    "corrupt-scale-negative": corrupt("by hand", ALL, 1, "000080bf" + "00", "the scale is -1"),
    "corrupt-two": corrupt("by hand: 2 is neither -1, 0 nor 1", ALL, 4, ONE + "08", "an integer is out of its bounds"),
    "corrupt-padding": corrupt("by hand: 1 beyond the last value", ALL, 3, ONE + "40", "bits follow the last"),
}
main(__file__, FILES)

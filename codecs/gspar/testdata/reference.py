#!/usr/bin/env python3
"""GSpar and UniSp as their paper says (sections 2.2, 2.3 and 4), in plain Python, and the vectors that it makes.

It shares nothing with the Go package but the package's comment. Run without arguments it writes the *.txt beside it, with
--check it only says which would change.
"""
import os, sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../internal/sparse/testdata"))
sys.dont_write_bytecode = True
from sparse import *

from fractions import Fraction


def algorithm2(g, eps):
    """lambda, by sorting, in exact numbers."""
    a = sorted((abs(Fraction(v)) for v in g), reverse=True)
    squares = sum(v * v for v in a)
    for k in range(len(a)):
        rest, rest_squares = sum(a[k:]), sum(v * v for v in a[k:])
        if a[k] * rest <= Fraction(eps) * squares + rest_squares:
            return rest / (Fraction(eps) * squares + rest_squares) if rest else 0
    return 0


def algorithm3(g, kappa, iterations=2):
    """lambda, in exact numbers."""
    a = [abs(Fraction(v)) for v in g]
    wanted = Fraction(kappa) * len(a)
    if not any(a):
        return 0
    scale = wanted / sum(a)
    for _ in range(iterations):
        p = [min(scale * v, 1) for v in a]
        active = sum(v for v in p if v != 1)
        if not active:
            break
        c = (wanted - sum(v == 1 for v in p)) / active
        if c <= 1:
            break
        scale *= c
    return scale


def unit_of(scale):
    return f32(float(min(1 / scale, Fraction(2**128 - 2**104)))) if scale else 0.0


def hybrid(unit, A, B):
    signs = sum(1 << i for i, k in enumerate(sorted(B)) if B[k] < 0).to_bytes((len(B) + 7) // 8, "little")
    return b"\0" + pack(unit, "fp32") + pairs(A) + positions(sorted(B)) + signs


def dense(unit, A, B, d):
    q = [3 if i in A else 0 if i not in B else 1 if B[i] > 0 else 2 for i in range(d)]
    counts = [q.count(l) for l in range(4)]
    f = [max(1, (c << 16) // d) if c else 0 for c in counts]
    f[counts.index(max(counts))] += (1 << 16) - sum(f)
    x, words = 1 << 31, []
    for l in reversed(q):
        if x >= f[l] << 47:
            words.append(x & 0xFFFFFFFF)
            x >>= 32
        x = (x // f[l] << 16) + x % f[l] + sum(f[:l])
    out = b"\1" + pack(unit, "fp32") + uvarint(counts[2]) + uvarint(counts[1]) + uvarint(counts[3]) + uvarint(len(words))
    out += x.to_bytes(8, "little") + b"".join(w.to_bytes(4, "little") for w in reversed(words))
    return out + b"".join(pack(A[k], "fp32") for k in sorted(A))


def gspar(kappa=0.0, eps=0.0, seed=1):
    def encode(g, step):
        unit = unit_of(algorithm2(g, eps) if eps else algorithm3(g, kappa))
        draw, A, B = Source(seed, step, g), {}, {}
        for i, v in enumerate(g):
            if v != 0 and abs(v) >= unit:
                A[i] = v
            elif v != 0 and draw.float64() * unit < abs(v):
                B[i] = unit if v > 0 else -unit
        forms = hybrid(unit, A, B), dense(unit, A, B, len(g))
        return min(forms, key=len), {**A, **B}
    return encode


def unisp(kappa, seed=1):
    def encode(g, step):
        draw, sent = Source(seed, step, g), {}
        for i, v in enumerate(g):
            if draw.float64() < kappa and v != 0:
                sent[i] = f32(v / kappa)
        return pairs(sent), sent
    return encode


def halves(seed, n):  # 1, and very small values of both signs
    return [1.0 if i % 2 else f32(v * 1e-20) for i, v in enumerate(map(f32, normals(seed, n)))]


NORMAL, HEAVY = "reference.py: normal numbers of Python's random", "reference.py: cubes of exponential numbers of Python's random"
FILES = {
    "zeros": good("by hand: the hybrid form, 1/λ of 0, and two counts of 0", "gspar", gspar(0.01), [[0.0, -0.0, 0.0]], want="00 00000000 00 00"),
    "sure": good("by hand: κ = 1, so λ is 1 over the mean magnitude, 2, and with two iterations 1, 3 and 2 are sure to be sent",
                 "gspar(kappa=1)", gspar(1), [[1, -3, 2]], want="00 0000803f 03 00 00 00 0000803f 000040c0 00000040 00"),
    "empty": good("by hand: nothing is nothing", "gspar", gspar(0.01), [[]], want=""),
    "kappa": good(HEAVY + ": hybrid; the same values draw differently at each step", "gspar(kappa=0.05)", gspar(0.05), [heavy(1, 300)] * 3),
    "kappa-seed": good(HEAVY + ": and with another seed", "gspar(kappa=0.05,seed=5)", gspar(0.05, seed=5), [heavy(1, 300)]),
    "dense": good(NORMAL + ": dense", "gspar(kappa=0.5)", gspar(0.5), [normals(2, 500)]),
    "eps": good(NORMAL, "gspar(eps=1)", gspar(eps=1), [normals(3, 120)]),
    "eps-small": good(HEAVY + ": most values are sure to be sent", "gspar(eps=0.001)", gspar(eps=0.001), [heavy(4, 100)]),
    "eps-large": good(HEAVY + ": no value is sure to be sent", "gspar(eps=100,block=64)", gspar(eps=100), [heavy(5, 150)], block=64),
    "extremes": good("reference.py: half of the values have p_i = 1", "gspar(kappa=0.5)", gspar(0.5), [halves(6, 40)]),
    "feedback": good(HEAVY, "gspar(kappa=0.3)", gspar(0.3), [heavy(i, 40) for i in range(3)], feedback=True),
    "unisp": good(NORMAL, "unisp(kappa=0.1)", unisp(0.1), [normals(7, 200)] * 2),
    "unisp-all": good("by hand: with κ = 1, all are sent as they are", "unisp(kappa=1)", unisp(1), [[1, 0, 2]],
                      want="02 00 00 80 0000803f 00000040"),
    "unsuited-nan": unsuited("by hand: the step does not count", "gspar(kappa=0.3)", gspar(0.3), [heavy(8, 20), ["NaN"] + heavy(9, 19)]),
    "unsuited-infinity": unsuited("by hand", "unisp(kappa=0.5)", unisp(0.5), [heavy(8, 20), ["Inf"] + heavy(9, 19)]),
    "unsuited-amplified": unsuited("by hand: 10^38 over 0.1 is more than a float32 can be", "unisp(kappa=0.1)", unisp(0.1), [heavy(8, 200), [1e38] * 200]),
    "corrupt-empty": corrupt("by hand", "gspar", 1, "", "ends before 1/λ does"),
    "corrupt-form": corrupt("by hand", "gspar", 1, "02 0000803f 00 00", "its form is 2"),
    "corrupt-unit-negative": corrupt("by hand", "gspar", 1, "00 000080bf 00 00", "1/λ is -1"),
    "corrupt-unit-infinite": corrupt("by hand", "gspar", 1, "00 0000807f 00 00", "1/λ is +Inf"),
    "corrupt-twice": corrupt("by hand: position 0 is in QA and in QB", "gspar", 2, "00 0000803f 01 00 00 00000040 01 00 00 00", "value 0 is there twice"),
    "corrupt-signs-short": corrupt("by hand", "gspar", 2, "00 0000803f 00 01 00 00", "ends after 0 bytes of 1 with signs"),
    "corrupt-signs-long": corrupt("by hand: a sign for a second value of one", "gspar", 2, "00 0000803f 00 01 00 00 02", "more signs than values"),
    "corrupt-value": corrupt("by hand", "gspar", 2, "00 0000803f 01 00 00 0000c07f 00", "a value is not finite"),
    "corrupt-trailing": corrupt("by hand", "gspar", 2, "00 0000803f 00 00 00", "1 bytes follow"),
    "corrupt-dense-count": corrupt("by hand: two 1 and one -1 of two values", "gspar", 2, "01 0000803f 01 02 00 00 0000008000000000", "3 values of 2"),
    "corrupt-dense-short": corrupt("by hand: seven bytes of eight", "gspar", 2, "01 0000803f 00 00 00 00 00000080000000", "ends after 7 bytes of the code's 8"),
    "corrupt-dense-end": corrupt("by hand: a zero is less than x can be, and there is no word to follow it", "gspar", 2, "01 0000803f 00 00 00 00 0000000000000000", "the code ends too early"),
    "corrupt-dense-state": corrupt("by hand: with zeros only, x stays what it is, which is not 2^31", "gspar", 2, "01 0000803f 00 00 00 00 0100008000000000", "the code is not of as many values"),
    "corrupt-dense-words": corrupt("by hand: a word too many", "gspar", 2, "01 0000803f 00 00 00 01 0000008000000000 00000000", "the code is not of as many values"),
    # UniSp's messages are positions and values: 02 00 00 80 are 0 and 2.
    "corrupt-unisp-empty": corrupt("by hand", "unisp", 3, "", "it begins with no number of positions"),
    "corrupt-unisp-count": corrupt("by hand: four of three values", "unisp", 3, "04 00 00 00", "more of them than values"),
    "corrupt-unisp-positions-short": corrupt("by hand: it ends before the positions do", "unisp", 3, "02", "0 bytes are too few for the 2 keys"),
    "corrupt-unisp-divisor": corrupt("by hand: 3·2^63", "unisp", 3, "01 7f 00 0000803f", "its divisor is 0x7f"),
    "corrupt-unisp-first": corrupt("by hand: the first position is 2^32", "unisp", 3, "01 00 8080808010 0000803f", "its first key has more than 32 bits"),
    "corrupt-unisp-overflow": corrupt("by hand: after 2^32-1, 2^32", "unisp", 3, "02 00 ffffffff0f 00 0000803f 0000803f", "key 1 is not greater"),
    "corrupt-unisp-position": corrupt("by hand: position 3 of three", "unisp", 3, "01 00 03 0000803f", "position 3 is beyond the last value"),
    "corrupt-unisp-bits": corrupt("by hand: the last bit is none of a position", "unisp", 3, "02 00 00 81 0000803f 00000040", "its bits do not end"),
    "corrupt-unisp-values-short": corrupt("by hand: seven bytes of eight", "unisp", 3, "02 00 00 80 0000803f 000000", "it ends 1 bytes before its last value does"),
    "corrupt-unisp-nan": corrupt("by hand", "unisp", 3, "02 00 00 80 0000803f 0000c07f", "a value is not finite"),
    "corrupt-unisp-infinity": corrupt("by hand", "unisp", 3, "02 00 00 80 000080ff 00000040", "a value is not finite"),
    "corrupt-unisp-trailing": corrupt("by hand", "unisp", 3, "02 00 00 80 0000803f 00000040 00", "1 bytes follow the values"),
}

main(__file__, FILES)

#!/usr/bin/env python3
"""FastSGD as its paper says (arXiv:2112.04291v1, Algorithms 1 and 2), in plain Python, and the vectors that it makes.

It shares nothing with the Go package but the package's comment; sums, quotients and comparisons are those of fractions. See codectest/vectors.py.
"""
import math, os, random, struct, sys
from fractions import Fraction

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
import vectors
from vectors import *


def ceil64(q):
    x = float(q)  # rounds to nearest, as Python says of fractions
    return math.nextafter(x, math.inf) if Fraction(x) < q else x


def ceil32(x):
    try:
        y = f32(x)
    except OverflowError:
        return math.inf
    if y < x:
        b = struct.unpack("<I", struct.pack("<f", y))[0] + 1
        y = struct.unpack("<f", struct.pack("<I", b))[0]
    return y


def levels(total, b, tau):
    X, T = total, []
    for _ in range(tau + 1):
        T.append(ceil32(X))
        X = ceil64(Fraction(X) / Fraction(b))
    return T


def width(tau):
    return (tau - 1).bit_length()


def packed(bits):
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def leb128(x):
    out = []
    while x > 127:
        out.append(x & 127 | 128)
        x >>= 7
    return bytes(out + [x])


def gv_encoder(v, b, tau):
    """Algorithm 1: the sum and codes, the positions, and what they are delivered as."""
    exact = sum((abs(Fraction(x)) for x in v), Fraction(0))
    if exact == 0:
        return b"", [], []
    total = float(exact)
    assert total == exact, "choose values whose sum is a float64"
    T = levels(total, b, tau)
    bits, kept, y, whole = "", [], [], False
    for j, x in enumerate(v):
        if abs(x) < T[tau]:
            continue
        L = next(i for i, t in enumerate(T) if t <= abs(x))
        kept.append(j)
        y.append(math.copysign(T[L], x))
        if L == 0:
            whole, L = True, 1
        bits += "01"[x < 0] + (format(L - 1, "0%db" % width(tau)) if tau > 1 else "")
    if not kept:
        return b"", [], []
    return struct.pack("<d", -total if whole else total) + packed(bits), kept, y


def gk_encoder(keys, l):
    """Algorithm 2."""
    if not keys:
        return b""
    deltas = [k - p for k, p in zip(keys, [0] + keys)]
    M = max(deltas).bit_length()
    bits = ""
    for d in deltas:
        flag, n = next((f, n) for f in range(2**l) for n in [-(-(f + 1) * M // 2**l)] if n >= d.bit_length())
        bits += format(flag, "0%db" % l) + (format(d, "0%db" % n) if n else "")
    return bytes([M]) + packed(bits)


def encode(T, b, tau, l):
    values, kept, delivered = gv_encoder(T, b, tau)
    y = [0.0] * len(T)
    for k, v in zip(kept, delivered):
        y[k] = v
    return leb128(len(kept)) + values + gk_encoder(kept, l), y


def good(source, steps, b=1.1, tau=128, l=2, block=1 << 20, dtype="float32", feedback=False, want=None):
    given = [("b", b, 1.1), ("tau", tau, 128), ("l", l, 2), ("block", block, 1 << 20)]
    params = ["%s=%s" % (name, v) for name, v, default in given if v != default]
    codec = "fastsgd" + ("(%s)" % ",".join(params) if params else "")
    return vectors.good(source, codec, block, lambda T, number: encode(T, b, tau, l), steps, dtype, feedback, want)


def unsuited(source, steps):
    return vectors.unsuited(source, "fastsgd", 1 << 20, lambda T, number: encode(T, 1.1, 128, 2), steps)


def corrupt(source, n, b, why, codec="fastsgd"):
    return vectors.corrupt(source, codec, n, b, why)


def normals(seed, n, bits=10):
    """Multiples of a small number, so that their sum is exact."""
    r = random.Random(seed)
    return [round(r.gauss(0, 1) * 2**bits) / 2**bits for _ in range(n)]


def sparse(seed, n, density):
    r = random.Random(seed)
    return [r.choice([-1, 1]) * r.randrange(1, 1 << 20) / 2**20 if r.random() < density else 0.0 for _ in range(n)]


def double(x):
    return struct.pack("<d", x).hex()


FILES = {
    "empty": good("by hand: nothing is nothing", [[]], want=""),
    "zeros": good("by hand: of zeros of either sign none is sent", [[0.0, -0.0, 0.0]], want="00"),
    "single": good("by hand: a single value is the sum, L = 0, which a negative sum says; its key 2 has M = 2, flag 10 (of lengths 1, 1, 2 and 2) and 10",
                   [[0, 0, 0.3, 0]], want="01" + double(-f32(0.3)) + "00" + "02" + "a0"),
    "single-negative": good("by hand: as single, with the sign in the code; key 0 has M = 0 and the flag 00",
                            [[-0.3]], want="01" + double(-f32(0.3)) + "80" + "00" + "00"),
    "powers": good("by hand: b = 2, sum 8: L = 1, 2, 3 and 3 of magnitudes 4, 2, 1, 1 in bytes L-1 with a sign; deltas 1, 1, 1, 2 with M = 2: "
                   "00 1, 00 1, 00 1, 10 10", [[0, 4, -2, 1, 0, -1]], b=2.0, want="04" + double(8) + "00810282" + "02" + "24d0"),
    "figure-2": good("by hand: Figure 2, R = 6.1 is L = 3 for b = 2 (here 61 of 10)", [[10, 32, 19]], b=2.0,
                     want="03" + double(61) + "020001" + "01" + "0480"),
    "filter": good("by hand: b = 2, τ = 3: 0.5 is below 8/2^3 and is not sent; three bits a value: sign and L-1",
                   [[0, -4, 0.5, 2, 0, 1.5]], b=2.0, tau=3, want="03" + double(8) + "8500" + "02" + "3540"),
    "none-kept": good("by hand: nine values alike are each below 9/2^3", [[1.0] * 9], b=2.0, tau=3, want="00"),
    "one-level": good("by hand: τ = 1 leaves the sign to be coded", [[3, 0, 0, 0, 0, -4]], b=2.0, tau=1, want="01" + double(7) + "80" + "03" + "a8"),
    "blocks": good("by hand: each block of three has its sum and keys", [[1, 0, 0, 0, 0, 0, 0, -2, 2]], b=2.0, block=3,
                   want="01" + double(-1.0) + "00" + "0000" + "00" + "02" + double(4) + "8000" + "01" + "24"),
    "subnormal": good("reference.py: magnitudes of a few times the least float32", [[2**-149, -3 * 2**-149, 200 * 2**-149, 0, 7 * 2**-149]]),
    "large": good("reference.py: a sum that is no float32", [[2.0**127, -2.0**127, 2.0**127 * 1.5, 2.0**120]]),
    "flags-1": good("reference.py: keys with flags of one bit", [sparse(1, 300, 0.1)], l=1),
    "flags-3": good("reference.py: keys with flags of three bits", [sparse(2, 300, 0.05)], l=3),
    "sparse": good("reference.py: one value in twenty", [sparse(3, 999, 0.05)]),
    "normal": good("reference.py: normal numbers of Python's random", [normals(1, 333)]),
    "narrow-base": good("reference.py: b = 1.03625, of section 4.2", [normals(2, 99)], b=1.03625),
    "six-bits": good("reference.py: τ = 64, which leaves seven bits a value", [normals(3, 50)], tau=64),
    "feedback": good("reference.py: what is not sent, and what is lost of what is, waits", [normals(i, 23) for i in range(4)], tau=20, feedback=True),
    "feedback-bfloat16": good("reference.py: the residual is taken against what is delivered as a bfloat16",
                              [[bf16(v) for v in normals(i, 23, 6)] for i in range(3)], tau=20, dtype="bfloat16", feedback=True),
    "unsuited-nan": unsuited("by hand: the residual stays", [[1.0, 0.5, -0.25], [1.0, "NaN", 0.0]]),
    "unsuited-infinity": unsuited("by hand: the residual stays", [[1.0, 0.5, -0.25], [1.0, "-Inf", 0.0]]),
    "corrupt-empty": corrupt("by hand", 4, "", "0 values are sent of 4, in 0 bytes"),
    "corrupt-count": corrupt("by hand", 4, "05" + double(8) + "0000000000" + "0000", "5 values are sent of 4"),
    "corrupt-sum-short": corrupt("by hand", 4, "01" + double(8)[:14], "ends before a sum"),
    "corrupt-sum-nan": corrupt("by hand", 4, "01" + double(math.nan) + "00" + "0000", "sum of magnitudes is NaN"),
    "corrupt-sum-infinite": corrupt("by hand", 4, "01" + double(math.inf) + "00" + "0000", "sum of magnitudes is +Inf"),
    "corrupt-sum-zero": corrupt("by hand", 4, "01" + double(0) + "00" + "0000", "sum of magnitudes is 0"),
    "corrupt-two-wholes": corrupt("by hand", 4, "02" + double(-8) + "0000" + "01" + "09", "one of 2 values is their whole sum"),
    "corrupt-level": corrupt("by hand: L = 128 for τ = 100", 4, "01" + double(8) + "7f" + "0000", "level 128", "fastsgd(tau=100)"),
    "corrupt-level-whole": corrupt("by hand: L = 2 of a value that is the sum", 4, "01" + double(-8) + "01" + "0000", "level 2"),
    "corrupt-value-infinite": corrupt("by hand: 2^200/1.1 is no float32", 4, "01" + double(2.0**200) + "00" + "0000", "level 1"),
    "corrupt-codes-end": corrupt("by hand: τ = 64 leaves a bit, which is not 0", 4, "01" + double(8) + "01" + "0000", "codes do not end", "fastsgd(tau=64)"),
    "corrupt-keys-short": corrupt("by hand", 4, "01" + double(8) + "00" + "08", "too few for the 1 keys"),
    "corrupt-keys-descend": corrupt("by hand: the second delta is 0", 4, "02" + double(8) + "0000" + "01" + "20", "key 1 is not greater"),
    "corrupt-position": corrupt("by hand: position 4 of 4", 4, "01" + double(8) + "00" + "03" + "a0", "position 4 of 4 values"),
    "corrupt-trailing": corrupt("by hand", 4, "00" + "00", "1 bytes follow"),
    "corrupt-second-block": corrupt("by hand", 4, "00", "values 2 to 3", "fastsgd(block=2)"),
}

main(__file__, FILES)

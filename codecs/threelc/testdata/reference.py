#!/usr/bin/env python3
"""3LC as its paper says (arXiv:1802.07389v1, section 3), in plain Python, and the vectors that it makes; and the entropy
coding that is not the paper's, as the package's comments say.

It shares nothing with the Go package but the package's comment. See codectest/vectors.py.
"""
import math, os, random, struct, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
import vectors
from vectors import *


def quantize(T, s):
    """Equations (1) and (2)."""
    M = f32(max((abs(t) for t in T), default=0.0) * f32(s))
    if M == 0:
        return M, [0] * len(T)
    return M, [round(f32(t / M)) for t in T]  # Python's round takes ties to even


def quartic(q):
    """Section 3.2, steps 1 to 6."""
    a = [v + 1 for v in q]
    a += [0] * (-len(a) % 5)
    p = len(a) // 5
    p0, p1, p2, p3, p4 = (a[i * p:(i + 1) * p] for i in range(5))
    return [p0[j] * 81 + p1[j] * 27 + p2[j] * 9 + p3[j] * 3 + p4[j] for j in range(p)]


def zero_run(a):
    """Section 3.3."""
    out, i = [], 0
    while i < len(a):
        k = 1
        while a[i] == 121 and k < 14 and i + k < len(a) and a[i + k] == 121:
            k += 1
        out.append(243 + (k - 2) if k >= 2 else a[i])
        i += k
    return bytes(out)


TRITS = [[b // p % 3 - 1 for p in (81, 27, 9, 3, 1)] for b in range(243)]
LOWEST, TOTAL = 1 << 24, 1 << 16


def intervals(none, density, positive, most):
    """Start and frequency of each quartic byte: that of five zeros first, then in order."""
    others = [b for b in range(243) if b != 121 and sum(map(abs, TRITS[b])) <= most]
    weight = {}
    for b in others:
        k, j, w = sum(map(abs, TRITS[b])), TRITS[b].count(1), 1 << 32
        for f in [density] * k + [TOTAL - density] * (5 - k):
            w = w * f >> 16
        for f in [2 * positive + 1] * j + [512 - 2 * positive - 1] * (k - j):
            w = w * f >> 9
        weight[b] = w
    room, total = TOTAL - none - len(others), sum(weight.values())
    freq = {b: 1 + (weight[b] * room // total if total else 0) for b in others}
    freq[121] = TOTAL - sum(freq.values())
    start, at = {121: 0}, freq[121]
    for b in others:
        start[b], at = at, at + freq[b]
    return start, freq


def entropy(q):
    a = quartic(q + [0] * (-len(q) % 5))  # values beyond the last are zeros
    zeros, trits = a.count(121), [v for b in a for v in TRITS[b]]
    most = max(sum(map(abs, TRITS[b])) for b in a)
    if most == 0:
        return b"\0"
    nonzero = sum(map(abs, trits))
    symbols = sum(0 < sum(map(abs, t)) <= most for t in TRITS)
    none = max(1, min(zeros * TOTAL // len(a), TOTAL - symbols))
    mean = nonzero / (len(a) - zeros)
    density = next((d for d in range(1, TOTAL - 1) if 5 * (d / TOTAL) >= mean * (1 - (1 - d / TOTAL)**5)), TOTAL - 1)
    positive = min(trits.count(1) * 256 // nonzero, 255)
    start, freq = intervals(none, density, positive, most)
    x, words = LOWEST, []
    for b in reversed(a):
        if x >= freq[b] << 24:
            words.append(x & 0xFFFF)
            x >>= 16
        x = x // freq[b] * TOTAL + x % freq[b] + start[b]
    coded = struct.pack("<HHB", none, density, positive) + x.to_bytes(5, "little") + b"".join(struct.pack("<H", w) for w in reversed(words))
    runs = zero_run(a)
    if len(coded) > len(runs):
        return b"\6" + runs
    return bytes([most]) + coded


def encode(T, s, coder):
    M, q = quantize(T, s)
    return scalar(M) + (entropy(q) if coder else zero_run(quartic(q))), [M * v if v else 0.0 for v in q]


def name(s=1.0, block=65536, coder=None):
    params = (["s=%s" % s] if s != 1 else []) + (["block=%d" % block] if block != 65536 else []) + (["coder=" + coder] if coder else [])
    return "3lc" + ("(%s)" % ",".join(params) if params else "")


def good(source, steps, s=1.0, block=65536, dtype="float32", feedback=False, want=None, coder=None):
    return vectors.good(source, name(s, block, coder), block, lambda T, number: encode(T, s, coder), steps, dtype, feedback, want)


def unsuited(source, steps, s=1.0):
    return vectors.unsuited(source, name(s), 65536, lambda T, number: encode(T, s, None), steps)


def corrupt(source, n, b, why, codec="3lc"):
    return vectors.corrupt(source, codec, n, b, why)


def scaled(M, q):
    return [M * v for v in q]


one = "0000803f"  # M = 1
FILES = {
    "zeros-5": good("by hand: section 3.3, five zeros are 121", [[0.0] * 5], want="00000000" + "79"),
    "zeros-10": good("by hand: section 3.3, the shortest run, 2, is 243", [[0.0] * 10], want="00000000" + "f3"),
    "zeros-70": good("by hand: section 3.3, the longest run, 14, is 255: 280 bytes in one", [[0.0] * 70], want="00000000" + "ff"),
    "zeros-75": good("by hand: a run of 15 is one of 14 and one byte", [[0.0] * 75], want="00000000" + "ff79"),
    "zeros-150": good("by hand: a run of 30 is two of 14 and one of 2", [[0.0] * 150], want="00000000" + "fffff3"),
    "zeros-1": good("by hand: section 3.2, step 4 pads with what stands for -1, so that one zero is 1·81", [[0.0]], want="00000000" + "51"),
    "empty": good("by hand: nothing is nothing", [[]], want=""),
    "highest": good("by hand: section 3.2, five ones are the largest byte, 242", [[1.0] * 5], want=one + "f2"),
    "lowest": good("by hand: section 3.2, five times -1 are 0", [[-1.0] * 5], want=one + "00"),
    "polynomial": good("by hand: section 3.2, step 6: 2·81 + 1·27 + 0·9 + 1·3 + 2 = 194", [[1, 0, -1, 0, 1]], want=one + "c2"),
    "partitions": good("by hand: section 3.2, step 5: values 0, 2, 4, 6 and 8 are one byte, 2·81 + 40 = 202; 1, 3, 5, 7 and 9 another, 2·27 + 94 = 148",
                       [[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]], want=one + "ca94"),
    "padding": good("by hand: section 3.2, step 4: of six values in five parts of two, the last two parts are padding",
                    [[1, 1, 1, 1, 1, 1]], want=one + "eaea"),
    "run-between": good("by hand: a run of two between other bytes",
                        [[1] + [0] * 18 + [1]], want=one + "caf37a"),
    "tie": good("by hand: equation (2) of a half, which is even, is 0, and a float32 more is 1",
                [[1.0, 0.5, -0.5, f32(0.5 + 2**-24), -f32(0.5 + 2**-24)]], want=one + "cc"),
    "multiplier": good("by hand: equations (1) and (2) with s = 1.75: M = 1.75, and 0.875 is not sent",
                       [[1.0, 0.875, -0.875, 0.9, -0.9]], s=1.75, want="0000e03f" + "cc"),
    "signed-zeros": good("by hand: a zero of either sign is 0, and is delivered as +0", [[-0.0, 0.0, -0.0, 0.0, -0.0]], want="00000000" + "79"),
    "subnormal": good("by hand: a float32 of the least magnitude is its own M, of three times that M/2 lies between two",
                      [[2**-149, 0, 0, 0, 0, 3 * 2**-149, 2**-149, 2 * 2**-149, -2 * 2**-149, 0]], block=5,
                      want="01000000" + "ca" + "03000000" + "d0"),
    "blocks": good("by hand: each block of three has its M and its padding: 2·81 + 27 + 9 = 198, 0·81 + 27 + 9 = 36, and 81 + 27 = 108 of two values",
                   [[1, 0, 0, -2, 0, 0, 0, 0]], block=3, want=one + "c6" + "00000040" + "24" + "00000000" + "6c"),
    "feedback": good("by hand in the residuals: 0.4 is sent at the second step, when 0.4 + 0.4 is over a half of M = 1",
                     [[1.0, 0.4, -0.25, 0.0, 0.125]] * 4, feedback=True),
    "feedback-bfloat16": good("reference.py: the residual is taken against ±M as a bfloat16",
                              [[bf16(v) for v in normals(i, 23)] for i in range(4)], s=1.75, dtype="bfloat16", feedback=True),
    "normal": good("reference.py: normal numbers of Python's random", [normals(1, 333)]),
    "normal-1.9": good("reference.py: normal numbers of Python's random", [normals(2, 999)], s=1.9),
    "feedback-normal": good("reference.py: normal numbers of Python's random", [normals(i, 121) for i in range(6)], s=1.5, block=50, feedback=True),
    "entropy-zeros": good("by hand: a block of zeros is its M and a form of 0", [[0.0] * 70], coder="entropy", want="00000000" + "00"),
    "entropy-few": good("by hand: where zero-run encoding is shorter, form 6 and that", [[0, 0, 1, 0, 0, 0, 0, 0, 0, -1.0]], coder="entropy", want=one + "06" + "9478"),
    "entropy-padding": good("by hand: beyond the last value there are zeros, here two of them: 2·81 + 27 + 9 + 3 + 1 = 202", [[1.0, 0, 0]], coder="entropy", want=one + "06" + "ca"),
    "entropy-1": good("reference.py: at most one value of five is no zero", [[float(i % 25 == 7) - (i % 75 == 33) for i in range(502)]], coder="entropy"),
    "entropy-5": good("reference.py: three fifths are 1, by Python's random", [[random.Random(i).choice([-1.0, 0.0, 1.0, 1.0, 1.0]) for i in range(503)]], coder="entropy"),
    "entropy-blocks": good("reference.py: normal numbers of Python's random, their cubes, and zeros", [normals(3, 200) + [v**3 for v in normals(4, 400)] + [0.0] * 240],
                           block=200, coder="entropy"),
    "entropy-feedback": good("reference.py: normal numbers of Python's random", [normals(i, 250) for i in range(2)], feedback=True, coder="entropy"),
    "unsuited-nan": unsuited("by hand", [[1.0, 0.4, 0.0], [0.0, "NaN", 0.0]]),
    "unsuited-infinity": unsuited("by hand", [[1.0, 0.4, 0.0], ["-Inf", 0.0, 0.0]]),
    "unsuited-scale": unsuited("by hand: M would be infinite", [[1.0, 0.75, 0.0], [0.0, 0.0, 1.5 * 2.0**127]], s=1.999),
    "corrupt-scale-nan": corrupt("by hand", 5, "0000c07f" "79", "scale of values 0 to 4 is NaN"),
    "corrupt-scale-infinite": corrupt("by hand", 5, "0000807f" "79", "scale of values 0 to 4 is +Inf"),
    "corrupt-scale-negative": corrupt("by hand", 5, "000080bf" "79", "scale of values 0 to 4 is -1"),
    "corrupt-scale-short": corrupt("by hand", 5, "000080", "ends before the scale of values 0 to 4"),
    "corrupt-second-scale": corrupt("by hand", 10, one + "79" + "0000807f" + "79", "scale of values 5 to 9 is +Inf", "3lc(block=5)"),
    "corrupt-short": corrupt("by hand: five bytes of the six", 30, one + "f6", "runs do not fit values 0 to 29"),
    "corrupt-run-too-long": corrupt("by hand: seven bytes for six", 30, one + "f8", "runs do not fit values 0 to 29"),
    "corrupt-trailing": corrupt("by hand", 5, one + "79" "79", "1 bytes follow"),
    "corrupt-entropy-form": corrupt("by hand", 5, one + "07" "79", "runs do not fit values 0 to 4", "3lc(coder=entropy)"),
    "corrupt-entropy-short": corrupt("by hand: a model without a state", 5, one + "01" + "0080ff7f80" + "00000001", "runs do not fit values 0 to 4", "3lc(coder=entropy)"),
    "corrupt-entropy-model": corrupt("by hand: no byte of five zeros, though one more symbol has to be", 5, one + "01" + "0000ff7f80" + "0000000100", "runs do not fit values 0 to 4", "3lc(coder=entropy)"),
    "corrupt-entropy-state": corrupt("by hand: a state that no encoder begins with is left", 5, one + "01" + "0080ff7f80" + "ffffffffff", "runs do not fit values 0 to 4", "3lc(coder=entropy)"),
    "corrupt-entropy-missing": corrupt("by hand: a form and nothing", 5, one + "05", "runs do not fit values 0 to 4", "3lc(coder=entropy)"),
    "corrupt-empty": corrupt("by hand", 1, "", "ends before the scale of values 0 to 0"),
}

main(__file__, FILES)

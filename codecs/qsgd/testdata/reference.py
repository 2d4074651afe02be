#!/usr/bin/env python3
"""qsgd as the comment of its package says, in plain Python. See codectest/vectors.py."""
import math, os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../codectest"))
from vectors import *


def up32(x):
    y = f32(x)
    return y if y >= x else struct.unpack("<f", struct.pack("<I", bits32(y) + 1))[0]


def fixed(q, bits):
    value = sum((v & (1 << bits) - 1) << bits * i for i, v in enumerate(q))
    return value.to_bytes((len(q) * bits + 7) // 8, "little")


def omega(k):
    code = "0"
    while k > 1:
        code = format(k, "b") + code
        k = len(format(k, "b")) - 1
    return code


def elias(q):
    out, last = "", -1
    for i, v in enumerate(q):
        if v:
            out += omega(i - last) + "01"[v < 0] + omega(abs(v))
            last = i
    out += omega(len(q) - last)
    out += "0" * (-len(out) % 8)
    return int(out, 2).to_bytes(len(out) // 8, "big")


def coder(bits=4, largest=False, coding=fixed, seed=1):
    s = 2**(bits - 1) - 1

    def encode(T, number):
        norm = max(map(abs, T)) if largest else up32(math.sqrt(math.fsum(t * t for t in T)))
        r, draws = Source(seed, number, T), []
        for _ in range(0, len(T), 2):
            u = r.uint64()
            draws += [u & 0xFFFFFFFF, u >> 32]
        per_unit = s / norm if norm else 0.0
        q = []
        for t, u in zip(T, draws):
            level = min(int(abs(t) * per_unit + u * 2.0**-32), s) if norm else 0
            q.append(-level if t < 0 else level)
        unit = f32(norm / s)
        return scalar(norm) + (fixed(q, bits) if coding == fixed else elias(q)), [f32(v * unit) if v else 0.0 for v in q]

    return encode


ONE = "0000803f"
FILES = {
    "empty": good("by hand: nothing is nothing", "qsgd", 512, coder(), [[]], want=""),
    "zeros": good("by hand: zeros of both signs have norm 0 and are 0", "qsgd", 512, coder(), [[0.0, -0.0, 0.0]], want="00000000" + "0000"),
    "alone": good("by hand: a value alone is its norm, the highest level", "qsgd(block=1)", 1, coder(), [[2.5, -2.5]], want="00002040" + "07" + "00002040" + "09"),
    "bits-2": good("by hand: of two levels by the largest magnitude, that is always 1", "qsgd(bits=2,norm=max)", 512, coder(2, True), [[1.0, 0.0, -1.0, 1.0, -1.0]], want=ONE + "71" + "03"),
    "bits-8": good("by hand: whole levels are themselves", "qsgd(bits=8,norm=max)", 512, coder(8, True), [[127.0, -127.0, 0.0, 1.0, -2.0]], want="0000fe42" + "7f8100" + "01fe"),
    "elias": good("by hand: gap 1 0, + 0, level 1 0; gap 2 100, - 1, level 1 0; gap 2 100 to the end", "qsgd(bits=2,norm=max,coding=elias)", 512, coder(2, True, elias),
                  [[1.0, 0.0, -1.0, 0.0]], want=ONE + "1280"),
    "elias-zeros": good("by hand: of seven zeros, gap 8 to the end, 1110000", "qsgd(coding=elias)", 512, coder(4, False, elias), [[0.0] * 7], want="00000000" + "e0"),
    "elias-blocks": good("reference.py: normal numbers of Python's random; every block begins a byte", "qsgd(block=30,coding=elias)", 30, coder(4, False, elias), [normals(5, 100)]),
    "elias-8": good("reference.py: normal numbers of Python's random", "qsgd(bits=8,coding=elias)", 512, coder(8, False, elias), [normals(6, 100)]),
    "bfloat16": good("reference.py: normal numbers of Python's random, as bfloat16", "qsgd", 512, coder(), [[bf16(v) for v in normals(4, 40)]], dtype="bfloat16"),
    "unsuited-nan": unsuited("by hand", "qsgd", 512, coder(), [[1.0, 0.3], ["NaN", 0.0]]),
    "unsuited-infinity": unsuited("by hand", "qsgd(norm=max)", 512, coder(4, True), [[1.0, 0.3], [0.0, "-Inf"]]),
    "unsuited-norm": unsuited("by hand: the norm is over half of the largest float32", "qsgd", 512, coder(), [[1.0, 0.3], [2.0**126, 1.75 * 2.0**126]]),
    "corrupt-empty": corrupt("by hand", "qsgd", 1, "", "values 0 to 0: it ends too early"),
    "corrupt-short": corrupt("by hand", "qsgd", 3, ONE + "00", "values 0 to 2: it ends too early"),
    "corrupt-trailing": corrupt("by hand", "qsgd", 2, ONE + "0000", "1 bytes follow its 2 values"),
    "corrupt-norm": corrupt("by hand: more than half of the largest float32", "qsgd", 1, "0000807f" + "00", "the norm is +Inf"),
    "corrupt-norm-negative": corrupt("by hand", "qsgd", 1, "000080bf" + "00", "the norm is -1"),
    "corrupt-level": corrupt("by hand: -8 is no level", "qsgd", 2, ONE + "80", "an integer is out of its bounds"),
    "corrupt-padding": corrupt("by hand: 1 beyond the last value", "qsgd", 1, ONE + "10", "bits follow the last"),
    "corrupt-elias-gap": corrupt("by hand: a gap of 3, 110, in a block of one", "qsgd(coding=elias)", 1, ONE + "c0", "gaps and levels"),
    "corrupt-elias-level": corrupt("by hand: gap 1, +, level 2 of 1", "qsgd(bits=2,coding=elias)", 1, ONE + "20", "gaps and levels"),
    "corrupt-elias-short": corrupt("by hand: nine levels of 1 take 27 bits, and three bytes are there", "qsgd(bits=2,coding=elias)", 9, ONE + "000000", "gaps and levels"),
    "corrupt-elias-padding": corrupt("by hand: gap 2 to the end, 100, and a 1", "qsgd(coding=elias)", 1, ONE + "90", "gaps and levels"),
}
for bits in 2, 4, 8:
    for largest in False, True:
        params = (["bits=%d" % bits] if bits != 4 else []) + (["norm=max"] if largest else [])
        name = "qsgd" + ("(%s)" % ",".join(params) if params else "")
        FILES["normal-%d%s" % (bits, "-max" if largest else "")] = good(
            "reference.py: normal numbers of Python's random, the same at each step, drawn anew", name, 512, coder(bits, largest), [normals(bits, 75)] * 2)
FILES["seed"] = good("reference.py: normal numbers of Python's random; every block has a number", "qsgd(block=20,seed=77)", 20, coder(seed=77), [normals(k, 50) for k in range(2)])
main(__file__, FILES)

"""What the sparse codecs' wire forms have in common, in plain Python, and how their vectors are written.

It shares nothing with the Go packages but their comments. Each codec's testdata/reference.py uses it.
"""
import os, random, struct, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../codectest"))
from vectors import *


def round_to(x, values):
    """x as it travels: the nearest of its format, the largest finite one for what lies beyond that."""
    if values == "bf16":
        b = bits32(x)
        b = (b + 0x7FFF + (b >> 16 & 1)) & 0xFFFF0000
        if b & 0x7FFFFFFF == 0x7F800000:
            b -= 1 << 16
        return struct.unpack("<f", struct.pack("<I", b))[0]
    if values == "fp16":
        x = max(-65504.0, min(65504.0, x))
        return struct.unpack("<e", struct.pack("<e", x))[0]
    return x


def pack(x, values):
    if values == "bf16":
        return struct.pack("<f", x)[2:]
    return struct.pack("<e" if values == "fp16" else "<f", x)


# Package keys: Rice.

def uvarint(n):
    out = b""
    while n >= 128:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def rice_cost(gaps, j, thirds):
    if thirds:
        return sum(((g >> j) + 2) // 3 + j + 2 for g in gaps)
    return sum((g >> j) + j + 1 for g in gaps)


def rice_divisor(keys, gaps):
    """The power of two of least cost, or three quarters or one and a half of it, if that costs less."""
    if not gaps:
        return 0, False
    mean = (keys[-1] - keys[0] - len(gaps)) // len(gaps)
    j = max(0, mean.bit_length() - 1)
    for step in (1, -1):
        while 0 <= j + step <= 63 and rice_cost(gaps, j + step, False) < rice_cost(gaps, j, False):
            j += step
    for k in range(max(2, j) - 2, j):
        if rice_cost(gaps, k, True) < rice_cost(gaps, j, False):
            return k, True
    return j, False


def rice(keys):
    if not keys:
        return b""
    gaps = [b - a - 1 for a, b in zip(keys, keys[1:])]
    j, thirds = rice_divisor(keys, gaps)
    code = ""
    for g in gaps:
        high, low = g >> j, format(g & (1 << j) - 1, "0%db" % j) if j else ""
        if thirds:
            code += "1" * (high // 3) + "0" + ["0", "10", "11"][high % 3] + low
        else:
            code += "1" * high + "0" + low
    code += "0" * (-len(code) % 8)
    return bytes([j | (64 if thirds else 0)]) + uvarint(keys[0]) + bytes(int(code[i:i + 8], 2) for i in range(0, len(code), 8))


def positions(keys):
    return uvarint(len(keys)) + rice(keys)


def pairs(sent, values="fp32"):
    """count, keys and values of a dictionary."""
    keys = sorted(sent)
    return positions(keys) + b"".join(pack(sent[k], values) for k in keys)


# Values.

def heavy(seed, n):
    r = random.Random(seed)
    return [f32(r.choice((-1, 1)) * r.expovariate(1) ** 3) for _ in range(n)]


def top(x, k):
    """The positions of the k largest magnitudes that are not zero, of equal ones the first."""
    return sorted(sorted((i for i, v in enumerate(x) if v != 0), key=lambda i: (-abs(x[i]), i))[:k])


def count(k, n):
    return min(n, max(1, int(k * n + 0.5)))


# Files.

def good(source, codec, encode, steps, block=1 << 20, feedback=False, want=None):
    """A file of steps. encode(x, step) gives the bytes of a block and what they deliver, a dictionary."""
    text = ["# from: " + source, "codec: " + codec, "dtype: float32", "expect: ok"]
    e = [0.0] * len(steps[0])
    for step, x in enumerate(steps):
        x = [f32(v) for v in x]
        T = [f32(a + b) for a, b in zip(x, e)] if feedback else x
        b, y = b"", []
        for i in range(0, len(T), block):
            part = T[i:i + block]
            code, sent = encode(part, step)
            b += code
            y += [sent.get(j, 0.0) for j in range(len(part))]
        if step == 0 and want is not None:
            assert b.hex() == want.replace(" ", ""), (source, b.hex(), want)
        text += ["elements:"] + lines(x) + ["bytes:"] + hexes(b) + ["delivered:"] + lines(y)
        if feedback:
            e = [f32(t - v) for t, v in zip(T, y)]
            text += ["residual:"] + lines(e)
    return text


def unsuited(source, codec, encode, steps, block=1 << 20):
    """A file of which the last step is unsuited: its residual stays."""
    text = good(source, codec, encode, steps[:-1], block, feedback=True)
    text[3] = "expect: unsuited"
    at = len(text) - 1 - text[::-1].index("residual:")
    return text + ["elements:"] + lines([v if isinstance(v, str) else f32(v) for v in steps[-1]]) + text[at:]

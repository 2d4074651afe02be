"""What the sparse codecs' wire forms have in common, in plain Python, and how their vectors are written.

It shares nothing with the Go packages but their comments. Each codec's testdata/reference.py uses it.
"""
import os, random, struct, sys

M64 = 2**64 - 1


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def round_to(x, values):
    """x as it travels: the nearest of its format, the largest finite one for what lies beyond that."""
    if values == "bf16":
        b = bits(x)
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


# Package rng.

GAMMA, PRIME = 0x9E3779B97F4A7C15, 0x9FB21C651E98DF25


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
    return z ^ z >> 31


def turn(lane, v):
    x = (lane ^ bits(v)) * PRIME & M64
    return (x << 29 | x >> 35) & M64


def hash_of(x):
    lanes, whole = [len(x), 1, 2, 3], len(x) // 4 * 4
    for i in range(whole):
        lanes[i % 4] = turn(lanes[i % 4], x[i])
    for v in x[whole:]:
        lanes[0] = turn(lanes[0], v)
    a, b, c, d = lanes
    return mix(mix(mix(a + GAMMA & M64) + b & M64) + c & M64) + mix(d) & M64


class Source:
    def __init__(self, state):
        self.state = state

    def uint64(self):
        self.state = self.state + GAMMA & M64
        return mix(self.state)

    def float64(self):
        return (self.uint64() >> 11) * 2.0**-53


def source_of(seed, step, x):
    return Source(mix(mix(mix(seed + GAMMA & M64) + step + GAMMA & M64) + hash_of(x) & M64))


# Values.

def normals(seed, n):
    r = random.Random(seed)
    return [f32(r.gauss(0, 1)) for _ in range(n)]


def heavy(seed, n):
    r = random.Random(seed)
    return [f32(r.choice((-1, 1)) * r.expovariate(1) ** 3) for _ in range(n)]


def top(x, k):
    """The positions of the k largest magnitudes that are not zero, of equal ones the first."""
    return sorted(sorted((i for i, v in enumerate(x) if v != 0), key=lambda i: (-abs(x[i]), i))[:k])


def count(k, n):
    return min(n, max(1, int(k * n + 0.5)))


# Files.

def lines(v):
    out, i = [], 0
    while i < len(v):
        k = 1
        while i + k < len(v) and (v[i + k], str(v[i + k])) == (v[i], str(v[i])):
            k += 1
        out.append((v[i] if isinstance(v[i], str) else v[i].hex()) + (" x %d" % k if k > 1 else ""))
        i += k
    return out


def hexes(b):
    return [b[i:i + 32].hex(" ") for i in range(0, len(b), 32)]


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


def corrupt(source, codec, n, b, why):
    return ["# from: " + source, "codec: " + codec, "dtype: float32", "n: %d" % n, "expect: corrupt, " + why, "bytes:"] + hexes(bytes.fromhex(b))


def write(files, here):
    """Writes the files beside the reference.py in here; with --check, only says which would change."""
    bad = []
    for name, text in files.items():
        path, text = os.path.join(here, name + ".txt"), "\n".join(text) + "\n"
        if "--check" not in sys.argv:
            open(path, "w").write(text)
        elif not os.path.exists(path) or open(path).read() != text:
            bad.append(name)
    bad += [f for f in os.listdir(here) if f.endswith(".txt") and f[:-4] not in files]
    if bad:
        sys.exit("not as reference.py makes them: " + " ".join(bad))

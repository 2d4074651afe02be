"""What the reference.py of codecs that code blocks of values have in common: float32 arithmetic, the random numbers of
codecs/internal/rng, and the files of golden vectors, in the format that package codectest describes.

A reference.py defines FILES, a dict of a file's name to what good, unsuited or corrupt return, and calls main(__file__,
FILES): without arguments that writes the *.txt beside it, with --check it only says which would change.
"""
import os, random, struct, sys

MASK = (1 << 64) - 1


def f32(x):  # rounds once: sums, products and quotients of two float32 are exact enough in a double
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bits32(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def scalar(x):
    return struct.pack("<f", x)


def bf16(x):
    b = bits32(x)
    b = (b + 0x7FFF + (b >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", b))[0]


def mix(z):
    z &= MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


GAMMA = 0x9E3779B97F4A7C15


class Source:
    """rng.Of, of a seed, a number and values, and rng.From, of a state."""

    def __init__(self, seed, number=None, x=None):
        if number is None:
            self.state = seed
            return
        lanes = [len(x), 1, 2, 3]
        for i, v in enumerate(x):
            k = i % 4 if i < len(x) // 4 * 4 else 0
            lane = (lanes[k] ^ bits32(v)) * 0x9FB21C651E98DF25 & MASK
            lanes[k] = (lane << 29 | lane >> 35) & MASK
        a, b, c, d = lanes
        hashed = mix(mix(mix(a + GAMMA) + b) + c) + mix(d)
        self.state = mix(mix(mix(seed + GAMMA) + number + GAMMA) + hashed)

    def uint64(self):
        self.state = self.state + GAMMA & MASK
        return mix(self.state)

    def float64(self):
        return (self.uint64() >> 11) * 2.0**-53


def normals(seed, n):
    r = random.Random(seed)
    return [r.gauss(0, 1) for _ in range(n)]


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


def good(source, codec, block, encode, steps, dtype="float32", feedback=False, want=None):
    """A file of steps. encode returns the bytes of a block of values, of which it is given the number, and what they
    decode to; want are the bytes of the first step, where they are known by hand."""
    deliver = {"float32": f32, "bfloat16": bf16}[dtype]
    text = ["# from: " + source, "codec: " + codec, "dtype: " + dtype, "expect: ok"]
    e, number = [0.0] * len(steps[0]), 0
    for x in steps:
        x = [f32(v) for v in x]
        T = [f32(a + b) for a, b in zip(x, e)] if feedback else x
        out, y = b"", []
        for i in range(0, len(T), block):
            b, v = encode(T[i:i + block], number)
            out, y, number = out + b, y + [deliver(u) for u in v], number + 1
        if want is not None:
            assert out.hex() == want, (source, out.hex(), want)
            want = None
        text += ["elements:"] + lines(x) + ["bytes:"] + hexes(out) + ["delivered:"] + lines(y)
        if feedback:
            e = [f32(t - v) for t, v in zip(T, y)]
            text += ["residual:"] + lines(e)
    return text


def unsuited(source, codec, block, encode, steps):
    """A file of one step that is well, and one of numbers or "NaN" and the like that is not."""
    text = good(source, codec, block, encode, steps[:1], feedback=True)
    text[3] = "expect: unsuited"
    residual = text[text.index("residual:"):]
    return text + ["elements:"] + [v if isinstance(v, str) else f32(v).hex() for v in steps[1]] + residual


def corrupt(source, codec, n, b, why):
    return ["# from: " + source, "codec: " + codec, "dtype: float32", "n: %d" % n, "expect: corrupt, " + why, "bytes:"] + hexes(bytes.fromhex(b))


def main(path, files):
    here, bad = os.path.dirname(os.path.abspath(path)), []
    for name, text in files.items():
        path, text = os.path.join(here, name + ".txt"), "\n".join(text) + "\n"
        if "--check" not in sys.argv:
            open(path, "w").write(text)
        elif not os.path.exists(path) or open(path).read() != text:
            bad.append(name)
    bad += [f for f in os.listdir(here) if f.endswith(".txt") and f[:-4] not in files]
    if bad:
        sys.exit("not as reference.py makes them: " + " ".join(bad))

#!/usr/bin/env python3
"""A receiver as the package comment describes it, in plain Python, without any of the package's code.

    decode.py FILE...    prints in hex what each encoding in the good vectors delivers, a line each

Codecs: lossless, by its own decode.py beside this package; int8 and int4 as the comment of package block has them.
"""
import importlib.util, os, struct, sys

HERE = os.path.dirname(os.path.abspath(__file__))
FILES, sys.argv[1:] = sys.argv[1:], []
spec = importlib.util.spec_from_file_location('lossless', os.path.join(HERE, '../../lossless/testdata/decode.py'))
lossless = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
spec.loader.exec_module(lossless)

M64 = (1 << 64) - 1


def xxh64(b):
    """xxHash64 with seed 0: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md"""
    P = [0, 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5]
    rotate = lambda x, n: (x << n | x >> (64 - n)) & M64
    lane = lambda acc, w: rotate((acc + w * P[2]) & M64, 31) * P[1] & M64
    number = lambda n: int.from_bytes(b[at:at + n], 'little')
    at, h = 0, P[5]
    if len(b) >= 32:
        acc = [(P[1] + P[2]) & M64, P[2], 0, -P[1] & M64]
        while len(b) - at >= 32:
            for i in range(4):
                acc[i] = lane(acc[i], number(8))
                at += 8
        h = sum(rotate(a, n) for a, n in zip(acc, (1, 7, 12, 18))) & M64
        for a in acc:
            h = ((h ^ lane(0, a)) * P[1] + P[4]) & M64
    h = (h + len(b)) & M64
    while len(b) - at >= 8:
        h = (rotate(h ^ lane(0, number(8)), 27) * P[1] + P[4]) & M64
        at += 8
    if len(b) - at >= 4:
        h = (rotate(h ^ number(4) * P[1] & M64, 23) * P[2] + P[3]) & M64
        at += 4
    while at < len(b):
        h = rotate(h ^ number(1) * P[5] & M64, 11) * P[1] & M64
        at += 1
    for shift, factor in ((33, P[2]), (29, P[3]), (32, 1)):
        h = (h ^ h >> shift) * factor & M64
    return h


assert xxh64(b'Nobody inspects the spammish repetition') == 0xFBCEA83C8A378BF1


def f32(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]


def bf16(x):
    b = struct.unpack('<I', struct.pack('<f', x))[0]
    return struct.unpack('<f', struct.pack('<I', (b + 0x7FFF + (b >> 16 & 1)) & 0xFFFF0000))[0]


FLOATS = {  # from bytes, to bytes; the largest finite value stands for what is larger
    'float32': (lambda b: struct.unpack('<f', b)[0], lambda x: struct.pack('<f', x), 3.4028234663852886e38, f32),
    'float64': (lambda b: struct.unpack('<d', b)[0], lambda x: struct.pack('<d', x), 1.7976931348623157e308, float),
    'float16': (lambda b: struct.unpack('<e', b)[0], lambda x: struct.pack('<e', x), 65504.0, f32),
    'bfloat16': (lambda b: struct.unpack('<f', b'\0\0' + b)[0], lambda x: struct.pack('<f', bf16(x))[2:],
                 3.3895313892515355e38, f32),
}


def integers(codec, b, n):
    """int8 and int4 of one block."""
    scale = struct.unpack('<f', b[:4])[0]
    if codec == 'int8':
        q = [v - 256 if v > 127 else v for v in b[4:]]
    else:
        q = [(v & 15) - 8 for v in b[4:]] + [(v >> 4) - 8 for v in b[4:]]
    return [f32(v * scale) for v in q[:n]]


def elements(b, size):
    return [b[i:i + size] for i in range(0, len(b), size)]


def unpredict(form, dtype, z, ref):
    if form == 1:
        return bytes(a ^ b for a, b in zip(z, ref))
    size, out = lossless.SIZES[dtype], b''
    top = 1 << (8 * size - 1)

    def place(u):  # of a float in the order of all, and back
        return u ^ (top - 1) if dtype in FLOATS and u & top else u
    for d, r in zip(elements(z, size), elements(ref, size)):
        d, r = int.from_bytes(d, 'little'), int.from_bytes(r, 'little')
        i = d // 2 if d % 2 == 0 else -(d + 1) // 2
        out += place((place(r) + i) % (2 * top)).to_bytes(size, 'little')
    return out


class Receiver:
    def __init__(self, codec, dtype, n):
        self.codec, self.dtype, self.n = codec, dtype, n
        self.version, self.held = 0, None

    def set(self, b):
        self.version, self.held = self.version + 1, b

    def decode(self, b):
        r = lossless.Reader(b)
        form = r.number(1)
        if form > 0:
            assert r.leb128() == self.version
            assert r.number(8) == xxh64(self.held)
        if form == 3:
            self.set(self.add(integers(self.codec, r.b, self.n)))
            return self.held
        size, out = self.n * lossless.SIZES[self.dtype], b''
        while len(out) < size:
            out += lossless.chunk(r, min(lossless.CHUNK, size - len(out)))
        assert not r.b
        self.set(unpredict(form, self.dtype, out, self.held) if form else out)
        return self.held

    def add(self, y):
        value, pack, most, rounded = FLOATS[self.dtype]
        out = b''
        for r, v in zip(elements(self.held, lossless.SIZES[self.dtype]), y):
            s = value(r) + v  # exact enough in a double to round once
            try:
                out += pack(max(-most, min(most, rounded(s))))
            except OverflowError:
                out += pack(most if s > 0 else -most)
        return out


def element(dtype, text):
    size = lossless.SIZES[dtype]
    if text.startswith('bits '):
        return int(text[5:], 16).to_bytes(size, 'little')
    if dtype in FLOATS:
        return FLOATS[dtype][1](float.fromhex(text) if '0x' in text else float(text))
    return (int(text) % (1 << 8 * size)).to_bytes(size, 'little')


def block(dtype, lines):
    out = b''
    for line in lines:
        number, _, times = line.partition(' x ')
        out += element(dtype, number) * int(times or 1)
    return out


def parts(path):
    header, found = {}, []
    for line in open(path).read().splitlines():
        name, colon, value = line.partition(':')
        if colon and not value and name in ('held', 'elements', 'bytes', 'delivered'):
            found.append((name, []))
        elif found:
            found[-1][1].append(line)
        else:
            header[name] = value.strip()
    return header, found


for path in FILES:
    header, found = parts(path)
    dtype = header['dtype']
    size = len(block(dtype, found[0][1]))
    receiver = Receiver(header['codec'], dtype, size // lossless.SIZES[dtype])
    for name, lines in found:
        if name == 'held':
            receiver.set(block(dtype, lines))
        elif name == 'bytes':
            print(receiver.decode(bytes.fromhex(' '.join(lines))).hex())

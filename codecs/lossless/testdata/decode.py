#!/usr/bin/env python3
"""Decodes the vectors in this directory as the package comment and RFC 8878 say, without any of the package's code.

    decode.py FILE...    prints the decoded bytes of each in hex, a line a file
"""
import sys

SIZES = {'unknown': 1, 'float32': 4, 'float64': 8, 'float16': 2, 'bfloat16': 2, 'int8': 1, 'uint8': 1, 'int16': 2,
         'uint16': 2, 'int32': 4, 'uint32': 4, 'int64': 8, 'uint64': 8}
CHUNK, WORD = 128 << 10, (1 << 64) - 1
WIDTH = {2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8}


class Reader:
    def __init__(self, b):
        self.b = b

    def take(self, n):
        assert n <= len(self.b)
        out, self.b = self.b[:n], self.b[n:]
        return out

    def number(self, n):
        return int.from_bytes(self.take(n), 'little')

    def leb128(self):
        x = shift = 0
        while True:
            c = self.number(1)
            x |= (c & 127) << shift
            shift += 7
            if c < 128:
                return x


class Backward:
    """RFC 8878, 4.1: a bit stream that is read from its end, where a 1 stands before the first bit."""

    def __init__(self, b):
        self.x = int.from_bytes(b, 'little')
        self.n = self.x.bit_length() - 1

    def bits(self, k):
        self.n -= k
        return (self.x >> self.n if self.n >= 0 else self.x << -self.n) & ((1 << k) - 1)


def fse_weights(b):
    """4.2.1.2: Huffman weights, FSE coded with two interleaved states."""
    x, at = int.from_bytes(b, 'little'), 4
    log = (x & 15) + 5
    left, probabilities = (1 << log) + 1, []
    while left > 1:  # 4.1.1
        k = left.bit_length()
        v = x >> at & ((1 << k) - 1)
        low = (1 << k) - 1 - left
        if v & ((1 << (k - 1)) - 1) < low:
            v &= (1 << (k - 1)) - 1
            at += k - 1
        else:
            at += k
            if v >= 1 << (k - 1):
                v -= low
        probabilities.append(v - 1)
        left -= abs(v - 1)
        if v == 1:
            while True:
                r = x >> at & 3
                at += 2
                probabilities += [0] * r
                if r < 3:
                    break
    size = 1 << log
    table, high = [None] * size, size - 1
    for s, p in enumerate(probabilities):
        if p == -1:
            table[high], high = s, high - 1
    pos = 0
    for s, p in enumerate(probabilities):
        for _ in range(max(p, 0)):
            table[pos] = s
            pos = (pos + (size >> 1) + (size >> 3) + 3) & (size - 1)
            while pos > high:
                pos = (pos + (size >> 1) + (size >> 3) + 3) & (size - 1)
    nxt = [1 if p == -1 else p for p in probabilities]
    states = []
    for s in table:
        n, nxt[s] = nxt[s], nxt[s] + 1
        k = log - (n.bit_length() - 1)
        states.append((s, k, (n << k) - size))
    r = Backward(b[(at + 7) // 8:])
    two = [r.bits(log), r.bits(log)]
    out, turn = [], 0
    while True:
        s, k, base = states[two[turn]]
        out.append(s)
        if r.n < k:
            out.append(states[two[1 - turn]][0])
            return out
        two[turn] = base + r.bits(k)
        turn = 1 - turn


def huffman(b, n):
    """4.2: a tree, then one stream or four."""
    r = Reader(b)
    head = r.number(1)
    if head >= 128:
        b = r.take((head - 127 + 1) // 2)
        weights = [b[i // 2] >> (4 if i % 2 == 0 else 0) & 15 for i in range(head - 127)]
    else:
        weights = fse_weights(r.take(head))
    total = sum(1 << w >> 1 for w in weights)
    log = total.bit_length()
    weights.append(((1 << log) - total).bit_length())
    table = []
    for w in range(1, log + 1):
        for s, v in enumerate(weights):
            if v == w:
                table += [(s, log + 1 - w)] * (1 << w >> 1)

    def stream(b, n):
        bits, out = Backward(b), bytearray()
        for _ in range(n):
            save = bits.n
            s, k = table[bits.bits(log)]
            bits.n = save - k
            out.append(s)
        assert bits.n == 0
        return bytes(out)
    if n < 1024:
        return stream(r.b, n)
    lengths = [r.number(2) for _ in range(3)]
    quarter = (n + 3) // 4
    return b''.join([stream(r.take(k), quarter) for k in lengths] + [stream(r.b, n - 3 * quarter)])


def coded(r, n):
    kind = r.number(1)
    if kind == 0:
        return r.take(n)
    if kind == 1:
        return r.take(1) * n
    if kind == 2:
        return huffman(r.take(r.number(3)), n)
    assert kind == 3
    base, escapes = r.number(1), r.number(3)
    packed = r.take((n + 15) // 16 * 8)
    escaped = iter(r.take(escapes))
    values = [packed[i // 16 * 8 + i % 8] >> (4 * (i // 8 % 2)) & 15 for i in range(n)]
    return bytes(next(escaped) if v == 15 else base + v for v in values)


def unhalve(low, high, h):
    """The elements' words of 2h-bit lanes from the planes of their halves."""
    m = sum(((1 << h) - 1) << i for i in range(0, 64, 2 * h))
    out = bytearray()
    for i in range(0, len(low), 8):
        a, b = (int.from_bytes(p[i:i + 8], 'little') for p in (low, high))
        out += (a & m | (b & m) << h).to_bytes(8, 'little') + (a >> h & m | b & (WORD ^ m)).to_bytes(8, 'little')
    return bytes(out)


def join(kind, p):
    width = WIDTH[kind]
    if kind == 7:
        body = unhalve(p[0], unhalve(p[1], p[2], 8), 16)
    else:
        h = 8
        while len(p) > 1:
            p = [unhalve(p[i], p[i + 1], h) for i in range(0, len(p), 2)]
            h *= 2
        body = p[0]
    if kind < 6:
        return body
    top = 4 if kind == 9 else 1  # bits that stood above the eight that are now highest
    rest = 8 * width - 8 - top
    out = bytearray()
    for i in range(0, len(body), width):
        y = int.from_bytes(body[i:i + width], 'little')
        e, t, m = y >> (8 * width - 8), y >> rest & ((1 << top) - 1), y & ((1 << rest) - 1)
        out += (t << (8 * width - top) | e << rest | m).to_bytes(width, 'little')
    return bytes(out)


def zero_map(r, n):
    if r.number(1) == 0:
        b = coded(r, (n + 7) // 8)
        return [b[i // 8] >> (i % 8) & 1 for i in range(n)]
    r, bits = Reader(r.take(r.number(3))), []
    while len(bits) < n:
        bits += [1] * r.leb128()
        if len(bits) < n:
            bits += [0] * r.leb128()
    return bits


def chunk(r, size):
    form = r.number(1)
    if form == 0:
        return r.take(size)
    if form == 1:
        return (r.take(8) * (size // 8 + 1))[:size]
    kind = form & 15
    width = WIDTH[kind]
    n = size // width
    first = r.number(width) if form & 32 else None
    present = zero_map(r, n) if form & 16 else [1] * n
    left = sum(present)
    groups = left // 8 * 8
    lengths = [2 * groups, groups, groups] if kind == 7 else [groups] * width
    mask = r.number(1)
    planes = [None if mask >> i & 1 else r.take(k) for i, k in enumerate(lengths)]
    planes = [coded(r, k) if p is None else p for p, k in zip(planes, lengths)]
    body = join(kind, planes) + r.take((left - groups) * width)
    rest = r.take(size - n * width)
    elements = (body[i:i + width] for i in range(0, len(body), width))
    out = [next(elements) if p else bytes(width) for p in present]
    if first is not None:
        total = first
        for i, e in enumerate(out):
            total = (total + int.from_bytes(e, 'little')) % (1 << 8 * width)
            out[i] = total.to_bytes(width, 'little')
    return b''.join(out) + rest


def decode(path):
    head, _, encoded = open(path).read().partition('\nbytes:\n')
    fields = dict(line.split(': ', 1) for line in head.split('\nelements:\n')[0].splitlines())
    lines = head.split('\nelements:\n')[1].split('\n')
    n = sum(int(line.split(' x ')[1]) if ' x ' in line else 1 for line in lines)
    size, r, out = n * SIZES[fields['dtype']], Reader(bytes.fromhex(encoded)), b''
    while len(out) < size:
        out += chunk(r, min(CHUNK, size - len(out)))
    assert not r.b
    return out


for path in sys.argv[1:]:
    print(decode(path).hex())

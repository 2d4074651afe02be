package udp

// A Mark is the field of an IP header by which routers tell of congestion (ECN: RFC 3168, section 5); 0: they must not.
type Mark byte

// MarkBits has all bits of a Mark.
const MarkBits Mark = 3

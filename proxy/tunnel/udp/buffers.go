package udp

import (
	"net/netip"
	"sync"
)

// Buffers of datagrams that wait for a Read, of three sizes, so that a short datagram takes little memory and many long
// ones need no copy.
var buffers = [...]struct {
	size int
	pool sync.Pool
}{{size: 2 << 10}, {size: 16 << 10}, {size: readBuffer}}

// A buffer is one of buffers.
type buffer struct {
	class int
	data  []byte
}

// newBuffer returns a buffer that holds n bytes, readBuffer at most. The last bytes in it are somebody's.
func newBuffer(n int) *buffer {
	class := 0
	for buffers[class].size < n {
		class++
	}
	if b, ok := buffers[class].pool.Get().(*buffer); ok {
		return b
	}
	return &buffer{class, make([]byte, buffers[class].size)}
}

// release gives a buffer back, which its holder must not use any more.
func (b *buffer) release() { buffers[b.class].pool.Put(b) }

// An arrived is datagrams that came together: all have the same length, but that the last may be shorter.
type arrived struct {
	buffer *buffer // nil: the memory is the Conn's own
	rest   []byte
	each   int
	mark   Mark
	path   *path // by which they came; nil: by the connection's own
}

// newArrived returns the datagrams that one read has brought, with the control messages oob.
func newArrived(data, oob []byte) (a arrived) {
	a.rest = data
	if a.each, a.mark = arrival(oob); a.each <= 0 {
		a.each = max(len(data), 1)
	}
	return a
}

// A path is the address of the dialing side from which datagrams come, and the control message by which datagrams to it
// leave from the address of this host to which they came; nil: the kernel chooses that.
type path struct {
	far    netip.AddrPort
	source []byte
}

// next takes the first datagram.
func (a *arrived) next() (d []byte, more bool) {
	d = a.rest[:min(a.each, len(a.rest))]
	a.rest = a.rest[len(d):]
	return d, len(a.rest) > 0
}

// some reports whether is holds for one of the datagrams. It ends with the first error.
func (a arrived) some(is func(d []byte) (bool, error)) (ok bool, err error) {
	for len(a.rest) > 0 && !ok && err == nil {
		d, _ := a.next()
		ok, err = is(d)
	}
	return ok, err
}

// count returns how many datagrams there are.
func (a *arrived) count() uint64 { return uint64((len(a.rest) + a.each - 1) / a.each) }

package reference

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/tensor"
)

// A Copy is the latest value of one block that both ends hold, with its version and a hash. Both ends must set
// it to the same values in the same order, so at each end one coder or caller at a time does. Any number of coders, of
// either direction, may read it meanwhile.
type Copy struct {
	size int

	mu     sync.RWMutex
	latest uint64  // version of the latest value; 0: there is none
	values []value // version v is at v % len(values)
}

// A value is immutable while its Copy's lock is held for reading.
type value struct {
	version uint64 // 0: none
	hash    uint64
	bytes   []byte // nil until there is a value
}

// NewCopy returns a Copy of a block of size bytes, which holds nothing yet. It keeps so many earlier values besides the
// latest one: 0 where a block is coded against the value before it in the same direction. For a reverse reference, the
// end that sends a model may have sent another before the update arrives that was coded against the first: there keep
// must be the number of models that can be under way, or the update is refused with ErrReference. The end that codes
// the update needs none.
func NewCopy(size, keep int) *Copy {
	return &Copy{size: size, values: make([]value, 1+keep)}
}

// Set makes b the latest value. Coders set delivered values; the caller must do it, at both ends, with a block that
// travelled exactly. It does not retain b and panics unless b has the block's size.
func (c *Copy) Set(b []byte) {
	if len(b) != c.size {
		panic(fmt.Sprintf("reference: a value of %d bytes for a copy of %d", len(b), c.size))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest++
	v := &c.values[c.latest%uint64(len(c.values))]
	if v.bytes == nil {
		v.bytes = make([]byte, c.size)
	}
	copy(v.bytes, b)
	v.version, v.hash = c.latest, xxhash.Sum64(v.bytes)
}

// RelativeError returns the norm of the difference between value and the latest value's first elements, of type d, over
// the norm of value: how much of it the other end lacks. It is 0 where nothing is lacking, and +Inf where only value is
// zero, or c holds nothing.
func (c *Copy) RelativeError(d tensor.DType, value []byte) float64 {
	latest := c.acquire()
	defer c.release()
	if latest == nil {
		return math.Inf(1)
	}
	const piece = 256 // elements
	var want, held [piece]float32
	var lacks, norm float64
	size := d.Size()
	for off := 0; off < len(value); {
		n := min((len(value)-off)/size, piece)
		tensor.ToFloat32(want[:n], value[off:off+n*size], d)
		tensor.ToFloat32(held[:n], latest.bytes[off:off+n*size], d)
		for i, x := range want[:n] {
			e := float64(x) - float64(held[i])
			lacks += e * e
			norm += float64(x) * float64(x)
		}
		off += n * size
	}
	if lacks == 0 {
		return 0
	}
	return math.Sqrt(lacks / norm)
}

// Keep makes c keep so many earlier values besides the latest one from now on. It forgets earlier values beyond that
// number.
func (c *Copy) Keep(keep int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.values
	c.values = make([]value, 1+keep)
	for _, v := range old {
		if v.version != 0 && c.latest-v.version <= uint64(keep) {
			c.values[v.version%uint64(len(c.values))] = v
		}
	}
}

// acquire returns the latest value, which stays as it is until release; nil if there is none. release must be called
// either way.
func (c *Copy) acquire() *value {
	c.mu.RLock()
	if c.latest == 0 {
		return nil
	}
	return &c.values[c.latest%uint64(len(c.values))]
}

func (c *Copy) release() { c.mu.RUnlock() }

// find returns the value that an encoding names, or an error that wraps ErrReference. The caller holds the lock, by
// acquire.
func (c *Copy) find(version, hash uint64) (*value, error) {
	v := &c.values[version%uint64(len(c.values))]
	switch {
	case version == 0 || v.version != version:
		return nil, fmt.Errorf("%w: coded against version %d; here the latest is %d, with %d before it kept",
			ErrReference, version, c.latest, len(c.values)-1)
	case v.hash != hash:
		return nil, fmt.Errorf("%w: version %d has hash %016x there and %016x here", ErrReference, version, hash, v.hash)
	}
	return v, nil
}

// appendName appends the version and hash that find takes.
func (v *value) appendName(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(dst, v.version), v.hash)
}

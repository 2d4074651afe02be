package proxy

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gradproxy/gradproxy/tensor"
)

// What senders remember of tensors that may lose something: the residual that error feedback carries from value to value,
// and the last value, which the next is compared with. It belongs to the tensor (job and key) and not to a connection.

// memories holds the tensors' memories, up to a number of bytes. Beyond it the one that was used least recently is
// forgotten: its residual is lost, and its next value travels exactly, since there is nothing to compare it with. Of
// sparse tensors the rows that were used least recently are.
type memories struct {
	mu       sync.Mutex
	limit    int64
	bytes    int64
	tick     uint64 // of the last use
	byKey    map[memoryKey]*list.Element
	recent   list.List // of *memory, the most recently used first
	rows     map[rowKey]*rowMemory
	lost     func(n int)
	lostRows func(n int)   // may be nil
	short    bool          // the limit was too little once
	changes  atomic.Uint64 // of residuals that are saved
}

type memoryKey struct {
	job string
	key uint64
}

// A memory is one tensor's. Senders hold mu while they read or change what is below it.
type memory struct {
	memoryKey
	dtype tensor.DType
	size  int       // bytes of the tensor
	lasts bool      // it outlives the connection, and the process
	used  uint64    // tick of the last use; guarded by among.mu
	among *memories // which it counts its changes for

	mu       sync.Mutex
	residual []float32     // by element; zero where nothing is owed
	last     []byte        // what is kept of the last value (tensor.Keep), as far as it came
	values   int           // how many have come
	blocks   []blockMemory // of which last holds a value: in order, none over another
}

// A blockMemory is a block's place in its tensor, in bytes, and whether its values look like what they should be.
type blockMemory struct {
	off, n int
	trust  tensor.Trust
}

// least is the mean length in bytes of the blocks of a large tensor that are remembered; of shorter ones there would be
// too many, and some travel exactly.
const least = 256

// mostBlocks bounds the blocks that are remembered of a tensor.
func mostBlocks(size int) int { return 64 + size/least }

func newMemories(limit int64, lost func(n int)) *memories {
	return &memories{limit: limit, byKey: map[memoryKey]*list.Element{}, rows: map[rowKey]*rowMemory{}, lost: lost}
}

// cost returns the bytes that a tensor's memory takes at most: residual, last value, blocks (24 bytes each), and itself.
func cost(d tensor.DType, size int) int64 {
	return 4*int64(size/d.Size()) + int64(tensor.KeptSize(d, size)) + 24*int64(mostBlocks(size)) + 512
}

func (m *memory) cost() int64 { return cost(m.dtype, m.size) }

// newMemory returns an empty memory.
func (ms *memories) newMemory(k memoryKey, d tensor.DType, size int, lasts bool) *memory {
	m := &memory{memoryKey: k, dtype: d, size: size, lasts: lasts, among: ms}
	m.residual, m.last = together(size/d.Size(), tensor.KeptSize(d, size))
	return m
}

// together returns memory for floats and bytes that lies side by side, in as few pages as can be.
func together(floats, bytes int) ([]float32, []byte) {
	v := largePages(make([]float32, floats+(bytes+3)/4))
	return v[:floats:floats], unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v[floats:]))), bytes)
}

// of returns the memory of t, which is new if there was none or if size or type have changed. It is nil if t alone is
// larger than the limit.
func (ms *memories) of(job string, t tensor.Tensor, lasts bool) *memory {
	k := memoryKey{job, t.Key}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if e := ms.byKey[k]; e != nil {
		m := e.Value.(*memory)
		if m.dtype == t.DType && m.size == t.Size {
			ms.recent.MoveToFront(e)
			m.used = ms.now()
			return m
		}
		ms.forget(e)
	}
	if cost(t.DType, t.Size) > ms.limit {
		ms.short = true
		return nil
	}
	m := ms.newMemory(k, t.DType, t.Size, lasts)
	ms.add(m)
	return m
}

// add takes in a memory, and forgets others to make room. ms.mu is held.
func (ms *memories) add(m *memory) {
	m.used = ms.now()
	ms.byKey[m.memoryKey] = ms.recent.PushFront(m)
	ms.bytes += m.cost()
	ms.room(0)
}

// now returns the next tick. ms.mu is held.
func (ms *memories) now() uint64 {
	ms.tick++
	return ms.tick
}

// room forgets what was used least recently, tensors and rows, until n more bytes are within the limit or nothing is left.
// ms.mu is held.
func (ms *memories) room(n int64) {
	for ms.bytes+n > ms.limit {
		ms.short = true
		rows, e := ms.leastRecentRows(), ms.recent.Back()
		switch {
		case e != nil && (rows == nil || e.Value.(*memory).used < rows.leastRecent()):
			ms.forget(e)
		case rows == nil:
			return
		case len(rows.rows) > 0:
			rows.evict()
		default:
			ms.forgetRows(rows)
		}
	}
}

// forget drops a memory. Encoders that still hold its residual go on with it until the tensor's next value.
func (ms *memories) forget(e *list.Element) {
	m := ms.recent.Remove(e).(*memory)
	delete(ms.byKey, m.memoryKey)
	ms.bytes -= m.cost()
	m.changed()
	ms.lost(1)
}

// drop forgets m, if it is still what is remembered of its tensor.
func (ms *memories) drop(m *memory) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if e := ms.byKey[m.memoryKey]; e != nil && e.Value.(*memory) == m {
		ms.forget(e)
	}
}

func (ms *memories) wasShort() bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.short
}

// lasting returns the memories that outlive their connections, the most recently used first.
func (ms *memories) lasting() (found []*memory) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for e := ms.recent.Front(); e != nil; e = e.Next() {
		if m := e.Value.(*memory); m.lasts {
			found = append(found, m)
		}
	}
	return found
}

// restore takes in memories that were saved, the most recently used first, of tensors that nothing is known of yet.
func (ms *memories) restore(saved []*memory) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for _, m := range slices.Backward(saved) {
		if ms.byKey[m.memoryKey] == nil {
			ms.add(m)
		}
	}
}

// changed notes that the residual is about to change, or is gone.
func (m *memory) changed() {
	if m.lasts {
		m.among.changes.Add(1)
	}
}

// begin notes that the next value comes, and reports whether it is one that pays what is owed, as every so many do.
func (m *memory) begin(every int) (pays bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values++
	return every > 0 && m.values%every == 0
}

// check compares a block with the tensor's last value, reports whether it may lose something, and keeps it as the last.
// first says that there was nothing to compare it with.
func (m *memory) check(off int, block []byte) (plausible, first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.last[tensor.KeptSize(m.dtype, off):tensor.KeptSize(m.dtype, off+len(block))]
	b := m.block(off, len(block))
	if b == nil {
		b, first = m.cut(off, len(block))
	}
	if b == nil || first {
		tensor.Keep(m.dtype, last, block)
		return false, first
	}
	return b.trust.CheckKept(m.dtype, block, last), false
}

// from returns the place of the first block that ends after off.
func (m *memory) from(off int) int {
	i, _ := slices.BinarySearchFunc(m.blocks, off, func(b blockMemory, off int) int {
		if b.off+b.n <= off {
			return -1
		}
		return 1
	})
	return i
}

// block returns the block at exactly that place, or nil.
func (m *memory) block(off, n int) *blockMemory {
	if i := m.from(off); i < len(m.blocks) && m.blocks[i].off == off && m.blocks[i].n == n {
		return &m.blocks[i]
	}
	return nil
}

// cut makes a block there in place of those that it lies over, as when another codec cuts the tensor. Trust that one of
// them has lost stays lost. first says that the block has bytes that none of them had; nil: there are too many blocks.
func (m *memory) cut(off, n int) (made *blockMemory, first bool) {
	i := m.from(off)
	b, j, known := blockMemory{off: off, n: n}, i, off // bytes up to known lie in blocks
	for ; j < len(m.blocks) && m.blocks[j].off < off+n; j++ {
		if t := m.blocks[j].trust; t.Lost() {
			b.trust = t
		}
		if m.blocks[j].off <= known {
			known = m.blocks[j].off + m.blocks[j].n
		}
	}
	if i == j && len(m.blocks) >= mostBlocks(m.size) {
		return nil, true
	}
	m.blocks = slices.Replace(m.blocks, i, j, b)
	return &m.blocks[i], known < off+n
}

// residualOf returns the part of the residual that belongs to a block.
func (m *memory) residualOf(off, bytes int) []float32 {
	e := m.dtype.Size()
	return m.residual[off/e : (off+bytes)/e]
}

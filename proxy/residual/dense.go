package residual

import (
	"slices"
	"time"
	"unsafe"

	"github.com/gradproxy/gradproxy/codecs/feedback"
	"github.com/gradproxy/gradproxy/tensor"
)

type denseKey struct {
	job string
	key uint64
}

// A Dense is the memory of one dense tensor. Senders hold mu while they read or change the fields below it.
type Dense struct {
	denseKey
	dtype   tensor.DType
	size    int         // bytes of the tensor
	lasting bool        // it outlives the connection, and the process
	origin  uint64      // of the tensor, 0: not known; guarded by ledger.mu
	expires time.Time   // once its connection has ended: when it is forgotten; guarded by ledger.mu
	expiry  *time.Timer // until then; guarded by ledger.mu
	used    uint64      // tick of the last use; guarded by ledger.mu
	ledger  *ledger

	forgotten bool // it is not the memory of its tensor any more; guarded by ledger.mu

	mu       lock
	residual []float32          // by element; zero where nothing was lost
	last     []byte             // the kept part of the last value (tensor.Keep), as far as it came
	controls []feedback.Control // of the blocks that begin in each span
	values   int                // that have come
	blocks   []denseBlock       // the blocks that field last holds a value of: in order, without overlap
}

// A denseBlock is a block's place in its tensor, in bytes, and whether its values look like a gradient's.
type denseBlock struct {
	off, n  int
	trust   tensor.Trust
	history *tensor.History // nil: the block is short, or the tensor has too many
}

// maxHistories bounds the blocks of a tensor that have a History.
const maxHistories = 8

// minBlock is the mean length in bytes of the blocks of a large tensor that are remembered; of shorter blocks there
// would be too many, and some travel exactly.
const minBlock = 256

// maxBlocks bounds the blocks that are remembered of a tensor.
func maxBlocks(size int) int { return 64 + size/minBlock }

// denseCost returns the bytes that a tensor's memory takes at most: residual, last value, blocks (32 bytes each),
// Histories, Controls (32 bytes each), and itself.
func denseCost(d tensor.DType, size int) int64 {
	histories := min(maxHistories, size/d.Size()/tensor.MinHistory)
	return 4*int64(size/d.Size()) + int64(tensor.KeptSize(d, size)) + 32*int64(maxBlocks(size)) + int64(histories*tensor.HistorySize) + 32*int64(spans(size)) + 512
}

// controlSpan is how many bytes of a tensor have one Control. The blocks that begin there are encoded under it.
const controlSpan = 256 << 10

func spans(size int) int { return size/controlSpan + 1 }

func (d *Dense) cost() int64 { return denseCost(d.dtype, d.size) }

// newDense returns an empty memory.
func newDense(l *ledger, k denseKey, t tensor.DType, size int, lasting bool) *Dense {
	d := &Dense{denseKey: k, dtype: t, size: size, lasting: lasting, ledger: l, controls: make([]feedback.Control, spans(size))}
	d.residual, d.last = sideBySide(size/t.Size(), tensor.KeptSize(t, size))
	return d
}

// sideBySide returns memory for floats and bytes that lies side by side, in as few pages as can be.
func sideBySide(floats, bytes int) ([]float32, []byte) {
	v := largePages(make([]float32, floats+(bytes+3)/4))
	return v[:floats:floats], unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v[floats:]))), bytes)
}

// Lock locks the residual, which is about to change. An encoder with feedback must not run without it: a connection
// that takes the place of a broken one may have the same tensors.
func (d *Dense) Lock() {
	d.mu.Lock()
	d.changed()
}

// Unlock ends a change.
func (d *Dense) Unlock() { d.mu.Unlock() }

// changed notes that the residual is about to change, or is gone.
func (d *Dense) changed() {
	if d.lasting {
		d.ledger.changes.Add(1)
	}
}

// Begin notes that the next value comes, and reports whether a residual flush is due with it: every so many values, or
// never if every is 0.
func (d *Dense) Begin(every int) (flush bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.values++
	return every > 0 && d.values%every == 0
}

// Check is the content check: it compares a block with the tensor's last values, and keeps the block as the last value.
// The block may lose something if the verdict is tensor.Fits. If presumed is set the tensor need not earn trust, and
// the block is compared with the last value only. first says that there was nothing to compare the block with. placed
// is the Placed of the block's tensor.
func (d *Dense) Check(off int, block []byte, presumed bool, placed *tensor.Placement) (v tensor.Verdict, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.last[tensor.KeptSize(d.dtype, off):tensor.KeptSize(d.dtype, off+len(block))]
	b := d.block(off, len(block))
	if b == nil {
		b, first = d.cut(off, len(block))
	}
	if b == nil || first {
		tensor.Keep(d.dtype, last, block)
		return tensor.Unproved, first
	}
	if presumed {
		b.trust.Presume()
		return b.trust.Judge(d.dtype, block, last, nil), false
	}
	return placed.Judge(b.trust.Judge(d.dtype, block, last, b.history), d.dtype, block, off), false
}

// SampleResidual returns the elements of the residual of a block at the places of a tensor.Contribution.
func (d *Dense) SampleResidual(part []float32) tensor.Sample {
	d.mu.Lock()
	defer d.mu.Unlock()
	return tensor.SampleResidual(part)
}

// from returns the place of the first block that ends after off.
func (d *Dense) from(off int) int {
	i, _ := slices.BinarySearchFunc(d.blocks, off, func(b denseBlock, off int) int {
		if b.off+b.n <= off {
			return -1
		}
		return 1
	})
	return i
}

// block returns the block at exactly that place, or nil.
func (d *Dense) block(off, n int) *denseBlock {
	if i := d.from(off); i < len(d.blocks) && d.blocks[i].off == off && d.blocks[i].n == n {
		return &d.blocks[i]
	}
	return nil
}

// cut makes a block there in place of the blocks that it lies over, as when another codec cuts the tensor. It has no
// more trust than each of them. first says that the block has bytes that none of them had, and then it has none; made
// is nil if there are too many blocks.
func (d *Dense) cut(off, n int) (made *denseBlock, first bool) {
	i := d.from(off)
	b, j, known := denseBlock{off: off, n: n}, i, off // bytes up to known lie in blocks
	for ; j < len(d.blocks) && d.blocks[j].off < off+n; j++ {
		if t := d.blocks[j].trust; j == i {
			b.trust = t
		} else {
			b.trust = b.trust.Joint(t)
		}
		if d.blocks[j].off <= known {
			known = d.blocks[j].off + d.blocks[j].n
		}
	}
	if i == j && len(d.blocks) >= maxBlocks(d.size) {
		return nil, true
	}
	if first = known < off+n; first {
		b.trust = tensor.Trust{}.Joint(b.trust)
	}
	d.blocks = slices.Replace(d.blocks, i, j, b)
	if d.histories() < maxHistories {
		d.blocks[i].history = tensor.NewHistory(n / d.dtype.Size())
	}
	return &d.blocks[i], first
}

// histories returns the number of blocks that have a History.
func (d *Dense) histories() (n int) {
	for i := range d.blocks {
		if d.blocks[i].history != nil {
			n++
		}
	}
	return n
}

// Part returns the part of the residual that belongs to a block. It may be read or written under Lock only.
func (d *Dense) Part(off, bytes int) []float32 {
	e := d.dtype.Size()
	return d.residual[off/e : (off+bytes)/e]
}

// Control returns the Control of the block at off. It may be used under Lock only.
func (d *Dense) Control(off int) *feedback.Control { return &d.controls[off/controlSpan] }

// Guarded counts a value of the block at off, and reports whether the block should travel exactly, with its residual,
// since the receiver is too far behind.
func (d *Dense) Guarded(off int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Control(off).Exact()
}

package tunnel

import (
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

// maxSealedBlocks is how many blocks a batch has at most. It has more than one only while more is due than one block,
// as where one core does not seal and send as fast as the path carries.
const maxSealedBlocks = 8

// A sealedWriter seals packets in the memory where they were made, and sends many with one call. Where many are due,
// cores that are idle seal some of them. It must not be used concurrently.
type sealedWriter struct {
	conn batchWriter
	seal *sealer

	first  *sealedBlock   // is kept from batch to batch; nil: there was none yet
	blocks []*sealedBlock // of the batch
	units  [maxUnits]sealedUnit
	cut    int // units of the batch
	from   int // of the last block's records, the first behind them,
	at     int // and where it lies
	err    error

	policy spreadPolicy
	began  time.Time    // the batch
	large  bool         // the policy was asked
	asked  chan *spread // the workers to ask for the batch; nil: none
	spread *spread      // nil: none was asked
}

// A batchWriter sends datagrams as udp.Conn does.
type batchWriter interface {
	WriteBatch(b []byte, each int, mark udp.Mark) error
}

// A sealedBlock is records that lie side by side, and leave with one call where they have one mark and one length. Then
// it is filled as far as a call takes them.
type sealedBlock struct {
	out   []byte
	sizes []int // of the records
	marks []udp.Mark
}

func newSealedBlock() *sealedBlock {
	return &sealedBlock{out: make([]byte, 0, udp.MaxBatchBytes+dtlsDatagramBytes)}
}

// sealedBlocks has the blocks behind the first of each batch.
var sealedBlocks = sync.Pool{New: func() any { return newSealedBlock() }}

// full reports whether a call might not take a further packet.
func (b *sealedBlock) full() bool {
	n := len(b.sizes)
	return n == udp.MaxBatch || n > 0 && len(b.out)+b.sizes[n-1] > udp.MaxBatchBytes
}

func (b *sealedBlock) reset() { b.out, b.sizes, b.marks = b.out[:0], b.sizes[:0], b.marks[:0] }

// A sealedUnit is records of a block that one core seals.
type sealedUnit struct {
	block   *sealedBlock
	from    int // of the block's records
	out     []byte
	sizes   []int
	scratch recordScratch
}

// Overhead returns how many bytes a record adds to a packet.
func (w *sealedWriter) Overhead() int { return w.seal.overhead() }

// Room returns where the next packet is to be written, empty, with room for the longest; nil: Flush must come first.
func (w *sealedWriter) Room() []byte {
	if len(w.blocks) == 0 {
		if w.first == nil {
			w.first = newSealedBlock()
		}
		w.next(w.first)
		w.began = time.Now()
	}
	b := w.last()
	if b.full() {
		if !w.more() {
			return nil
		}
		b = w.last()
	}
	at := len(b.out) + w.seal.header()
	return b.out[at:at:cap(b.out)]
}

// next has records go to a further block.
func (w *sealedWriter) next(b *sealedBlock) {
	w.blocks = append(w.blocks, b)
	w.from, w.at = 0, 0
}

func (w *sealedWriter) last() *sealedBlock { return w.blocks[len(w.blocks)-1] }

// more begins a further block, and reports whether the batch may have one.
func (w *sealedWriter) more() bool {
	w.cutUnit()
	if len(w.blocks) == 1 {
		w.asked, w.large = w.policy.begin(w.began), true
	}
	if w.asked == nil || len(w.blocks) == maxSealedBlocks {
		return false
	}
	w.next(sealedBlocks.Get().(*sealedBlock))
	return true
}

// Put takes a packet that was written at the last Room. It leaves with a mark.
func (w *sealedWriter) Put(packet []byte, mark udp.Mark) {
	b := w.last()
	at, size := len(b.out), w.seal.overhead()+len(packet)
	if _, err := w.seal.number(dtlsData, b.out[at:at+size-suiteTag-w.seal.inner():at+size]); err != nil {
		w.err = err
		return
	}
	b.out = b.out[:at+size]
	b.sizes, b.marks = append(b.sizes, size), append(b.marks, mark)
	if len(b.out)-w.at >= unitBytes {
		w.cutUnit()
	}
}

// cutUnit makes a unit of the records that are in none. Units are sealed from the moment on in which there are enough
// of them for two cores.
func (w *sealedWriter) cutUnit() {
	b := w.last()
	n := len(b.sizes)
	if w.from == n {
		return
	}
	w.units[w.cut] = sealedUnit{block: b, from: w.from, out: b.out[w.at:], sizes: b.sizes[w.from:n:n]}
	w.cut++
	w.from, w.at = n, len(b.out)
	if w.spread == nil && len(w.blocks) > 1 && w.cut >= minSpread {
		w.spread = newSpread(w.asked, w.encrypt)
	}
	if w.spread != nil {
		w.spread.offer(w.cut)
	}
}

// encrypt seals the records of a unit.
func (w *sealedWriter) encrypt(unit int) {
	u := &w.units[unit]
	at := 0
	for _, size := range u.sizes {
		w.seal.encrypt(u.out[at:at+size-suiteTag:at+size], &u.scratch)
		at += size
	}
}

// Flush sends the packets.
func (w *sealedWriter) Flush() error {
	if len(w.blocks) == 0 {
		return nil
	}
	w.cutUnit()
	defer w.reset()
	if w.err != nil {
		return w.err
	}
	sealed := 0 // units, the first ones
	for _, b := range w.blocks {
		at, from, first := 0, 0, 0 // of the next record, and of the first that leaves with it
		for i, size := range b.sizes {
			if n := i - first; n > 0 && (b.marks[i] != b.marks[first] || b.sizes[i-1] != b.sizes[first] || size > b.sizes[first] || at+size-from > udp.MaxBatchBytes) {
				sealed = w.sealUntil(sealed, b, i)
				if err := w.conn.WriteBatch(b.out[from:at], b.sizes[first], b.marks[first]); err != nil {
					return err
				}
				from, first = at, i
			}
			at += size
		}
		if at == from {
			continue
		}
		sealed = w.sealUntil(sealed, b, len(b.sizes))
		if err := w.conn.WriteBatch(b.out[from:at], b.sizes[first], b.marks[first]); err != nil {
			return err
		}
	}
	return nil
}

// sealUntil returns when the records of a block before the one at end are sealed, and how many units are. At first
// sealed ones are.
func (w *sealedWriter) sealUntil(sealed int, b *sealedBlock, end int) int {
	for ; sealed < w.cut; sealed++ {
		if sealed > 0 {
			if last := &w.units[sealed-1]; last.block == b && last.from+len(last.sizes) >= end {
				break
			}
		}
		if w.spread != nil {
			w.spread.finish(sealed)
		} else {
			w.encrypt(sealed)
		}
	}
	return sealed
}

// reset ends the batch. Nobody uses its memory any more.
func (w *sealedWriter) reset() {
	if w.spread != nil {
		w.spread.end()
	}
	if w.large {
		took := time.Since(w.began)
		w.policy.learn(w.began.Add(took), w.cut, took, w.spread != nil && w.spread.slow)
	}
	w.spread = nil
	for i, b := range w.blocks {
		b.reset()
		if i > 0 {
			sealedBlocks.Put(b)
		}
		w.blocks[i] = nil
	}
	w.blocks, w.cut, w.large, w.err = w.blocks[:0], 0, false, nil
}

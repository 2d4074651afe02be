package tunnel

import (
	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

// A sealedWriter seals packets where they were made, and sends many with one call. It must not be used concurrently.
type sealedWriter struct {
	conn  *udp.Conn
	seal  *sealer
	out   []byte // records, side by side
	sizes []int  // of the records
	marks []udp.Mark
}

// Overhead returns how many bytes a record adds to a packet.
func (w *sealedWriter) Overhead() int { return w.seal.overhead() }

// Room returns where the next packet is to be written, empty, with room for the longest; nil: Flush must come first.
func (w *sealedWriter) Room() []byte {
	if w.out == nil {
		w.out = make([]byte, 0, udp.MaxBatchBytes+dtlsDatagramBytes)
	}
	at := len(w.out) + w.seal.header()
	if len(w.sizes) == udp.MaxBatch || len(w.out)+dtlsDatagramBytes > cap(w.out) {
		return nil
	}
	return w.out[at:at:cap(w.out)]
}

// Put takes a packet that was written at the last Room. It leaves with a mark.
func (w *sealedWriter) Put(packet []byte, mark udp.Mark) {
	size := w.seal.overhead() + len(packet)
	w.out = w.out[:len(w.out)+size]
	w.sizes, w.marks = append(w.sizes, size), append(w.marks, mark)
}

// Flush sends the packets.
func (w *sealedWriter) Flush() error {
	defer func() { w.out, w.sizes, w.marks = w.out[:0], w.sizes[:0], w.marks[:0] }()
	at, from, first := 0, 0, 0 // of the next record, and of the first that leaves with it
	for i, size := range w.sizes {
		if n := i - first; n > 0 && (w.marks[i] != w.marks[first] || w.sizes[i-1] != w.sizes[first] || size > w.sizes[first] || at+size-from > udp.MaxBatchBytes) {
			if err := w.conn.WriteBatch(w.out[from:at], w.sizes[first], w.marks[first]); err != nil {
				return err
			}
			from, first = at, i
		}
		record := w.out[at : at+size-suiteTag-w.seal.inner() : at+size]
		if _, err := w.seal.record(dtlsData, record); err != nil {
			return err
		}
		at += size
	}
	if at == from {
		return nil
	}
	return w.conn.WriteBatch(w.out[from:at], w.sizes[first], w.marks[first])
}

package proxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"slices"

	"github.com/gradproxy/gradproxy/tensor"
)

// Residuals outlive the process where their tensors do (parser.Traits): SaveResiduals and LoadResiduals. What is saved is as
// old as the save; the job's sums then lack, once, what was owed since. No tensors of Gloo outlive a connection.
//
// The file: "gpresid1", then entries of a kind (1) and what belongs to it, then 0 and the CRC-32C of all bytes before it
// (4). Lengths, sizes and counts are varints, the rest is little-endian. The entries:
//
//	1  a tensor that is owed something: job (length, text), key(8), dtype(1), size, and the residual's float32 values
//	2  rows of a sparse tensor that are owed something: job, key of the index(8), dtype(1), elements of a row, count, then
//	   for each its id(8) and float32 values. Of one tensor there may be several; of a row that is there twice, the last counts
const savedMagic = "gpresid1"

// Kinds of entries.
const (
	savedEnd = iota
	savedTensor
	savedRows
)

// ErrSaved is wrapped by the error of LoadResiduals for a file that is damaged or of another version. Nothing is loaded
// from it.
var ErrSaved = errors.New("proxy: saved residuals cannot be used")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ResidualChanges counts the changes of what SaveResiduals writes. While it is what it was before a save, that save is up
// to date.
func (p *Proxy) ResidualChanges() uint64 { return p.memories.changes.Load() }

// SaveResiduals writes what is owed to tensors that outlive their connections. It copies one tensor at a time, so that
// senders never wait for w. What it writes is never longer than Config.Residuals.
func (p *Proxy) SaveResiduals(w io.Writer) error {
	sum := crc32.New(castagnoli)
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<16)
	out.WriteString(savedMagic)
	var buf []byte
	for _, m := range p.memories.lasting() {
		if buf = m.appendSaved(buf[:0]); buf == nil {
			continue
		}
		if _, err := out.Write(buf); err != nil {
			return err
		}
	}
	if err := p.memories.saveRows(out); err != nil {
		return err
	}
	out.WriteByte(savedEnd)
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// appendSaved appends m as the file has it, or returns nil if nothing is owed.
func (m *memory) appendSaved(buf []byte) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.ContainsFunc(m.residual, func(owed float32) bool { return owed != 0 }) {
		return nil
	}
	buf = append(buf, savedTensor)
	buf = appendText(buf, m.job)
	buf = binary.LittleEndian.AppendUint64(buf, m.key)
	buf = append(buf, byte(m.dtype))
	buf = binary.AppendUvarint(buf, uint64(m.size))
	at := len(buf)
	buf = slices.Grow(buf, 4*len(m.residual))[:at+4*len(m.residual)]
	tensor.FromFloat32(buf[at:], m.residual, tensor.Float32)
	return buf
}

// LoadResiduals reads what SaveResiduals wrote. Tensors that have come since keep what they have. It remembers no more
// than Config.Residuals allows, whatever r holds.
func (p *Proxy) LoadResiduals(r io.Reader) error {
	in := &savedReader{r: bufio.NewReaderSize(r, 1<<16), sum: crc32.New(castagnoli)}
	if magic := in.next(len(savedMagic)); string(magic) != savedMagic {
		return fmt.Errorf("%w: not a file of residuals of this version", ErrSaved)
	}
	var found []*memory
	rows := savedArrays{}
	left := p.memories.limit
	kind := in.byte()
	for n := 1; kind == savedTensor || kind == savedRows; n++ {
		var err error
		if kind == savedRows {
			err = in.rows(rows, &left)
		} else {
			var m *memory
			if m, err = in.memory(p.memories, left); err == nil {
				left -= m.cost()
				found = append(found, m)
			}
		}
		if err != nil {
			return fmt.Errorf("%w: tensor %d %w", ErrSaved, n, err)
		}
		kind = in.byte()
	}
	want := in.sum.Sum32()
	if got := in.next(4); in.err != nil || kind != savedEnd || binary.LittleEndian.Uint32(got) != want {
		return fmt.Errorf("%w: the file is cut short or damaged", ErrSaved)
	}
	p.memories.restore(found)
	p.memories.restoreRows(rows)
	return nil
}

var (
	errDamaged = errors.New("is damaged")
	errNoRoom  = errors.New("is more than may be remembered")
)

// memory reads one tensor's, which may cost left bytes.
func (s *savedReader) memory(ms *memories, left int64) (*memory, error) {
	var k memoryKey
	k.job = string(s.next(s.length(maxJobName)))
	if key := s.next(8); key != nil {
		k.key = binary.LittleEndian.Uint64(key)
	}
	d, size := tensor.DType(s.byte()), s.length(1<<62)
	switch {
	case s.err != nil || !d.Valid() || !d.Float() || size == 0 || size%d.Size() != 0:
		return nil, errDamaged
	case int64(size) > left || cost(d, size) > left:
		return nil, errNoRoom
	}
	owed := s.next(4 * (size / d.Size()))
	if owed == nil {
		return nil, errDamaged
	}
	m := ms.newMemory(k, d, size, true)
	tensor.ToFloat32(m.residual, owed, tensor.Float32)
	if slices.ContainsFunc(m.residual, func(v float32) bool { return v-v != 0 }) { // a NaN or infinity would never go away
		return nil, errDamaged
	}
	return m, nil
}

// savedReader reads a file's parts one after another; after the first error all are empty.
type savedReader struct {
	r   *bufio.Reader
	sum hash.Hash32
	err error
}

func (s *savedReader) next(n int) []byte {
	if s.err != nil {
		return nil
	}
	b := make([]byte, 0, min(n, 1<<20))
	for len(b) < n && s.err == nil { // memory grows with what is there, not with what is claimed
		at := len(b)
		b = slices.Grow(b, min(n-at, 1<<20))[:at+min(n-at, 1<<20)]
		_, s.err = io.ReadFull(s.r, b[at:])
	}
	if s.err != nil {
		return nil
	}
	s.sum.Write(b)
	return b
}

func (s *savedReader) byte() byte {
	if b := s.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (s *savedReader) length(most int64) int {
	var x uint64
	for shift := 0; shift < 63; shift += 7 {
		b := s.byte()
		x |= uint64(b&0x7f) << shift
		if b < 0x80 {
			break
		}
	}
	if x > uint64(most) {
		s.err = ErrSaved
		return 0
	}
	return int(x)
}

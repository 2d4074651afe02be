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

// Residuals outlive the process where their tensors do (Lasting): SaveResiduals and LoadResiduals. What is saved is as
// old as the save; the job's sums then lack, once, what was owed since. No tensors of Gloo outlive a connection.
//
// The file: "gpresid1", then for each tensor 1, the job (length, text), key(8), dtype(1), size, and the residual's
// float32 values; then 0 and the CRC-32C of all bytes before it (4). Lengths and sizes are varints, the rest is
// little-endian.
const savedMagic = "gpresid1"

// ErrSaved is wrapped by the error of LoadResiduals for a file that is damaged or of another version. Nothing is loaded
// from it.
var ErrSaved = errors.New("proxy: saved residuals cannot be used")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SaveResiduals writes what is owed to tensors that outlive their connections. It copies one tensor at a time, so that
// senders never wait for w.
func (p *Proxy) SaveResiduals(w io.Writer) error {
	sum := crc32.New(castagnoli)
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<16)
	out.WriteString(savedMagic)
	var buf []byte
	for _, m := range p.memories.lasting() {
		buf = append(buf[:0], 1)
		buf = appendText(buf, m.job)
		buf = binary.LittleEndian.AppendUint64(buf, m.key)
		buf = append(buf, byte(m.dtype))
		buf = binary.AppendUvarint(buf, uint64(m.size))
		m.mu.Lock()
		at := len(buf)
		buf = slices.Grow(buf, 4*len(m.residual))[:at+4*len(m.residual)]
		tensor.FromFloat32(buf[at:], m.residual, tensor.Float32)
		m.mu.Unlock()
		if _, err := out.Write(buf); err != nil {
			return err
		}
	}
	out.WriteByte(0)
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// LoadResiduals reads what SaveResiduals wrote. Tensors that have come since keep what they have.
func (p *Proxy) LoadResiduals(r io.Reader) error {
	in := &savedReader{r: bufio.NewReaderSize(r, 1<<16), sum: crc32.New(castagnoli)}
	if magic := in.next(len(savedMagic)); string(magic) != savedMagic {
		return fmt.Errorf("%w: not a file of residuals of this version", ErrSaved)
	}
	var found []*memory
	left := p.memories.limit
	for in.byte() == 1 {
		m := &memory{lasts: true, blocks: map[blockRange]*blockMemory{}}
		m.job = string(in.next(in.length(maxSmall)))
		m.key = binary.LittleEndian.Uint64(append(in.next(8), make([]byte, 8)...))
		m.dtype = tensor.DType(in.byte())
		m.size = in.length(left)
		if in.err != nil || !m.dtype.Valid() || !m.dtype.Float() || m.size == 0 || m.size%m.dtype.Size() != 0 {
			return fmt.Errorf("%w: tensor %d is damaged, or larger than may be remembered", ErrSaved, len(found)+1)
		}
		n := m.size / m.dtype.Size()
		if left -= int64(4*n + m.size); left < 0 {
			return fmt.Errorf("%w: there are more than the %d bytes that may be remembered", ErrSaved, p.memories.limit)
		}
		m.residual, m.last = make([]float32, n), make([]byte, m.size)
		if raw := in.next(4 * n); raw != nil {
			tensor.ToFloat32(m.residual, raw, tensor.Float32)
		}
		found = append(found, m)
	}
	want := in.sum.Sum32()
	if got := in.next(4); in.err != nil || binary.LittleEndian.Uint32(got) != want {
		return fmt.Errorf("%w: the file is cut short or damaged", ErrSaved)
	}
	p.memories.restore(found)
	return nil
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

package residual

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

// Residuals outlive the process where their tensors do (parser.Traits): Save and Load. A file is as old as its save; the job's
// sums then lack, once, the losses since. No tensors of Gloo outlive a connection.
//
// The file: "gpresid1", then entries of a kind (1) and its fields, then 0 and the CRC-32C of all bytes before it
// (4). Lengths, sizes and counts are varints, the rest is little-endian. The entries:
//
//	1  a tensor with a residual: job (length, text), key(8), dtype(1), size, and the residual's float32 values
//	2  rows of a sparse tensor with residuals: job, key of the index(8), dtype(1), elements of a row, count, then
//	   for each its id(8) and float32 values. One tensor may have several entries; of a row that is there twice, the last counts
const magic = "gpresid1"

// Kinds of entries.
const (
	entryEnd = iota
	entryDense
	entryRows
)

// ErrFile is wrapped by the error of Load for a file that is damaged or of another version. Nothing is loaded from it.
var ErrFile = errors.New("proxy: saved residuals cannot be used")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Changes counts the changes of the residuals that Save writes. A save is up to date as long as Changes returns the number that
// it returned before the save.
func (s *Store) Changes() uint64 { return s.changes.Load() }

// Save writes the residuals of tensors that outlive their connections. It copies one tensor at a time, so that
// senders never wait for w. It never writes more bytes than the Store's limit.
func (s *Store) Save(w io.Writer) error {
	sum := crc32.New(castagnoli)
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<16)
	out.WriteString(magic)
	var buf []byte
	for _, d := range s.lasting() {
		if buf = d.appendEntry(buf[:0]); buf == nil {
			continue
		}
		if _, err := out.Write(buf); err != nil {
			return err
		}
	}
	if err := s.saveRows(out); err != nil {
		return err
	}
	out.WriteByte(entryEnd)
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// appendEntry appends the entry of d, or returns nil if there is no residual.
func (d *Dense) appendEntry(buf []byte) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !anyLost(d.residual) {
		return nil
	}
	buf = append(buf, entryDense)
	buf = appendText(buf, d.job)
	buf = binary.LittleEndian.AppendUint64(buf, d.key)
	buf = append(buf, byte(d.dtype))
	buf = binary.AppendUvarint(buf, uint64(d.size))
	at := len(buf)
	buf = slices.Grow(buf, 4*len(d.residual))[:at+4*len(d.residual)]
	tensor.FromFloat32(buf[at:], d.residual, tensor.Float32)
	return buf
}

// appendText appends a text behind its length.
func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// Load reads a file that Save has written. Tensors that have come since keep their residuals. It remembers no more than the
// Store's limit allows, whatever r holds.
func (s *Store) Load(r io.Reader) error {
	in := &fileReader{r: bufio.NewReaderSize(r, 1<<16), sum: crc32.New(castagnoli)}
	if begin := in.next(len(magic)); string(begin) != magic {
		return fmt.Errorf("%w: not a file of residuals of this version", ErrFile)
	}
	var found []*Dense
	rows := fileArrays{}
	left := s.limit
	kind := in.byte()
	for n := 1; kind == entryDense || kind == entryRows; n++ {
		var err error
		if kind == entryRows {
			err = in.rows(rows, &left)
		} else {
			var d *Dense
			if d, err = in.dense(s, left); err == nil {
				left -= d.cost()
				found = append(found, d)
			}
		}
		if err != nil {
			return fmt.Errorf("%w: tensor %d %w", ErrFile, n, err)
		}
		kind = in.byte()
	}
	want := in.sum.Sum32()
	if got := in.next(4); in.err != nil || kind != entryEnd || binary.LittleEndian.Uint32(got) != want {
		return fmt.Errorf("%w: the file is cut short or damaged", ErrFile)
	}
	s.restore(found)
	s.restoreRows(rows)
	return nil
}

var (
	errDamaged = errors.New("is damaged")
	errNoRoom  = errors.New("is more than may be remembered")
)

// maxJobName is the most bytes of a job's name, as in a Declare frame.
const maxJobName = 255

// dense reads one tensor's entry, whose memory may cost left bytes.
func (r *fileReader) dense(s *Store, left int64) (*Dense, error) {
	var k denseKey
	k.job = string(r.next(r.length(maxJobName)))
	if key := r.next(8); key != nil {
		k.key = binary.LittleEndian.Uint64(key)
	}
	d, size := tensor.DType(r.byte()), r.length(1<<62)
	switch {
	case r.err != nil || !d.Valid() || !d.Float() || size == 0 || size%d.Size() != 0:
		return nil, errDamaged
	case int64(size) > left || denseCost(d, size) > left:
		return nil, errNoRoom
	}
	values := r.next(4 * (size / d.Size()))
	if values == nil {
		return nil, errDamaged
	}
	m := s.newDense(k, d, size, true)
	tensor.ToFloat32(m.residual, values, tensor.Float32)
	if slices.ContainsFunc(m.residual, func(v float32) bool { return v-v != 0 }) { // a NaN or infinity would never go away
		return nil, errDamaged
	}
	return m, nil
}

// A fileReader reads a file's parts one after another; after the first error all are empty.
type fileReader struct {
	r   *bufio.Reader
	sum hash.Hash32
	err error
}

func (r *fileReader) next(n int) []byte {
	if r.err != nil {
		return nil
	}
	b := make([]byte, 0, min(n, 1<<20))
	for len(b) < n && r.err == nil { // memory grows with the bytes that come, not with the length that is claimed
		at := len(b)
		b = slices.Grow(b, min(n-at, 1<<20))[:at+min(n-at, 1<<20)]
		_, r.err = io.ReadFull(r.r, b[at:])
	}
	if r.err != nil {
		return nil
	}
	r.sum.Write(b)
	return b
}

func (r *fileReader) byte() byte {
	if b := r.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *fileReader) length(limit int64) int {
	var x uint64
	for shift := 0; shift < 63; shift += 7 {
		b := r.byte()
		x |= uint64(b&0x7f) << shift
		if b < 0x80 {
			break
		}
	}
	if x > uint64(limit) {
		r.err = ErrFile
		return 0
	}
	return int(x)
}

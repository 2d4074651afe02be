package residual

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/gradproxy/gradproxy/tensor"
)

// Changes counts the changes of the residuals that Save writes. A save is up to date as long as Changes returns the
// number that it returned before the save.
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

// Load reads a file that Save has written, to its end: r may judge by then whether all its bytes are right, and nothing
// is loaded if it returns an error instead of io.EOF. Tensors that have come since keep their residuals. It remembers
// no more than the Store's limit allows, whatever r holds.
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
	if err := in.end(); err != nil {
		return err
	}
	s.restore(found)
	s.restoreRows(rows)
	return nil
}

// dense reads one tensor's entry, whose memory may cost left bytes.
func (r *fileReader) dense(s *Store, left int64) (*Dense, error) {
	var k denseKey
	k.job = string(r.next(r.length(maxOwner)))
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
	m := newDense(&s.ledger, k, d, size, true)
	tensor.ToFloat32(m.residual, values, tensor.Float32)
	if slices.ContainsFunc(m.residual, func(v float32) bool { return v-v != 0 }) { // a NaN or infinity would never go away
		return nil, errDamaged
	}
	return m, nil
}

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
)

// Residuals outlive the process where their tensors do (parser.Traits): Save and Load. A file is as old as its save;
// the job's sums then lack, once, the losses since. No tensors of Gloo outlive a connection.
//
// The file: "gpresid1", then entries of a kind (1) and its fields, then 0 and the CRC-32C of all bytes before it
// (4). Lengths, sizes and counts are varints, the rest is little-endian. The entries:
//
//	1  a tensor with a residual: owner (length, text), key(8), dtype(1), size, and the residual's float32 values
//	2  rows of a sparse tensor with residuals: owner, key of the index(8), dtype(1), elements of a row, count, then
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

// maxOwner is the maximum of bytes of an owner's name that is read.
const maxOwner = 1 << 10

// Owner names the tensors of a job that are sent to a peer. A file of an earlier version names the job alone: its
// residuals are not found.
func Owner(job, peer string) string { return job + "\x00" + peer }

var (
	errDamaged = errors.New("is damaged")
	errNoRoom  = errors.New("is more than may be remembered")
)

// appendText appends a text behind its length.
func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
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

// end returns an error unless nothing follows.
func (r *fileReader) end() error {
	switch _, err := r.r.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: bytes follow its end", ErrFile)
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, ErrFile):
		return err
	default:
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
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

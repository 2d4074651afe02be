//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A recording is the all-reduces of a job, all of one size.
type recording struct {
	job      string
	names    []string // of each sum: gradient, or something else
	ranks    int
	elements int
	data     []byte // float32 by sum, rank, element
	first    []byte // float32: the weights that the job broadcasts at first; nil: the recording is older
}

var shape = regexp.MustCompile(`'descr': '<f4', 'fortran_order': False, 'shape': \((\d+), (\d+), (\d+)\)`)

// open reads JOB.npy, JOB.txt and, if there is one, JOB.first.
func open(file string) (*recording, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(file, ".npy")
	text, err := os.ReadFile(base + ".txt")
	if err != nil {
		return nil, err
	}
	r := &recording{job: filepath.Base(base), names: strings.Fields(string(text))}
	if len(b) < 10 || !bytes.HasPrefix(b, []byte("\x93NUMPY\x01")) {
		return nil, fmt.Errorf("%s is no array of NumPy's format 1", file)
	}
	end := 10 + int(binary.LittleEndian.Uint16(b[8:]))
	m := shape.FindSubmatch(b[10:min(end, len(b))])
	if m == nil {
		return nil, fmt.Errorf("%s is no float32 array of three dimensions", file)
	}
	sums, _ := strconv.Atoi(string(m[1]))
	r.ranks, _ = strconv.Atoi(string(m[2]))
	r.elements, _ = strconv.Atoi(string(m[3]))
	if r.data = b[end:]; sums != len(r.names) || len(r.data) != 4*sums*r.ranks*r.elements {
		return nil, fmt.Errorf("%s has %d bytes and %s.txt %d lines: they do not belong together", file, len(b), base, len(r.names))
	}
	if r.first, err = os.ReadFile(base + ".first"); errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil && len(r.first) != 4*r.elements {
		err = fmt.Errorf("%s.first has %d bytes, want %d", base, len(r.first), 4*r.elements)
	}
	return r, err
}

// input returns a copy of the tensor that a rank puts into a sum.
func (r *recording) input(sum, rank int) []byte {
	n := 4 * r.elements
	return bytes.Clone(r.data[(sum*r.ranks+rank)*n:][:n])
}

// Package digits is the data of the demo: the UCI data set "Optical Recognition of Handwritten Digits" (E. Alpaydin,
// C. Kaynak, 1998; CC BY 4.0, see README.md), 1,797 images of 8 x 8 pixels, small enough to ship in the program.
package digits

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"fmt"
	"strconv"
)

const (
	Pixels  = side * side // of an image, row after row
	Classes = 10          // digits

	side      = 8
	levels    = 16 // the greatest value of a pixel in the file
	testEvery = 5  // each fifth image of a digit is kept for the test
)

//go:embed digits.csv.gz
var file []byte

// A Set is a number of labelled images.
type Set struct {
	Images []float32 // Pixels values for each image, from 0 (paper) to 1 (ink)
	Labels []uint8   // the digit of each image
}

// Len returns the number of images.
func (s *Set) Len() int { return len(s.Labels) }

// Image returns the i-th image, which the Set owns.
func (s *Set) Image(i int) []float32 { return s.Images[i*Pixels : (i+1)*Pixels] }

// AppendMoved appends the i-th image to dst, moved by some pixels. Pixels from beyond its edges are paper.
func (s *Set) AppendMoved(dst []float32, i, right, down int) []float32 {
	image := s.Image(i)
	for y := range side {
		for x := range side {
			var v float32
			if fx, fy := x-right, y-down; fx >= 0 && fx < side && fy >= 0 && fy < side {
				v = image[side*fy+fx]
			}
			dst = append(dst, v)
		}
	}
	return dst
}

// Load returns the images to train on (1,442) and the images to test with (355), always the same and in the same order.
func Load() (train, test Set) {
	rows, err := read(file)
	if err != nil {
		panic("digits: the embedded file is broken: " + err.Error())
	}
	var seen [Classes]int
	for _, row := range rows {
		set := &train
		digit := row[Pixels]
		if seen[digit]++; seen[digit]%testEvery == 0 {
			set = &test
		}
		for _, v := range row[:Pixels] {
			set.Images = append(set.Images, float32(v)/levels)
		}
		set.Labels = append(set.Labels, digit)
	}
	return train, test
}

// read parses a gzipped CSV file whose rows are Pixels values and a label.
func read(gzipped []byte) ([][Pixels + 1]uint8, error) {
	z, err := gzip.NewReader(bytes.NewReader(gzipped))
	if err != nil {
		return nil, err
	}
	r := csv.NewReader(z)
	r.FieldsPerRecord = Pixels + 1
	records, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	rows := make([][Pixels + 1]uint8, len(records))
	for i, fields := range records {
		for j, f := range fields {
			maximum := uint64(levels)
			if j == Pixels {
				maximum = Classes - 1
			}
			v, err := strconv.ParseUint(f, 10, 8)
			if err != nil || v > maximum {
				return nil, fmt.Errorf("line %d, field %d: %q is not a number of 0 to %d", i+1, j+1, f, maximum)
			}
			rows[i][j] = uint8(v)
		}
	}
	return rows, nil
}

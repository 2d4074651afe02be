package data

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

// Images are labelled images of one channel.
type Images struct {
	Side   int       // pixels, in width and height
	Pixels []float32 // Side * Side values for each image: from 0 to 1, as they come
	Labels []uint8   // 0 to 9
}

// Len returns the number of images.
func (s *Images) Len() int { return len(s.Labels) }

// Gather appends the images at some indices, and their labels, to dst and labels.
func (s *Images) Gather(dst []float32, labels []uint8, at []int) ([]float32, []uint8) {
	size := s.Side * s.Side
	for _, i := range at {
		dst, labels = append(dst, s.Pixels[i*size:(i+1)*size]...), append(labels, s.Labels[i])
	}
	return dst, labels
}

// Standardize shifts and scales the pixels of set, and the pixels of test likewise, so that the set's have a mean of 0
// and a deviation of 1.
func Standardize(set, test *Images) {
	var sum, squares float64
	for _, v := range set.Pixels {
		sum, squares = sum+float64(v), squares+float64(v)*float64(v)
	}
	n := float64(len(set.Pixels))
	mean := sum / n
	deviation := math.Sqrt(squares/n - mean*mean)
	for _, s := range []*Images{set, test} {
		for i, v := range s.Pixels {
			s.Pixels[i] = float32((float64(v) - mean) / deviation)
		}
	}
}

// debian is where the package dataset-fashion-mnist has its files.
const debian = "/usr/share/datasets/fashion-mnist"

// Fashion reads Fashion-MNIST: 60,000 images to train on and 10,000 to test with. Its four files lie in
// dir/fashion-mnist, or where Debian puts them. The error wraps ErrMissing if they are in neither place.
func Fashion(dir string) (train, test Images, err error) {
	from := filepath.Join(dir, "fashion-mnist")
	if _, err := os.Stat(from); err != nil {
		from = debian
	}
	if train, err = readImages(from, "train"); err == nil {
		test, err = readImages(from, "t10k")
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = missing("Fashion-MNIST", "apt-get install dataset-fashion-mnist")
	}
	return train, test, err
}

func readImages(dir, set string) (Images, error) {
	pixels, shape, err := readIDX(filepath.Join(dir, set+"-images-idx3-ubyte.gz"), 3)
	if err != nil {
		return Images{}, err
	}
	labels, _, err := readIDX(filepath.Join(dir, set+"-labels-idx1-ubyte.gz"), 1)
	if err != nil {
		return Images{}, err
	}
	if len(labels) != shape[0] || shape[1] != shape[2] {
		return Images{}, fmt.Errorf("%s: %d labels for images of shape %v", dir, len(labels), shape)
	}
	s := Images{Side: shape[1], Pixels: make([]float32, len(pixels)), Labels: labels}
	for i, v := range pixels {
		s.Pixels[i] = float32(v) / 255
	}
	return s, nil
}

// maxIDX is the maximum of bytes that a file may hold: far more than any of these.
const maxIDX = 1 << 28

// readIDX reads a gzipped file of bytes in MNIST's format: a magic number that ends in the number of dimensions, their
// sizes, big-endian, and the bytes.
func readIDX(path string, dimensions int) (bytes []byte, shape []int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	head := make([]uint32, 1+dimensions)
	if err := binary.Read(z, binary.BigEndian, head); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	const ubyte = 8 << 8
	if head[0] != ubyte|uint32(dimensions) {
		return nil, nil, fmt.Errorf("%s begins with %#x: it is no file of bytes in %d dimensions", path, head[0], dimensions)
	}
	size := uint64(1)
	for _, n := range head[1:] {
		shape = append(shape, int(n))
		if size *= uint64(n); size == 0 || size > maxIDX {
			return nil, nil, fmt.Errorf("%s has shape %v: give it 1 to %d bytes", path, shape, maxIDX)
		}
	}
	bytes = make([]byte, size)
	if _, err := io.ReadFull(z, bytes); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return bytes, shape, nil
}

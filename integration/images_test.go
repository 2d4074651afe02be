//go:build linux

package integration

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// images is where Debian's package dataset-fashion-mnist has its files, packed.
const images = "/usr/share/datasets/fashion-mnist"

// unpackImages unpacks them once for the ranks of all jobs, which look in FASHION_MNIST (testdata/fashion.py). Each
// would take a third of a second of processor time for it, as long as a job of eight steps trains.
var unpackImages = sync.OnceValue(func() error {
	packed, err := filepath.Glob(filepath.Join(images, "*.gz"))
	if err != nil {
		return err
	}
	folder := filepath.Join(scratch, "fashion-mnist")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	for _, path := range packed {
		if err := unpack(path, filepath.Join(folder, strings.TrimSuffix(filepath.Base(path), ".gz"))); err != nil {
			return err
		}
	}
	return os.Setenv("FASHION_MNIST", folder)
})

// unpack writes what the gzip file from holds to the file to.
func unpack(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, z); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

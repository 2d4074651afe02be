package codectest

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// Concurrent checks that a codec may be used from several goroutines, for each element type that it takes. The race
// detector sees what the goroutines share.
func Concurrent(t *testing.T, c codecs.Codec) {
	for _, d := range append(tensor.DTypes(), tensor.NoDType) {
		if _, err := c.NewEncoder(d, 256); errors.Is(err, codecs.ErrUnsuited) {
			continue
		}
		t.Run(d.String(), suite{t, c, d}.concurrent)
	}
}

func (s suite) concurrent(t *testing.T) {
	const n = 2500
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			e, err := s.codec.NewEncoder(s.dtype, n)
			if err != nil {
				t.Error(err)
				return
			}
			d, err := s.codec.NewDecoder(s.dtype, n)
			if err != nil {
				t.Error(err)
				return
			}
			for step := range 4 {
				src := Kinds()[(g+step)%len(Kinds())].Fill(s.dtype, n, uint64(g))
				b, err := e.Append(nil, src)
				if errors.Is(err, codecs.ErrUnsuited) {
					continue
				}
				back := make([]byte, len(src))
				if err := d.Decode(back, b); err != nil {
					t.Error(err)
				} else if !codecs.Lossy(s.codec) && !bytes.Equal(back, src) {
					t.Error("coders of several goroutines disturb each other")
				}
			}
		})
	}
	wg.Wait()
}

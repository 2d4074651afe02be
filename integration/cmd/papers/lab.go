package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/cluster"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/data"
)

// A lab holds the data and the trainings that several tables need.
type lab struct {
	Config
	images func() (pictures, error)
	mails  func() (*data.Mails, error)

	designs  map[string]trained                   // of 3LC, by name
	contests map[string][][]cluster.LinearOutcome // by paper
}

// pictures are images to train on and to test with.
type pictures struct {
	name      string
	set, test data.Images
}

func newLab(c Config) *lab {
	l := &lab{Config: c, designs: make(map[string]trained), contests: make(map[string][][]cluster.LinearOutcome)}
	l.images = sync.OnceValues(func() (p pictures, err error) {
		if c.Quick {
			p.name = "the demo's digits"
			p.set, p.test = data.Digits()
		} else {
			p.name = "Fashion-MNIST"
			p.set, p.test, err = data.Fashion(c.Data)
		}
		data.Standardize(&p.set, &p.test)
		return p, err
	})
	l.mails = sync.OnceValues(func() (*data.Mails, error) { return data.NGrams(c.Data, gramWords, gramMails) })
	return l
}

// pick returns long, or short if the run is to be quick.
func (l *lab) pick(long, short int) int {
	if l.Quick {
		return short
	}
	return long
}

// codec is all.New of a text that is part of this package.
func codec(text string) codecs.Codec {
	c, err := all.New(text)
	if err != nil {
		panic(fmt.Sprintf("papers: %v", err))
	}
	return c
}

// parallel calls do with 0 to n-1, on all cores, and returns the first error.
func parallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

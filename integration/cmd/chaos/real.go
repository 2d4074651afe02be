//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// atOnce is how many seeds are played at the same time, by carrier. A seed waits more than it works, most of all with
// DTLS.
var atOnce = map[string]int{"tls": 3, "dtls": 8}

func runReal(ctx context.Context, dir, binary, previous, carrier string, first uint64, seeds int) error {
	l, err := newLab(ctx, dir, binary, previous, carrier)
	if err != nil {
		return err
	}
	bad := 0
	var came census
	err = l.playAll(ctx, first, seeds, func(r row) error {
		came.add(r)
		return r.print(&bad)
	})
	return errors.Join(err, verdict(bad, seeds), came.verdict())
}

// playAll plays seeds, several at a time, and calls seen with the row of each; calls of seen do not overlap. It returns
// the first error that is not the outcome of a seed.
func (l *lab) playAll(ctx context.Context, first uint64, seeds int, seen func(row) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce[l.carrier])
	var one sync.Mutex
	for seed := first; seed < first+uint64(seeds); seed++ {
		group.Go(func() error {
			r, err := l.play(ctx, seed)
			if err != nil {
				return fmt.Errorf("seed %d: %w", seed, err)
			}
			one.Lock()
			defer one.Unlock()
			return seen(r)
		})
	}
	return group.Wait()
}

// play plays one seed.
func (l *lab) play(ctx context.Context, seed uint64) (row, error) {
	begin := time.Now()
	s, err := newStage(l, seed, 8<<20)
	if err != nil {
		return row{}, err
	}
	result := row{Seed: seed, Real: true, Carrier: l.carrier}
	defer os.RemoveAll(s.dir)
	for _, x := range s.sites {
		if l.previous != "" && s.r.IntN(4) == 0 {
			x.binary = l.previous // a mixed pair
		}
		if err := x.start(); err != nil {
			return row{}, err
		}
	}
	var work sync.WaitGroup
	s.connect(&work)
	work.Go(func() { s.tensors.run(seed) })
	for range 1 + s.r.IntN(3) {
		f := realFaults[s.r.IntN(len(realFaults))]
		for f.can != nil && !f.can(l) {
			f = realFaults[s.r.IntN(len(realFaults))]
		}
		result.Faults = append(result.Faults, f.name)
		after, r := 100*time.Millisecond+ms(s.r, 500), rand.New(rand.NewPCG(s.r.Uint64(), 1))
		work.Go(func() {
			time.Sleep(after)
			f.do(s, r)
		})
	}
	done := make(chan struct{})
	go func() { work.Wait(); s.job.apps.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(patience): // an outage lasts less than a second; the rest is for a loaded machine
		s.wrongly("the job has not ended")
	}
	result.Shared = s.sites[0].shared() + s.sites[1].shared()
	result.Replayed = s.sites[0].replayed() + s.sites[1].replayed()
	for _, x := range s.sites {
		x.count(x.metrics())
		x.stop()
	}
	s.relay.close()
	s.job.server.Close()
	for _, l := range s.tensors.targets {
		l.Close()
	}
	if ctx.Err() != nil {
		return row{}, ctx.Err()
	}
	s.judge(&result)
	result.Seconds = time.Since(begin).Seconds()
	return result, nil
}

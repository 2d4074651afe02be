//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A sample has the measurements of one process at one time.
type sample struct {
	Site        string  `json:"site"`
	Seconds     float64 `json:"seconds"` // since the start
	RSS         float64 `json:"rss_bytes"`
	Descriptors float64 `json:"descriptors"`
	Goroutines  float64 `json:"goroutines"`
	Connections int     `json:"connections"` // of the job that have ended so far
}

func (x *site) sample(begin time.Time, connections int) (sample, error) {
	pid := x.cmd.Process.Pid
	s := sample{Site: x.name, Seconds: time.Since(begin).Seconds(), Connections: connections}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(string(status)) {
		if kB, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if s.RSS, err = strconv.ParseFloat(strings.Fields(kB)[0], 64); err != nil {
				return s, err
			}
			s.RSS *= 1024
		}
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return s, err
	}
	s.Descriptors = float64(len(open))
	g, ok := x.metrics()["go_goroutines"]
	if !ok {
		return s, fmt.Errorf("%s does not say how many goroutines it has", x.name)
	}
	s.Goroutines = g
	return s, nil
}

// runSoak carries connections for length, loses a carrier now and then, and prints a sample of each site at every
// interval of every. The whole job pauses for a second before a sample, so that samples can be compared. The last rows
// are the slopes of the later half of the samples.
func runSoak(ctx context.Context, dir, binary, carrier string, length, every, pause time.Duration) error {
	if length < 6*every {
		return fmt.Errorf("--soak %v --every %v: want at least 6 samples", length, every)
	}
	l, err := newLab(ctx, dir, binary, "", carrier)
	if err != nil {
		return err
	}
	s, err := newStage(l, 1, 0)
	if err != nil {
		return err
	}
	for _, x := range s.sites {
		if err := x.start(); err != nil {
			return err
		}
	}
	begin, samples := time.Now(), map[string][]sample{}
	number := uint64(0)
	out := json.NewEncoder(os.Stdout)
	for time.Since(begin) < length && ctx.Err() == nil {
		done := s.soak(number, time.Now().Add(every-time.Second), pause)
		number += 1 << 20
		time.Sleep(time.Second)
		for _, x := range s.sites {
			now, err := x.sample(begin, done)
			if err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
			samples[x.name] = append(samples[x.name], now)
			if err := out.Encode(now); err != nil {
				return err
			}
		}
	}
	for _, x := range s.sites {
		if err := out.Encode(slopes(x.name, samples[x.name])); err != nil {
			return err
		}
		x.stop()
	}
	s.relay.close()
	s.job.server.Close()
	if len(s.wrong) > 0 {
		return errors.New(strings.Join(s.wrong, "; "))
	}
	return nil
}

// soak carries connections until a time, while carriers are lost. number is the number of the first connection. soak
// returns how many connections have ended since the stage began.
func (s *stage) soak(number uint64, until time.Time, pause time.Duration) (done int) {
	var work sync.WaitGroup
	for k := range 8 {
		r := rand.New(rand.NewPCG(number, uint64(k)))
		base := number + uint64(k)<<32
		work.Go(func() {
			for i := uint64(0); time.Now().Before(until); i++ {
				if err := s.job.client(base+i, [2]half{newHalf(r, base+i, 1<<20, pause), newHalf(r, 0, 1<<20, pause)}); err != nil {
					s.wrongly("%v", err)
				}
			}
		})
	}
	work.Go(func() {
		for time.Now().Before(until) {
			time.Sleep(ms(s.r, 2000))
			s.relay.some(s.r, func(p path) { p.reset() })
		}
	})
	work.Wait()
	s.job.apps.Wait()
	s.job.mu.Lock()
	defer s.job.mu.Unlock()
	for _, e := range s.job.order {
		if f := e.fault(s.disturbed); f != "" {
			s.wrongly("%s", f)
		}
	}
	done = s.job.finished + len(s.job.order)
	s.job.finished, s.job.order = done, nil
	return done
}

// slopes returns the last row of a site, which has the slopes of the later half of its samples.
func slopes(site string, samples []sample) map[string]any {
	half := samples[len(samples)/2:]
	row := map[string]any{"site": site, "samples": len(half)}
	for name, of := range map[string]func(sample) float64{
		"rss_bytes_an_hour":   func(s sample) float64 { return s.RSS },
		"descriptors_an_hour": func(s sample) float64 { return s.Descriptors },
		"goroutines_an_hour":  func(s sample) float64 { return s.Goroutines },
	} {
		row[name] = slope(half, of) * 3600
	}
	return row
}

// slope returns the growth of a value per second, by least squares.
func slope(samples []sample, of func(sample) float64) float64 {
	var x, y, xx, xy float64
	n := float64(len(samples))
	for _, s := range samples {
		v := of(s)
		x, y, xx, xy = x+s.Seconds, y+v, xx+s.Seconds*s.Seconds, xy+s.Seconds*v
	}
	if d := n*xx - x*x; d > 0 {
		return (n*xy - x*y) / d
	}
	return 0
}

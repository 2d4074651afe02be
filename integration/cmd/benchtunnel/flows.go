//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// carried is the outcome of a measurement of flows.
type carried struct {
	mbps float64
	cpu  float64 // seconds of processor time, both ends, for a gigabyte; 0: not measured
}

// carry connects n flows of a stack, has them carry all they can, and measures the bytes that arrive for a time, after
// warm.
func (s stack) carry(ctx context.Context, at place, k *keys, n int, warm, d time.Duration) (c carried, err error) {
	flows, end, err := s.connect(ctx, at, k, n)
	if err != nil {
		if end != nil {
			end()
		}
		return c, fmt.Errorf("%s: %w", s.name, err)
	}
	var got atomic.Int64
	var all sync.WaitGroup
	for _, f := range flows {
		all.Go(func() {
			b := make([]byte, s.message)
			for {
				if _, err := f.near.Write(b); err != nil {
					return // closed
				}
			}
		})
		all.Go(func() {
			b := make([]byte, 256<<10)
			for {
				n, err := f.far.Read(b)
				if err != nil {
					return
				}
				got.Add(int64(n))
			}
		})
	}
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	pause(warm)
	before, began, used := got.Load(), time.Now(), processor()
	pause(d)
	bytes := float64(got.Load() - before)
	took, used := time.Since(began), processor()-used
	end()
	all.Wait()
	if bytes == 0 {
		return c, fmt.Errorf("%s: nothing has arrived in %v", s.name, took)
	}
	return carried{bytes * 8 / took.Seconds() / 1e6, used.Seconds() / (bytes / 1e9)}, ctx.Err()
}

// processor returns the processor time of this process so far.
func processor() time.Duration {
	d, err := testbed.CPU()
	if err != nil {
		panic(err)
	}
	return d
}

// stacks measures D1 and D2 on loopback: the tunnel's streams over datagrams beside other stacks, all in this process.
func (m *measurement) stacks(ctx context.Context, k *keys, kinds map[string]bool) error {
	type figures struct{ rate, cpu []float64 }
	for _, n := range []int{1, 8} {
		ways := []stack{bareTLS, ownDTLS, quicGo, pionSCTP}
		if n == 1 {
			ways = append(ways, pionPlain)
		}
		got := map[string]*figures{}
		for _, s := range ways {
			got[s.name] = &figures{}
		}
		for range m.rounds {
			for _, s := range ways {
				c, err := s.carry(ctx, here(), k, n, time.Second, 2*time.Second)
				if err != nil {
					return err
				}
				got[s.name].rate = append(got[s.name].rate, c.mbps)
				got[s.name].cpu = append(got[s.name].cpu, c.cpu)
			}
		}
		rate := func(s stack) float64 { return median(got[s.name].rate) }
		cpu := func(s stack) float64 { return median(got[s.name].cpu) }
		for _, s := range ways {
			m.beside(fmt.Sprintf("loopback/%s/%d", s.name, n), "rate of "+s.name, rate(s), "Mbit/s")
			m.beside(fmt.Sprintf("loopback/%s/%d/cpu", s.name, n), "processor time of "+s.name+", both ends", cpu(s), "s/GB")
		}
		if kinds["D1"] && n == 1 {
			m.add("D1/rate", "rate of the tunnel's streams over DTLS, at least, of pion/dtls's datagrams, of which some are lost", rate(ownDTLS)/rate(pionPlain), 1.8, "x", false)
			m.add("D1/cpu", "the same of processor time for a byte, at most", cpu(ownDTLS)/cpu(pionPlain), 0.65, "x", true)
		}
		if kinds["D2"] {
			id := func(what string) string { return fmt.Sprintf("D2/%s/%d", what, n) }
			m.add(id("sctp/rate"), "rate of the tunnel's streams over DTLS, at least, of pion/sctp's", rate(ownDTLS)/rate(pionSCTP), 1.8, "x", false)
			m.add(id("sctp/cpu"), "the same of processor time for a byte, at most", cpu(ownDTLS)/cpu(pionSCTP), 0.55, "x", true)
			m.add(id("quic/rate"), "rate of the tunnel's streams over DTLS, at least, of quic-go's", rate(ownDTLS)/rate(quicGo), 0.6, "x", false)
		}
	}
	return nil
}

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
)

// reduce plays two ranks that sum their gradients.
func (x *tensors) reduce(seed uint64) {
	for step, begun := 0, time.Now(); step < steps && time.Since(begun) < patience; {
		group := time.Now()
		ranks, err := x.connect()
		if err == nil {
			step, err = x.steps(ranks, seed, step)
			for _, g := range ranks {
				g.Close()
			}
		}
		if err != nil {
			x.ended(group, err)
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// connect connects two ranks, the one behind paris with the one behind tokyo.
func (x *tensors) connect() (ranks [2]*gloosim.Group, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	file, err := x.targets[ofSums].(*net.TCPListener).File()
	if err != nil {
		return ranks, err
	}
	defer file.Close()
	l, err := net.FileListener(file) // Connect closes its own
	if err != nil {
		return ranks, err
	}
	addrs := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.2:1")} // the second one connects
	var errs [2]error
	var both sync.WaitGroup
	for i := range ranks {
		c := gloosim.Config{Rank: i, Addrs: addrs, Dial: func(ctx context.Context, _ int) (net.Conn, error) { return dialFrom(ctx, x.entries[ofSums]) }}
		if i == 0 {
			c.Listeners = []net.Listener{l}
		} else {
			unused, err := net.Listen("tcp", clientHost+":0")
			if err != nil {
				return ranks, err
			}
			c.Listeners = []net.Listener{unused}
		}
		both.Go(func() {
			if ranks[i], errs[i] = gloosim.Connect(ctx, c); errs[i] != nil {
				cancel()
			}
		})
	}
	both.Wait()
	if err = errors.Join(errs[:]...); err != nil {
		for i, g := range ranks {
			if g != nil {
				g.Close()
				ranks[i] = nil
			}
		}
	}
	return ranks, err
}

// gradient returns a rank's gradient of a step: normally distributed values.
func gradient(seed uint64, step, rank int) (b []byte) {
	r := rand.New(rand.NewPCG(seed, uint64(step<<1|rank)))
	for range elements {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64())))
	}
	return b
}

// steps does the steps of one group of connections, from step from on, and returns the step that is next.
func (x *tensors) steps(ranks [2]*gloosim.Group, seed uint64, from int) (step int, err error) {
	for step = from; step < min(from+each, steps); step++ {
		time.Sleep(pace)
		var sums, gathered [2][]byte
		var errs [2]error
		var both sync.WaitGroup
		for i, g := range ranks {
			sums[i] = gradient(seed, step, i)
			gathered[i] = make([]byte, 2*64)
			copy(gathered[i][64*i:], sums[i][:64])
			both.Go(func() {
				if errs[i] = g.AllReduce(sums[i]).Wait(); errs[i] == nil {
					errs[i] = g.AllGather(gathered[i]).Wait()
				}
				if errs[i] != nil {
					ranks[1-i].Abort(errs[i])
				}
			})
		}
		both.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return step, err
		}
		x.compare(seed, step, sums, gathered)
	}
	return step, nil
}

// farthestSum is how far a sum of two normal values may be from the exact one: int8 has 127 steps of a block's largest,
// at most 7, for the gradient and again for the sum, each with a residual.
const farthestSum = 0.25

func (x *tensors) compare(seed uint64, step int, sums, gathered [2][]byte) {
	a, b := gradient(seed, step, 0), gradient(seed, step, 1)
	want := append(bytes.Clone(a[:64]), b[:64]...)
	differs := false
	for i := range sums {
		if !bytes.Equal(gathered[i], want) {
			x.s.wrongly("rank %d: gathered bytes of step %d differ", i, step)
		}
		for at := 0; at < len(a); at += 4 {
			exact := value(a[at:]) + value(b[at:])
			got := value(sums[i][at:])
			if differs = differs || got != exact; !(math.Abs(float64(got-exact)) < farthestSum) {
				x.s.wrongly("rank %d: sum %d of step %d is %v and no approximation of %v", i, at/4, step, got, exact)
				return
			}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sums++; differs {
		x.lossy++
	}
}

func value(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

package proxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// newLimitedPair starts a pair whose proxies have so much memory, and whose connections have little of the kernel's.
func newLimitedPair(t *testing.T, near, far int64, rules ...policy.Rule) *pair {
	t.Helper()
	p := newPairWith(t, func(name string, c *Config) {
		if c.Memory = near; name == "far" {
			c.Memory = far
			c.Control = func(_, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 16<<10) })
			}
		}
	}, []parser.Protocol{pathtest.Toy{}}, rules...)
	p.mu.Lock()
	p.narrow = 16 << 10
	p.mu.Unlock()
	return p
}

// bounded watches that a proxy with so many connections never holds more than its budgets and their spare, until stop.
func bounded(t *testing.T, p *Proxy, connections int) (stop func()) {
	t.Helper()
	limit := p.env.Sending.Size() + p.env.Receiving.Size() + 2*mem.Spare*int64(connections)
	done, ended := make(chan struct{}), make(chan int64)
	go func() {
		var peak int64
		for {
			select {
			case <-done:
				ended <- peak
				return
			default:
				peak = max(peak, p.env.Buffers.InUse())
				time.Sleep(time.Millisecond)
			}
		}
	}()
	return func() {
		t.Helper()
		close(done)
		peak := <-ended
		t.Logf("at most %d of %d bytes were held", peak, limit)
		if peak > limit {
			t.Errorf("%d bytes were held, where %d are allowed", peak, limit)
		}
	}
}

// stalled waits until writers have long written nothing: were it to return too early, less would be shown.
func stalled(wrote *atomic.Int64) {
	for last := int64(-1); last != wrote.Load(); time.Sleep(250 * time.Millisecond) {
		last = wrote.Load()
	}
}

// held returns the bytes of a proxy's buffers that are in use, and the ones that are paid for, at a time when none was
// taken or given back.
func held(p *Proxy) (inUse, paid int64) {
	inUse, paid = p.env.Buffers.InUse(), p.env.Sending.Used()
	for before := paid - 1; before != paid; {
		before, inUse, paid = paid, p.env.Buffers.InUse(), p.env.Sending.Used()
	}
	return inUse, paid
}

// writeCounted writes a stream and its end, and counts its writes.
func writeCounted(t *testing.T, c *net.TCPConn, stream []byte, wrote *atomic.Int64) {
	for len(stream) > 0 {
		n, err := c.Write(stream[:min(len(stream), 64<<10)])
		if stream = stream[n:]; err != nil {
			t.Error(err)
			return
		}
		wrote.Add(1)
	}
	c.CloseWrite()
}

// Many connections, whose readers read nothing until their writers can write no more, share little memory: it suffices,
// and all bytes arrive.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	connections := 50
	if require.Race {
		connections = 20
	}
	for name, c := range map[string]struct {
		near, far int64
		codec     string
	}{
		"narrow blocks":       {1 << 20, 1 << 20, "lossless"},
		"whole tensors":       {1 << 20, 1 << 20, "wide"},
		"receivers have less": {64 << 20, 1 << 20, "wide"},
		"senders have less":   {1 << 20, 64 << 20, "wide"},
		"no memory":           {1, 1, "wide"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits until its writers have stopped
			p := newLimitedPair(t, c.near, c.far, policy.Rule{Codec: c.codec})
			stopNear, stopFar := bounded(t, p.near, connections), bounded(t, p.far, connections)
			r := rand.New(rand.NewPCG(21, uint64(c.near)))
			streams := [][]byte{toyStream(r, 40), toyStream(r, 40), toyStream(r, 40)}
			var wrote atomic.Int64
			var all, writers sync.WaitGroup
			read := make(chan struct{})
			for i := range connections {
				client, server := p.connect(t)
				server.SetReadBuffer(p.narrow)
				stream := streams[i%len(streams)]
				writers.Go(func() { writeCounted(t, client, stream, &wrote) })
				all.Go(func() {
					<-read
					got, err := io.ReadAll(server)
					if err != nil || !bytes.Equal(got, stream) {
						t.Errorf("%d of %d bytes arrived, %v, or they differ", len(got), len(stream), err)
					}
					server.Close()
					client.Close()
				})
			}
			stalled(&wrote)
			if inUse, used := held(p.near); c.near > 1<<20 && inUse > used {
				t.Errorf("%d bytes of buffers are in use, and %d paid for, where there was memory enough", inUse, used)
			}
			close(read)
			all.Wait()
			writers.Wait()
			stopNear()
			stopFar()
			whole(t, p.near)
			whole(t, p.far)
		})
	}
}

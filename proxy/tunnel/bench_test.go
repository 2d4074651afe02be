package tunnel

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
)

// The benchmarks compare with bare TLS in the same run, in turns of a few milliseconds, so that whatever else the
// machine does hits both: "rate/tls" is the ratio of bytes per second, "cpu/tls" that of CPU time per byte
// (user and system, both ends). ns/op and MB/s are the tunnel's.

// tlsPair returns n connections between two ends that are configured like carriers, but otherwise plain.
func tlsPair(b *testing.B, n int) (near, far []net.Conn) {
	id := identities(b, "paris", "tokyo")
	config := func(name string) *tls.Config {
		s := identityStore{files: id(name)}
		if err := s.load(); err != nil {
			b.Fatal(err)
		}
		c := s.current().tlsConfig(func(tls.ConnectionState) error { return nil })
		c.DynamicRecordSizingDisabled = false
		return c
	}
	ln, err := Listen(CarrierTLS, "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	for range n {
		raw, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		accepted, err := ln.Accept()
		if err != nil {
			b.Fatal(err)
		}
		client, server := tls.Client(raw, config("paris")), tls.Server(accepted, config("tokyo"))
		var wg sync.WaitGroup
		wg.Go(func() { server.Handshake() })
		if err := client.Handshake(); err != nil {
			b.Fatal(err)
		}
		wg.Wait()
		near, far = append(near, client), append(far, server)
		b.Cleanup(func() { client.Close(); server.Close() })
	}
	return near, far
}

// streamPair returns n streams between two sites.
func streamPair(b *testing.B, carrier string, n int) (near, far []*Stream) {
	accepted := make(chan *Stream, n)
	paris, _ := pairOver(b, carrier, func(_ string, _ []byte, in *Incoming) { accepted <- in.Accept() }, nil)
	for range n {
		s, err := paris.Open(context.Background(), "tokyo", nil)
		if err != nil {
			b.Fatal(err)
		}
		near, far = append(near, s), append(far, <-accepted)
	}
	return near, far
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// move sends n bytes over each of the pairs and waits until they have arrived.
func move[W io.Writer, R io.Reader](near []W, far []R, n int, chunk []byte) (wall, cpu time.Duration) {
	began, used := time.Now(), cpuTime()
	var wg sync.WaitGroup
	for i := range near {
		wg.Go(func() {
			for sent := 0; sent < n; sent += len(chunk) {
				if _, err := near[i].Write(chunk); err != nil {
					panic(err)
				}
			}
		})
		wg.Go(func() {
			buf := make([]byte, 64<<10)
			read := func() (int, error) { return far[i].Read(buf) }
			if s, ok := any(far[i]).(*Stream); ok { // as the proxy does
				read = func() (int, error) { b, err := s.ReadChunk(); return len(b), err }
			}
			for got := 0; got < n; {
				m, err := read()
				if err != nil {
					panic(err)
				}
				got += m
			}
		})
	}
	wg.Wait()
	return time.Since(began), cpuTime() - used
}

func BenchmarkBulk(b *testing.B) {
	ranktest.Unwatched(b)
	for _, carrier := range []string{CarrierTLS, CarrierDTLS} {
		b.Run(carrier, func(b *testing.B) { benchmarkBulk(b, carrier) })
	}
}

func benchmarkBulk(b *testing.B, carrier string) {
	for _, streams := range []int{1, 8} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			tlsNear, tlsFar := tlsPair(b, streams)
			near, far := streamPair(b, carrier, streams)
			chunk := make([]byte, 64<<10)
			const turn = 64 << 20
			each := turn / streams
			move(near, far, each, chunk) // windows grow
			var wall, cpu, tlsWall, tlsCPU time.Duration
			b.SetBytes(turn)
			b.ReportAllocs()
			for b.Loop() {
				w, c := move(near, far, each, chunk)
				wall, cpu = wall+w, cpu+c
				b.StopTimer()
				w, c = move(tlsNear, tlsFar, each, chunk)
				tlsWall, tlsCPU = tlsWall+w, tlsCPU+c
				b.StartTimer()
			}
			gb := float64(b.N) * turn / 1e9
			b.ReportMetric(cpu.Seconds()/gb, "cpu-s/GB")
			b.ReportMetric(tlsWall.Seconds()/wall.Seconds(), "rate/tls")
			b.ReportMetric(cpu.Seconds()/tlsCPU.Seconds(), "cpu/tls")
		})
	}
}

// bounce sends one byte to and fro n times.
func bounce[A, B io.ReadWriter](near A, far B, n int) (wall, cpu time.Duration) {
	began, used := time.Now(), cpuTime()
	var wg sync.WaitGroup
	wg.Go(func() {
		var b [1]byte
		for range n {
			if _, err := io.ReadFull(far, b[:]); err != nil {
				panic(err)
			}
			far.Write(b[:])
		}
	})
	var b [1]byte
	for range n {
		near.Write(b[:])
		if _, err := io.ReadFull(near, b[:]); err != nil {
			panic(err)
		}
	}
	wg.Wait()
	return time.Since(began), cpuTime() - used
}

func BenchmarkPingPong(b *testing.B) {
	ranktest.Unwatched(b)
	tlsNear, tlsFar := tlsPair(b, 1)
	near, far := streamPair(b, CarrierTLS, 1)
	const turn = 500
	var wall, cpu, tlsWall, tlsCPU time.Duration
	b.ReportAllocs()
	for b.Loop() {
		w, c := bounce(near[0], far[0], turn)
		wall, cpu = wall+w, cpu+c
		b.StopTimer()
		w, c = bounce(tlsNear[0], tlsFar[0], turn)
		tlsWall, tlsCPU = tlsWall+w, tlsCPU+c
		b.StartTimer()
	}
	rounds := float64(b.N * turn)
	b.ReportMetric(float64(wall.Microseconds())/rounds, "µs/round")
	b.ReportMetric(float64(tlsWall.Microseconds())/rounds, "tls-µs/round")
	b.ReportMetric(cpu.Seconds()/tlsCPU.Seconds(), "cpu/tls")
}

// BenchmarkIdleStreams opens streams that carry nothing after their opening, and reports the memory that each
// takes on one side, its user's goroutine that reads it included.
func BenchmarkIdleStreams(b *testing.B) {
	ranktest.Unwatched(b)
	const streams = 10000
	for b.Loop() {
		paris, _ := tcpPair(b, echo, nil)
		before := inUse()
		var idle sync.WaitGroup
		for range streams {
			s, err := paris.Open(context.Background(), "tokyo", []byte("198.51.100.7:12345 192.0.2.9:23456"))
			if err != nil {
				b.Fatal(err)
			}
			idle.Go(func() { io.Copy(io.Discard, s) })
		}
		b.ReportMetric(float64(inUse()-before)/1024/2/streams, "KiB/stream")
		paris.Close()
		idle.Wait()
	}
}

// inUse returns the bytes of heap and stacks that are used after a collection.
func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

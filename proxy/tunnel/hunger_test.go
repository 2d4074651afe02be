package tunnel

import (
	"testing"
	"testing/synctest"
	"time"
)

// The bytes of a peer never take more memory than the budget and a tenth, however it sends them; streams of the peer
// that uses little are not touched.
func TestHungerForMemory(t *testing.T) {
	const memory, streams = 4 << 20, 1024 // with a credit of 16 KiB each
	first := func(b []byte, id uint64) []byte { return record(b, header{kind: kindData, stream: id}, 0, 0) }
	for name, send := range map[string]func(b []byte, id uint64) []byte{
		"unread": func(b []byte, id uint64) []byte {
			b = record(b, header{kind: kindData, stream: id, value: 2}, make([]byte, 8<<10)...)
			return record(b, header{kind: kindData, stream: id, value: 2 + 8<<10}, make([]byte, 7<<10)...)
		},
		"unread, all at once": func(b []byte, id uint64) []byte {
			return record(b, header{kind: kindData, stream: id, value: 2}, make([]byte, 15<<10-id%64)...) // some are the largest
		},
		"beyond a gap": func(b []byte, id uint64) []byte {
			return record(b, header{kind: kindData, stream: id, value: 100}, make([]byte, 15<<10)...)
		},
		"crumbs beyond a gap": func(b []byte, id uint64) []byte {
			for off := uint64(100); off < 132; off += 2 {
				b = record(b, header{kind: kindData, stream: id, value: off}, 1)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := besiege(t, nil, func(c *Config) { c.Memory, c.Streams = memory, streams })
				s.drain()
				s.flood(streams, func(b []byte, i uint64) []byte { return first(b, s.mallory.id(i)) })
				time.Sleep(time.Second)
				if n := s.tokyo.Stats()[1].Streams; n != streams {
					t.Fatalf("%d streams", n)
				}
				before := s.heap()
				s.flood(streams, func(b []byte, i uint64) []byte { return send(b, s.mallory.id(i)) })
				time.Sleep(100 * time.Millisecond) // less than it takes until readers are thought to sleep
				synctest.Wait()
				if used := s.tokyo.mem.used.Load(); used < memory*9/10 || used > memory*11/10+64<<10 {
					t.Errorf("%d bytes in buffers, not about %d", used, memory)
				}
				if n := s.heap() - before; n > memory*13/10+1<<20 { // the allocator rounds a chunk up by an eighth; streams and carriers are small
					t.Errorf("%d bytes are held, the budget is %d", n, memory)
				}
				other := s.paris.open("echo")
				pour(t, other, other, noise(2, 1<<20))
				time.Sleep(5 * time.Second) // in which nothing comes, nor is it confirmed that streams were reset
				if used := s.tokyo.mem.used.Load(); used > memory*95/100 {
					t.Errorf("%d bytes in buffers remain of %d, though nobody reads them", used, memory)
				}
				s.stands()
				s.lift()
			})
		})
	}
}

// A peer that gives any credit and takes everything, but acknowledges nothing, cannot make this side keep more than the
// budget, nor more than the largest window of one stream.
func TestNothingIsAcknowledged(t *testing.T) {
	for name, c := range map[string]struct {
		memory           int64
		streams          int
		minimum, maximum int64
	}{
		"one stream":   {512 << 20, 1, maxWindow, 4 * maxWindow}, // of the room in a chunk a quarter may be filled
		"many streams": {16 << 20, 100, 15 << 20, 17 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := besiege(t, func(in *Incoming) {
					st := in.Accept()
					defer st.Close()
					for b := make([]byte, 64<<10); ; {
						if _, err := st.Write(b); err != nil {
							return
						}
					}
				}, func(c2 *Config) { c2.Memory, c2.Streams = c.memory, c.streams+1 })
				s.drain()
				s.flood(c.streams, func(b []byte, i uint64) []byte {
					id := s.mallory.id(i)
					b = record(b, header{kind: kindData, stream: id}, 0, 0)
					return record(b, header{kind: kindWindow, stream: id}, limit(maxOffset)...)
				})
				time.Sleep(4 * time.Second)
				synctest.Wait()
				if used := s.tokyo.mem.used.Load(); used < c.minimum || used > c.maximum {
					t.Errorf("%d bytes are kept, not %d to %d", used, c.minimum, c.maximum)
				}
				other := s.paris.open("echo")
				pour(t, other, other, noise(2, 1<<20))
				s.stands()
				s.lift()
			})
		})
	}
}

// The answers of TLS to a peer that changes its key all the time do not pile up where nothing else is to be sent.
func TestUnflushedWritesAreBounded(t *testing.T) {
	f := &fabric{}
	to := &fabricConn{f: f, r: newPipe(0, 0), w: newPipe(0, 0)}
	g := &bufferedConn{Conn: to}
	g.begin()
	const n = 27 // bytes of a KeyUpdate
	for range 100_000 {
		if _, err := g.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	if limit := cap(g.out); limit > 2*maxPending {
		t.Errorf("%d bytes are pending", limit)
	}
	if g.flush(); to.w.holds() != 100_000*n {
		t.Errorf("%d bytes of %d have left", to.w.holds(), 100_000*n)
	}
}

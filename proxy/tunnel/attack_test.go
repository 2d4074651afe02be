package tunnel

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// record appends a record with that body.
func record(dst []byte, h header, body ...byte) []byte {
	h.length = len(body)
	return append(h.append(dst), body...)
}

// A peer that breaks the protocol is told why and loses its session, and nobody else does.
func TestAttackEndsOnlyItsSession(t *testing.T) {
	for _, c := range []struct {
		name, want string
		attack     func(s *siege)
	}{
		{"openings beyond the limit", "number 101 where 100 are allowed", func(s *siege) {
			s.flood(101, func(b []byte, i uint64) []byte {
				return record(b, header{kind: kindData, stream: s.mallory.id(i)}, 0, 0)
			})
		}},
		{"one opening far beyond it", "where 100 are allowed", func(s *siege) { s.mallory.say(header{kind: kindData, stream: s.mallory.id(1 << 40)}, []byte{0, 0}) }},
		{"data beyond credit", "whose credit ends at 262144", func(s *siege) {
			s.flood(100, func(b []byte, i uint64) []byte {
				return record(b, header{kind: kindData, stream: s.mallory.id(0), value: i << 14}, make([]byte, 16<<10)...)
			})
		}},
		{"a reset beyond credit", "beyond its credit of 262144", func(s *siege) {
			s.mallory.open(0, "")
			s.mallory.say(header{kind: kindReset, stream: s.mallory.id(0), value: 1 << 40}, make([]byte, 4))
		}},
		{"forgets a stream that is still to be answered", "DONE for stream", func(s *siege) {
			s.mallory.say(header{kind: kindData, flags: flagFin, stream: s.mallory.id(0)}, []byte{0, 0})
			s.mallory.say(header{kind: kindDone, stream: s.mallory.id(0)}, nil)
		}},
		{"acknowledges what was never sent", "acknowledges position 1099511627776", func(s *siege) {
			s.mallory.open(0, "")
			s.mallory.say(header{kind: kindWindow, stream: s.mallory.id(0), value: 1 << 40}, limit(1<<40))
		}},
		{"acknowledges a stream that nobody opened", "never opened", func(s *siege) {
			s.mallory.say(header{kind: kindWindow, stream: s.mallory.hersID(0), value: 0}, limit(1<<20))
		}},
		{"gives credit for a stream beyond the limit", "where 100 are allowed", func(s *siege) {
			s.mallory.say(header{kind: kindWindow, stream: s.mallory.id(100), value: 0}, limit(1<<20))
		}},
		{"says hello again", "HELLO record on an attached carrier", func(s *siege) {
			s.mallory.say(header{kind: kindHello}, s.mallory.hers.append(nil))
		}},
		{"says a long hello again", "HELLO record of 32768 bytes", func(s *siege) { s.mallory.say(header{kind: kindHello}, make([]byte, maxHello)) }},
		{"no record at all", "unknown record of kind", func(s *siege) { s.mallory.conn.Write([]byte("GET / HTTP/1.1\r\nHost: tokyo\r\n")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := besiege(t, nil, func(c *Config) { c.Streams = 100 })
				c.attack(s)
				s.mallory.until(kindEnd)
				s.fell(c.want)
				s.lift()
			})
		})
	}
}

// A record that claims a length that its kind cannot have is refused by its header, before memory is taken for it.
func TestHugeRecords(t *testing.T) {
	for k := kindHello; k <= kindLeave; k++ {
		t.Run(k.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := besiege(t, nil, nil)
				before := s.heap()
				h := header{kind: k, length: 1<<31 - 1}
				if k >= kindData && k <= kindDone {
					h.stream = s.mallory.id(0)
				}
				s.mallory.conn.Write(h.append(nil))
				s.mallory.until(kindEnd)
				if n := s.heap() - before; n > 256<<10 {
					t.Errorf("%d bytes are held for a header", n)
				}
				s.fell(fmt.Sprintf("%v record of 2147483647 bytes, not ", k))
				s.lift()
			})
		})
	}
}

// The same for a short header.
func TestHugeShortRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := besiege(t, nil, nil)
		before := s.heap()
		s.mallory.conn.Write(header{kind: kindData, stream: s.mallory.id(0), length: 1 << 40}.appendShort(nil))
		s.mallory.until(kindEnd)
		if n := s.heap() - before; n > 256<<10 {
			t.Errorf("%d bytes are held for a header", n)
		}
		s.fell("DATA record of 1099511627776 bytes, not ")
		s.lift()
	})
}

// Records that may come any number of times cost nothing that grows with their number, though none of the answers is
// taken.
func TestFloodsAreBounded(t *testing.T) {
	for name, flood := range map[string]func(s *siege, b []byte, i uint64) []byte{
		"PING":   func(_ *siege, b []byte, i uint64) []byte { return record(b, header{kind: kindPing, value: i}) },
		"PONG":   func(_ *siege, b []byte, i uint64) []byte { return record(b, header{kind: kindPong, value: i}) },
		"GOAWAY": func(_ *siege, b []byte, _ uint64) []byte { return record(b, header{kind: kindGoAway}) },
		"LEAVE":  func(_ *siege, b []byte, _ uint64) []byte { return record(b, header{kind: kindLeave}) },
		"WINDOW of all streams": func(_ *siege, b []byte, i uint64) []byte {
			return record(b, header{kind: kindWindow}, limit(i%maxOffset)...)
		},
		"WINDOW": func(s *siege, b []byte, i uint64) []byte {
			return record(b, header{kind: kindWindow, stream: s.mallory.id(i % 100)}, limit(maxOffset+i)...)
		},
		"short WINDOW": func(s *siege, b []byte, i uint64) []byte {
			return header{kind: kindWindow, stream: s.mallory.id(i % 100), credit: maxOffset + i}.appendShort(b)
		},
		"short DONE": func(s *siege, b []byte, i uint64) []byte {
			return header{kind: kindDone, stream: s.mallory.id(i % 100)}.appendShort(b)
		},
		"short DATA again and again": func(s *siege, b []byte, _ uint64) []byte {
			return append(header{kind: kindData, stream: s.mallory.id(0), length: 2}.appendShort(b), 0, 0)
		},
		"DATA again and again": func(s *siege, b []byte, _ uint64) []byte {
			return record(b, header{kind: kindData, stream: s.mallory.id(0)}, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := besiege(t, nil, func(c *Config) { c.Streams = 100 })
				send := func() {
					if !s.flood(20_000, func(b []byte, i uint64) []byte { return flood(s, b, i) }) {
						t.Fatal("the flood was not taken")
					}
					time.Sleep(100 * time.Millisecond)
					if n := s.mallory.conn.(*tls.Conn).NetConn().(*fabricConn).w.holds(); n != 0 {
						t.Fatalf("tokyo has not read %d bytes", n)
					}
				}
				send()
				more := math.MaxInt // of three times: the heap varies by some 100 KiB, and a leak is there each time
				for range 3 {
					before := s.heap()
					send()
					send()
					more = min(more, s.heap()-before)
				}
				if more > 128<<10 {
					t.Errorf("%d bytes more are held after 40,000 more records", more)
				}
				s.stands()
				s.lift()
			})
		})
	}
}

// Openings that are withdrawn at once keep their place until Accept has answered, so that there are never more of them
// than the limit (the attack CVE-2023-44487 on HTTP/2).
func TestWithdrawnOpeningsKeepTheirPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var running, largest atomic.Int64
		answer := make(chan bool)
		s := besiege(t, func(in *Incoming) {
			if n := running.Add(1); n > largest.Load() {
				largest.Store(n)
			}
			defer running.Add(-1)
			<-answer // it looks at nothing else, as one that dials
		}, func(c *Config) { c.Streams = 100 })
		s.drain()
		withdraw := func(first, n int) {
			s.flood(n, func(b []byte, i uint64) []byte {
				return record(b, header{kind: kindData, stream: s.mallory.id(uint64(first) + i)}, 0, 0)
			})
			time.Sleep(time.Second) // Accept sees them
			s.flood(n, func(b []byte, i uint64) []byte {
				return record(b, header{kind: kindReset, stream: s.mallory.id(uint64(first) + i), value: 2}, 0, 0, 0, 1)
			})
			time.Sleep(time.Second)
			synctest.Wait()
		}
		withdraw(0, 100)
		s.stands()
		if n := running.Load(); n != 100 {
			t.Fatalf("%d openings wait for their answer", n)
		}
		for range 50 {
			answer <- true
		}
		withdraw(100, 50) // in the place of the ones that were answered
		s.stands()
		withdraw(150, 1000)
		if n := largest.Load(); n > 100 {
			t.Errorf("%d openings at once where 100 are allowed", n)
		}
		close(answer)
		s.fell("where 150 are allowed")
		s.lift()
	})
}

// A peer that opens and ends streams without end, but confirms no record about them, is stopped: the memory that
// these records take is bounded.
func TestEndedStreamsThatNobodyHearsOf(t *testing.T) {
	for name, withdraw := range map[string]func(b []byte, id uint64) []byte{
		"after the opening": func(b []byte, id uint64) []byte {
			b = record(b, header{kind: kindData, stream: id}, 0, 0)
			return record(b, header{kind: kindReset, stream: id, value: 2}, 0, 0, 0, 1)
		},
		"before it": func(b []byte, id uint64) []byte {
			return record(b, header{kind: kindReset, stream: id}, 0, 0, 0, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const streams = 100
				s := besiege(t, func(in *Incoming) { in.Refuse(CodeApp, "") }, func(c *Config) { c.Streams = streams })
				s.drain()
				before := s.heap()
				first := uint64(0)
				for ; first < 1<<16 && s.tokyo.Stats()[1].Carriers > 0; first += streams / 2 {
					s.flood(streams/2, func(b []byte, i uint64) []byte { return withdraw(b, s.mallory.id(first+i)) })
					time.Sleep(2 * ackDelay)
				}
				if n := s.heap() - before; n > 512<<10 || first < 2*streams {
					t.Errorf("%d bytes are held after %d streams", n, first)
				}
				s.fell("where ")
				s.lift()
			})
		})
	}
}

// Another peer's incarnation is worth nothing without its certificate: it is a name for a session of mallory's own.
func TestResumesAnotherSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := besiege(t, nil, nil)
		session := s.tokyo.list()[0].session()
		theirs := session.known()
		thief := s.intrude(theirs, func(h *hello) {
			h.name, h.yours = "paris", session.mine
			h.place.replace, h.place.generation = true, 1<<64-1
		})
		if thief.hers.mine == session.mine {
			t.Error("mallory was let into the session of paris")
		}
		s.mallory.until(kind(0)) // its older session is over
		time.Sleep(time.Second)
		if got := s.tokyo.list()[0].session(); got != session || got.known() != theirs {
			t.Error("paris has another session")
		}
		thief.say(header{kind: kindEnd}, []byte("bye"))
		time.Sleep(time.Second)
		s.lift()
	})
}

// READY needs the incarnation that the acceptor has just said: one that was heard before attaches to nothing, and
// leaves the session as it is.
func TestReadyIsForThisHandshake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := besiege(t, nil, nil)
		before := s.tokyo.list()[1].session()
		c := s.tls(nil)
		p := &puppet{t: t, conn: c}
		h := *s.mallory.hers
		h.name, h.mine, h.place = "mallory", newIncarnation(), place{} // as one that has restarted
		p.say(header{kind: kindHello}, h.append(nil))
		p.until(kindReady)
		p.say(header{kind: kindReady}, s.mallory.hers.mine[:]) // of the older session
		p.until(kind(0))
		if s.tokyo.list()[1].session() != before {
			t.Error("the older session was given up")
		}
		s.stands()
		s.lift()
	})
}

// Connections that say nothing are held to a number, and each to little memory.
func TestSilentConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := besiege(t, nil, nil)
		var silent []net.Conn
		dial := func(n int) {
			for range n {
				c, err := s.f.dial(t.Context(), "tcp", "tokyo:1")
				if err != nil {
					t.Fatal(err)
				}
				silent = append(silent, c)
			}
		}
		before := s.heap()
		dial(maxHalfOpenSource)
		if n := (s.heap() - before) / maxHalfOpenSource; n > 16<<10 {
			t.Errorf("%d bytes are held for each connection that says nothing", n)
		}
		before = s.heap()
		dial(10 * maxHalfOpenSource)
		synctest.Wait()
		s.tokyo.halfOpen.mu.Lock()
		if n := s.tokyo.halfOpen.groups[waits].n; n != maxHalfOpenSource {
			t.Errorf("%d connections are held, want %d", n, maxHalfOpenSource)
		}
		s.tokyo.halfOpen.mu.Unlock()
		for _, c := range silent[:10*maxHalfOpenSource] {
			c.Close()
		}
		silent = append([]net.Conn(nil), silent[10*maxHalfOpenSource:]...)
		if n := s.heap() - before; n > 1<<20 { // timers of ended connections are there until their time; one that is held takes up to 16 KiB
			t.Errorf("%d bytes more are held after %d more connections", n, 10*maxHalfOpenSource)
		}
		s.stands()
		for _, c := range silent {
			c.Close()
		}
		s.lift()
	})
}

// A refusal's text is the peer's: whatever it contains, it is one line for a log.
func TestRefusalIsOneLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := besiege(t, nil, nil)
		failed := make(chan error)
		go func() {
			_, err := s.tokyo.Open(t.Context(), "mallory", []byte("please"))
			failed <- err
		}()
		h, _ := s.mallory.until(kindData)
		text := "no\nlevel=ERROR msg=\"disk on fire\"\r\x1b[2J\xff\u2028\u202e"
		b := binary.BigEndian.AppendUint32(nil, uint32(CodeApp))
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
		s.mallory.say(header{kind: kindData, flags: flagFin, stream: h.stream}, b)
		var no *RefusedError
		if err := <-failed; !errors.As(err, &no) || no.Code != CodeApp {
			t.Fatal(err)
		}
		if want := "no level=ERROR msg=\"disk on fire\"  [2J\ufffd  "; no.Text != want {
			t.Errorf("%q, not %q", no.Text, want)
		}
		s.drain()
		s.lift()
	})
}

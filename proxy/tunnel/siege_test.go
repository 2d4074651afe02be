package tunnel

import (
	"crypto/tls"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A siege is a site with two peers: one is honest and has a stream open, the other one, mallory, has a certificate as
// good as the first one's and no manners.
type siege struct {
	t            *testing.T
	f            *fabric
	tokyo, paris *site
	honest       *Stream // of paris, which tokyo echoes
	mallory      *puppet
	id           func(name string) Identity

	mu   sync.Mutex
	lost []string // sessions that tokyo has lost: peer and reason
}

// keep accepts a stream and neither reads nor writes.
func keep(in *Incoming) {
	st := in.Accept()
	<-st.Done()
	st.Close()
}

// besiege starts the sites and lets mallory in. accept answers mallory's openings; nil: keep.
func besiege(t *testing.T, accept func(in *Incoming), change func(*Config)) *siege {
	t.Helper()
	if accept == nil {
		accept = keep
	}
	s := &siege{t: t, f: &fabric{delay: time.Millisecond}, id: identities(t, "tokyo", "paris", "mallory")}
	cfg := Config{Name: "tokyo", Identity: s.id("tokyo"),
		Peers: []Peer{{Name: "paris", ID: "spiffe://lab/paris"}, {Name: "mallory", ID: "spiffe://lab/mallory"}},
		Accept: func(peer string, opening []byte, in *Incoming) {
			if peer == "paris" {
				echo(peer, opening, in)
			} else {
				accept(in)
			}
		},
		Events: Events{SessionLost: func(peer string, reason error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lost = append(s.lost, peer+": "+reason.Error())
		}},
	}
	s.tokyo = s.f.site(t, cfg, change)
	s.paris = s.f.site(t, Config{Name: "paris", Identity: s.id("paris"), Peers: []Peer{{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: "tokyo:1"}}}, nil)
	up(s.paris)
	s.honest = s.paris.open("echo")
	s.mallory = s.intrude(newIncarnation(), nil)
	up(s.tokyo)
	return s
}

// tls dials tokyo with mallory's certificate. keys, unless nil, gets the secrets of the connection.
func (s *siege) tls(keys io.Writer) *tls.Conn {
	s.t.Helper()
	raw, err := s.f.dial(s.t.Context(), "tcp", "tokyo:1")
	if err != nil {
		s.t.Fatal(err)
	}
	id := s.id("mallory")
	cert, err := tls.LoadX509KeyPair(id.Cert, id.Key)
	if err != nil {
		s.t.Fatal(err)
	}
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}, NextProtos: []string{protocolName}, KeyLogWriter: keys})
	if err := c.Handshake(); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// intrude brings one more carrier of mallory's.
func (s *siege) intrude(mine incarnation, change func(*hello)) *puppet {
	s.t.Helper()
	return greet(s.t, s.tls(nil), mine, change)
}

// flood sends the bytes that record appends, n times, in large pieces; false: tokyo takes no more.
func (s *siege) flood(n int, record func(dst []byte, i uint64) []byte) bool {
	var b []byte
	for i := range uint64(n) {
		if b = record(b, i); len(b) > 64<<10 {
			if _, err := s.mallory.conn.Write(b); err != nil {
				return false
			}
			b = b[:0]
		}
	}
	_, err := s.mallory.conn.Write(b)
	return err == nil
}

// fell checks that mallory's session has ended, for a reason that contains want and is one line, which mallory hears
// too if it listens.
func (s *siege) fell(want string) {
	s.t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lost) != 1 || !strings.HasPrefix(s.lost[0], "mallory: protocol broken") || !strings.Contains(s.lost[0], want) || strings.Contains(s.lost[0], "\n") {
		s.t.Errorf("lost sessions %q, not one for %q", s.lost, want)
	}
}

// stands checks that mallory's session goes on, since its records are allowed.
func (s *siege) stands() {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.tokyo.Stats()[1]; len(s.lost) != 0 || st.Carriers == 0 {
		s.t.Errorf("lost sessions %q, %+v", s.lost, st)
	}
}

// lift checks that paris was left alone all the time, and that once mallory has gone nothing of it is left.
func (s *siege) lift() {
	s.t.Helper()
	pour(s.t, s.honest, s.honest, noise(1, 1<<20))
	s.honest.Close()
	s.tokyo.SetPeers(s.tokyo.cfg.Peers[:1])
	s.mallory.conn.Close()
	time.Sleep(time.Minute)
	for name, st := range map[string]PeerStats{"paris": s.paris.Stats()[0], "tokyo": s.tokyo.Stats()[0]} {
		if st.Sessions != 1 || st.Outages != 0 || st.Replayed != 0 || st.Carriers != 2 {
			s.t.Errorf("at %s the honest peer's session suffered: %+v", name, st)
		}
	}
	if used, granted := s.tokyo.mem.used.Load(), s.tokyo.mem.granted.Load(); used != 0 || granted != 0 {
		s.t.Errorf("%d bytes in buffers, %d of credit are left", used, granted)
	}
}

// heap returns how many bytes are allocated and still in use, without the bytes under way in the fabric.
func (s *siege) heap() int {
	synctest.Wait()
	runtime.GC()
	runtime.GC() // the first one leaves the victims of sync.Pool
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	n := int(m.HeapAlloc)
	s.f.each(func(c *fabricConn) { n -= c.r.holds() + c.w.holds() })
	return n
}

func (p *pipe) holds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// drain takes tokyo's bytes to mallory and forgets them.
func (s *siege) drain() { go io.Copy(io.Discard, s.mallory.conn) }

package tunnel

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// A diary keeps the lines of a log.
type diary struct {
	mu   sync.Mutex
	text strings.Builder
}

func (d *diary) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(p)
}

// about returns the warnings that contain the text.
func (d *diary) about(what string) (lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for line := range strings.Lines(d.text.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, what) {
			lines = append(lines, line)
		}
	}
	return lines
}

const twoProxies = "two proxies show the certificate of"

// rivals starts a second proxy of a site of f, which has the first one's name and certificate.
func rivals(t *testing.T, first *site) *site {
	return first.f.site(t, first.cfg, nil)
}

// A second proxy with a site's certificate is kept out as long as the first one lives, whichever side dials. The log
// says so once.
func TestSecondProxyOfASiteIsKeptOut(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		var log diary
		f := &fabric{delay: 20 * time.Millisecond}
		near, far, paris, tokyo := meet(t, func(c *Config) {
			if c.Name == "tokyo" {
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			}
		}, f)
		second := rivals(t, paris)
		time.Sleep(10 * time.Minute)
		pour(t, near, far, noise(1, 1<<20))
		if a := tokyo.Stats()[0]; a.Sessions != 1 || a.Carriers != 2 {
			t.Errorf("tokyo has had %d sessions, and has %d carriers", a.Sessions, a.Carriers)
		}
		if second.Stats()[0].Session {
			t.Error("the second proxy has a session")
		}
		if w := log.about(twoProxies); len(w) != 1 || strings.Count(w[0], fabricAddr.String()) < 2 || !strings.Contains(w[0], "paris") {
			t.Errorf("warnings %q, want one, with the site and two addresses", w)
		}

		paris.Close()
		time.Sleep(2*backoffTo + time.Second)
		if !second.Stats()[0].Session {
			t.Error("the second proxy has no session after the first one has ended")
		}
	})
}

func TestSecondProxyOfASiteThatIsDialed(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		var log diary
		f := &fabric{delay: 20 * time.Millisecond}
		near, far, paris, tokyo := meet(t, func(c *Config) {
			if c.Name == "paris" {
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			}
		}, f)
		second := rivals(t, tokyo) // dials reach it from now on
		f.mu.Lock()
		one := f.links[0]
		f.mu.Unlock()
		one.kill()
		time.Sleep(10 * time.Minute)
		pour(t, near, far, noise(1, 1<<20))
		if a := paris.Stats()[0]; a.Sessions != 1 || a.Carriers != 1 {
			t.Errorf("paris has had %d sessions, and has %d carriers", a.Sessions, a.Carriers)
		}
		if second.Stats()[0].Session {
			t.Error("the second proxy has a session")
		}
		if w := log.about(twoProxies); len(w) != 1 {
			t.Errorf("warnings %q, want one", w)
		}
	})
}

// A proxy that starts again, and one that dials it for the session before it knows that, are no rivals: the log says
// nothing of two proxies.
func TestRestartIsNoRival(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		var log diary
		f := &fabric{delay: 20 * time.Millisecond}
		_, _, paris, tokyo := meet(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, f)
		p := tokyo.list()[0]
		s := p.session()
		for range 3 { // carriers of several slots
			if !p.warned(s) {
				t.Error("a rival that has come just now is told of")
			}
		}
		time.Sleep(2 * rivalStays)
		if p.warned(s) || !p.warned(s) {
			t.Error("a rival that stays is not told of once")
		}
		paris.Close()
		second := rivals(t, paris)
		time.Sleep(10 * time.Second)
		if !second.Stats()[0].Session || len(log.about(twoProxies)) != 0 {
			t.Errorf("session %v, warnings %q", second.Stats()[0].Session, log.about(twoProxies))
		}
	})
}

// A host that is gone without a word is not waited for longer than the answer to a PING may take.
func TestSuccessorOfASilentProxy(t *testing.T) {
	for name, gone := range map[string]func(*fabricConn){"reset": (*fabricConn).kill, "silent": (*fabricConn).swallow} {
		t.Run(name, func(t *testing.T) {
			bubbles(t, func(t *testing.T) {
				f := &fabric{delay: 20 * time.Millisecond}
				_, far, paris, _ := meet(t, nil, f)
				f.setDown(true)
				f.each(gone)
				paris.Close()
				f.setDown(false)
				began := time.Now()
				second := rivals(t, paris)
				for !second.Stats()[0].Session {
					if time.Since(began) > time.Minute {
						t.Fatal("the successor has no session after a minute")
					}
					time.Sleep(10 * time.Millisecond)
				}
				if took, limit := time.Since(began), answerWithin+backoffTo; took > limit {
					t.Errorf("the successor has a session after %v, want %v at most", took, limit)
				}
				if _, err := far.Read(make([]byte, 1)); !errors.Is(err, ErrSessionLost) {
					t.Errorf("a stream of the older session: %v", err)
				}
			})
		})
	}
}

package site

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/intercept"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// An answer notes the code with which an opening was refused; 0: it was not refused.
type answer struct{ code tunnel.Code }

func (a *answer) Refuse(code tunnel.Code, _ string) { a.code = code }
func (a *answer) Done() <-chan struct{}             { return nil }

// An admission without places refuses at once, and logs it once a second.
func TestDoorRefusesWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &buffer{}
		d := &admission{places: intercept.NewPlaces(1), log: slog.New(slog.NewTextHandler(log, nil))}
		refuse := func() {
			t.Helper()
			a := &answer{}
			d.admit("paris", nil, a, func(func()) { t.Error("carried without a place") })
			if a.code != refusedFull {
				t.Errorf("answered with %v, want %v", a.code, refusedFull)
			}
		}
		d.admit("paris", nil, &answer{}, func(ended func()) {
			defer ended()
			for range 3 {
				refuse()
			}
			time.Sleep(time.Second) // of the bubble's clock
			refuse()
		})
		carried := false
		d.admit("paris", nil, &answer{}, func(ended func()) { carried = true; ended() })
		if !carried {
			t.Error("a place that was left is not free")
		}
		if n := strings.Count(log.String(), "too many"); n != 2 || !strings.Contains(log.String(), "refused=3") {
			t.Errorf("logged %d times, want 2, the second of 3 refusals:\n%s", n, log)
		}
	})
}

// A peer resumes a connection, or asks for rest, where no place is free.
func TestDoorStaysOpenForConnectionsThatMove(t *testing.T) {
	d := &admission{places: intercept.NewPlaces(0), log: slog.New(slog.DiscardHandler)}
	for _, opening := range [][]byte{{frame.OpeningRest}, frame.AppendResume(nil, frame.Tag{Number: 1, Mine: true})} {
		served, a := false, &answer{}
		d.admit("paris", opening, a, func(func()) { served = true })
		if !served || a.code != 0 {
			t.Errorf("opening %x without a place: refused with %v", opening, a.code)
		}
	}
}

func TestMaxStreams(t *testing.T) {
	for _, c := range []struct{ places, peers, want int }{{960, 2, 480}, {1, 3, 1}, {960, 0, 960}, {1 << 20, 2, 16384}} {
		if got := maxStreams(c.places, c.peers); got != c.want {
			t.Errorf("maxStreams(%d, %d) = %d, want %d", c.places, c.peers, got, c.want)
		}
	}
}

// Connections that peers open count where intercepted ones do.
func TestPeersPassTheGate(t *testing.T) {
	l := newLab(t)
	near := l.run(l.load(0, forwardTo(t, echo(t, "127.0.2.9"))))
	far := l.run(l.load(1, ""))
	near.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	for far.places.TryEnter() {
	}
	c, err := net.Dial("tcp", near.forwarded)
	if err == nil { // the reset may come first
		_, err = io.ReadAll(c)
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("without a place: %v, want a reset", err)
	}
	for who, log := range map[string]*buffer{"near": near.log, "far": far.log} {
		if !strings.Contains(log.String(), "too many connections") {
			t.Errorf("the log of the %s site does not say why:\n%s", who, log)
		}
	}
	far.places.Leave()
	if err := talk(connect(t, near.forwarded), "bonjour"); err != nil {
		t.Errorf("one place is free: %v", err)
	}
}

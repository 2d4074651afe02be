package tunnel

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// A logText is a log.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines returns the lines so far that have a part, and forgets all.
func (l *logText) lines(part string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	l.b.Reset()
	return found
}

// logged returns a change of a Config by which both sites write to one log.
func logged(log *logText) func(*Config) {
	return func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, nil)).With("site", c.Name)
	}
}

// An outage is seen within 3 s by a side that has sent something, well before a carrier is given up, and is over as
// soon as bytes come back. Nothing is reset, lost, or sent again by the tunnel.
func TestOutageIsSeen(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		f := &fabric{delay: 10 * time.Millisecond}
		var log logText
		near, far, paris, tokyo := meet(t, logged(&log), f)
		time.Sleep(time.Minute) // idle, but for PING
		if o := paris.Stats()[0].Outage; o != 0 {
			t.Errorf("an idle pair has an outage of %v", o)
		}
		f.each(func(c *fabricConn) { c.stall(true) })
		near.Write([]byte("word"))
		time.Sleep(1500 * time.Millisecond)
		if o := paris.Stats()[0].Outage; o != 0 {
			t.Errorf("after 1.5 s there is an outage of %v", o)
		}
		time.Sleep(1500 * time.Millisecond)
		st := paris.Stats()[0]
		if st.Outage < 2*time.Second || st.Outage > 3*time.Second || st.Carriers != 2 || st.Outages != 1 || st.Rate != 0 || st.RTT != 0 {
			t.Errorf("after 3 s: %+v", st)
		}
		if lines := log.lines("site=paris peer=tokyo silent=2"); len(lines) != 1 || !strings.Contains(lines[0], "nothing comes back from the peer") {
			t.Errorf("the log says %q", lines)
		}
		time.Sleep(7 * time.Second)
		if o := tokyo.Stats()[0].Outage; o == 0 { // its PING shows it
			t.Error("the other side, which waits, sees no outage")
		}
		log.lines("")
		f.each(func(c *fabricConn) { c.stall(false) })
		b := make([]byte, 4)
		if _, err := io.ReadFull(far, b); err != nil || string(b) != "word" {
			t.Errorf("%q, %v", b, err)
		}
		time.Sleep(time.Second)
		for _, s := range []*site{paris, tokyo} {
			if st := s.Stats()[0]; st.Outage != 0 || st.RTT == 0 || st.Outages != 1 || st.Replayed != 0 || st.Sessions != 1 {
				t.Errorf("%s afterwards: %+v", s.cfg.Name, st)
			}
		}
		lines := log.lines("outage is over")
		if len(lines) != 2 {
			t.Errorf("the log says %q", lines)
		}
		for _, line := range lines {
			if strings.Contains(line, "site=paris") && !strings.Contains(line, "lasted=10") || !strings.Contains(line, "carriers_lost=0 bytes_sent_again=0") {
				t.Errorf("the log says %q", line)
			}
		}
	})
}

// The line at the end of an outage says how long it was and how many bytes the tunnel has sent again, once it has.
func TestOutageThatTakesCarriers(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		f := &fabric{delay: 10 * time.Millisecond, rate: 1 << 20}
		var log logText
		near, far, paris, _ := meet(t, logged(&log), f)
		f.setDown(true)
		f.each((*fabricConn).swallow)
		sent := make([]byte, 100_000)
		near.Write(sent)
		time.Sleep(time.Minute)
		if st := paris.Stats()[0]; st.Outage < 59*time.Second || st.Outages != 1 || st.Carriers != 0 {
			t.Errorf("after a minute: %+v", st)
		}
		if lines := log.lines("msg=\"outage: nothing"); len(lines) != 2 {
			t.Errorf("the log says %q", lines)
		}
		f.setDown(false)
		if _, err := io.ReadFull(far, make([]byte, len(sent))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		again := paris.Stats()[0].Replayed
		var ours []string
		for _, line := range log.lines("outage is over") {
			if strings.Contains(line, "site=paris") {
				ours = append(ours, line)
			}
		}
		if len(ours) != 1 || again < 100_000 || !strings.Contains(ours[0], "lasted=1m") || !strings.Contains(ours[0], fmt.Sprintf("carriers_lost=2 bytes_sent_again=%d\n", again)) {
			t.Errorf("%d bytes were sent again, and the log says %q", again, ours)
		}
	})
}

// No outage: a path of 1.5 s there and back, on which answers to a word after an idle time take that long; a peer that
// takes nothing, since its kernel answers; and a machine that stood still for a while.
func TestNoFalseOutage(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		f := &fabric{delay: 750 * time.Millisecond}
		paris, tokyo := f.pair(t, func(_ string, _ []byte, in *Incoming) { in.Accept() }, nil)
		time.Sleep(time.Minute)
		near := paris.open("")
		for range 20 {
			time.Sleep(7 * time.Second)
			near.Write(make([]byte, 1000))
		}
		for range 15 {
			time.Sleep(100 * time.Millisecond)
			near.Write(make([]byte, 10_000)) // up to its credit, since nobody reads
			s := paris.peers[0].session()
			s.listen(time.Now(), true) // stood still
		}
		for _, s := range []*site{paris, tokyo} {
			if n := s.Stats()[0].Outages; n != 0 {
				t.Errorf("%s has seen %d outages", s.cfg.Name, n)
			}
		}
	})
}

package proxy

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/logsample"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A logBuffer is a log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// refusals notes the code of the last one.
type refusals struct{ last tunnel.Code }

func (r *refusals) Done() <-chan struct{}             { return nil }
func (r *refusals) Refuse(code tunnel.Code, _ string) { r.last = code }

// A peer that asks again and again for a destination that it may not have does not fill the log, and hides no other
// peer.
func TestDeniedOpeningsDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		chosen, err := policy.New(nil, testCodecs)
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(Config{Codecs: testCodecs, Settings: Settings{Policy: chosen}, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Open: func(context.Context, string, []byte) (Stream, error) { return nil, tunnel.ErrPeerDown }})
		if err != nil {
			t.Fatal(err)
		}
		lines := func(peer string) int {
			return strings.Count(log.String(), `msg="peer's connection refused" peer=`+peer)
		}
		var in refusals
		ask := func(peer string, port uint16) {
			o := frame.Opening{Client: mustAddrs("10.2.0.1:40000")[0], Server: netip.AddrPortFrom(netip.MustParseAddr("10.1.0.1"), port)}
			p.Accept(peer, o.Append(nil), &in, nil, func() {})
			if in.last != frame.RefusedDenied {
				t.Fatalf("answered with %v, want a denial", in.last)
			}
		}
		for port := range uint16(6000) {
			ask("tokyo", port+1)
		}
		ask("virginia", 1)
		if got := lines("tokyo"); got != logsample.Burst {
			t.Errorf("6000 denied openings make %d lines, want %d", got, logsample.Burst)
		}
		if got := lines("virginia"); got != 1 {
			t.Errorf("%d lines for the other peer, want 1:\n%s", got, &log)
		}
		time.Sleep(logsample.Interval)
		synctest.Wait()
		if got := lines("tokyo"); got != logsample.Burst+1 || !strings.Contains(log.String(), "reason=denied") || !strings.Contains(log.String(), "suppressed=5994") {
			t.Errorf("the log does not say how many were denied:\n%s", &log)
		}
		p.Close()
	})
}

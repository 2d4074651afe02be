package tunnel

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// newReporter returns a reporter that writes its log into the buffer, with no times.
func newReporter() (*reporter, *bytes.Buffer) {
	var b bytes.Buffer
	return &reporter{log: slog.New(slog.NewTextHandler(&b, nil))}, &b
}

// The carriers of a peer fail together: the log has one line for each reason, until a carrier was up in between.
func TestFailuresAreLoggedOnce(t *testing.T) {
	r, log := newReporter()
	p := new(peer)
	fails := func(reason string) { r.carrierFailed("tokyo", errors.New(reason), p.saidBefore(reason)) }
	fails("refused")
	fails("refused")
	fails("timed out")
	fails("timed out")
	p.saidBefore("") // a carrier is up
	fails("timed out")
	if got := strings.Count(log.String(), "no carrier"); got != 3 || strings.Count(log.String(), "refused") != 1 {
		t.Errorf("%d lines, want 3:\n%s", got, log)
	}
}

// Only a session that is lost with streams and without a word is a warning.
func TestEndsOfSessionsInTheLog(t *testing.T) {
	for _, x := range []struct {
		streams   int
		announced bool
		want      string
	}{
		{0, false, `level=INFO msg="session has ended, no stream was open"`},
		{0, true, `level=INFO msg="session has ended, no stream was open"`},
		{2, true, `level=INFO msg="the peer has ended in order"`},
		{2, false, `level=WARN msg="session lost, all its streams are reset"`},
	} {
		r, log := newReporter()
		if r.sessionLost("tokyo", errors.New("the reason"), x.streams, x.announced); !strings.Contains(log.String(), x.want) {
			t.Errorf("%d streams, announced: %v: %s, want %s", x.streams, x.announced, log, x.want)
		}
	}
}

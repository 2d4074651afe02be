package logsample

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"testing/synctest"
	"time"
)

// A buffer is a log of text lines without their time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(regexp.MustCompile(`time=\S+ `).ReplaceAll(p, nil))
}

// take returns the lines since the last call.
func (b *buffer) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.b.Reset()
	return slices.Collect(strings.Lines(b.b.String()))
}

func newLog() (*slog.Logger, *Handler, *buffer) {
	b := &buffer{}
	h := New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return slog.New(h), h, b
}

// A storm costs a few lines, then one an interval that says how many others there were; after a quiet interval the next
// lines pass again.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, _, out := newLog()
		for i := range 1000 {
			log.Warn("refused", "peer", "tokyo", "n", i)
		}
		if got := out.take(); len(got) != Burst || got[0] != "level=WARN msg=refused peer=tokyo n=0\n" {
			t.Errorf("at once: %q, want the first %d", got, Burst)
		}
		time.Sleep(Interval)
		synctest.Wait()
		if got := out.take(); len(got) != 1 || got[0] != "level=WARN msg=refused peer=tokyo n=999 suppressed=994\n" {
			t.Errorf("after the interval: %q, want the last and 994 others", got)
		}
		log.Warn("refused", "peer", "tokyo", "n", 1000)
		if got := out.take(); len(got) != 0 {
			t.Errorf("while it goes on: %q, want nothing yet", got)
		}
		time.Sleep(Interval)
		synctest.Wait()
		if got := out.take(); len(got) != 1 || got[0] != "level=WARN msg=refused peer=tokyo n=1000\n" {
			t.Errorf("after the next interval: %q, want the one that was left out", got)
		}
		time.Sleep(Interval)
		synctest.Wait()
		log.Warn("refused", "peer", "tokyo", "n", 1001)
		if got := out.take(); len(got) != 1 || got[0] != "level=WARN msg=refused peer=tokyo n=1001\n" {
			t.Errorf("after a quiet interval: %q, want the line at once", got)
		}
	})
}

// One peer's storm hides neither another peer's lines nor other reasons, levels and messages; With counts as the rest.
func TestKindsAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, h, out := newLog()
		for range 100 {
			log.With("peer", "tokyo").Warn("refused", "reason", "denied", "client", "a")
			log.With("reason", "denied").With("client", "b").Warn("refused", "peer", "tokyo")
		}
		if n := len(out.take()); n != Burst {
			t.Fatalf("%d lines of one kind pass, want %d", n, Burst)
		}
		log.Warn("refused", "reason", "denied", "peer", "virginia")
		log.Warn("refused", "reason", "busy", "peer", "tokyo")
		log.Error("refused", "reason", "denied", "peer", "tokyo")
		log.Warn("reset", "reason", "denied", "peer", "tokyo")
		if got := out.take(); len(got) != 4 {
			t.Errorf("%q, want four lines", got)
		}
		for range 100 {
			log.Debug("refused", "reason", "denied", "peer", "tokyo")
		}
		if n := len(out.take()); n != 100 {
			t.Errorf("%d lines for a reader of debug records, want all 100", n)
		}
		h.Flush()
		if got := out.take(); len(got) != 1 || !strings.Contains(got[0], "client=b peer=tokyo suppressed=194") {
			t.Errorf("flushed: %q, want one line for 195", got)
		}
	})
}

// However many kinds are made up, memory and lines are bounded.
func TestKindsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, h, out := newLog()
		for i := range 10 * maxKinds {
			log.Warn(fmt.Sprint("message ", i))
		}
		if n := len(out.take()); n != maxKinds+Burst {
			t.Errorf("%d lines, want %d", n, maxKinds+Burst)
		}
		if n := len(h.kinds.tallies); n > maxKinds+1 {
			t.Errorf("%d kinds are kept", n)
		}
		h.Flush()
	})
}

// It is a handler as slog wants them, and is not put around itself.
func TestHandler(t *testing.T) {
	var b bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		b.Reset()
		return New(slog.NewJSONHandler(&b, nil))
	}, func(t *testing.T) (record map[string]any) {
		if err := json.Unmarshal(b.Bytes(), &record); err != nil {
			t.Fatal(err)
		}
		return record
	})
	if h := New(slog.DiscardHandler); New(h) != h {
		t.Error("New wraps a Handler")
	}
}

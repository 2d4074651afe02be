package proxy

import (
	"io"
	"log/slog"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
)

// Connections beyond the bound have no poll gates, and are carried all the same; connections that end give theirs back.
func TestPollGatesAreBounded(t *testing.T) {
	p := &Proxy{config: Config{PollGates: 1}}
	carried := func() (gated bool, done func()) {
		t.Helper()
		far, near, err := pathtest.Connect()
		if err != nil {
			t.Fatal(err)
		}
		before := p.gated.Load()
		end, done := p.gate(near, slog.New(slog.DiscardHandler))
		t.Cleanup(func() {
			far.Close()
			end.Close()
		})
		if _, err := end.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return p.gated.Load() > before, done
	}
	first, end := carried()
	if !first {
		t.Skip("there are no poll gates on this system")
	}
	second, endSecond := carried()
	if second {
		t.Error("there are more poll gates than allowed")
	}
	endSecond()
	end()
	if third, _ := carried(); !third {
		t.Error("a connection that has ended keeps its poll gates")
	}
}

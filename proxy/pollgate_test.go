package proxy

import (
	"io"
	"log/slog"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/path"
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
		plain := app.Plain(near)
		c := &path.Conn{App: plain, Log: slog.New(slog.DiscardHandler)}
		done = p.gate(near, c)
		t.Cleanup(func() {
			far.Close()
			c.App.Close()
		})
		if _, err := c.App.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return c.App != plain, done
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

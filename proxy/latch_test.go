package proxy

import (
	"io"
	"log/slog"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/internal/latch"
)

// Connections beyond the bound have no latches, and are carried all the same; those that end give theirs back.
func TestLatchesAreBounded(t *testing.T) {
	p := &Proxy{Config: Config{Latches: 1}}
	carried := func() (latched bool, done func()) {
		t.Helper()
		far, app, err := tcpPair()
		if err != nil {
			t.Fatal(err)
		}
		plain := latch.Plain(app)
		c := &connection{conn: plain, log: slog.New(slog.DiscardHandler)}
		done = p.latch(app, c)
		t.Cleanup(func() {
			far.Close()
			c.conn.Close()
		})
		if _, err := c.conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return c.conn != plain, done
	}
	first, end := carried()
	if !first {
		t.Skip("there are no latches on this system")
	}
	second, endSecond := carried()
	if second {
		t.Error("there are more latches than allowed")
	}
	endSecond()
	end()
	if third, _ := carried(); !third {
		t.Error("a connection that has ended keeps its latches")
	}
}

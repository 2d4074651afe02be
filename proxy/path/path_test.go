package path_test

import (
	"io"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A resetStream notes the codes with which it was reset.
type resetStream struct {
	pathtest.Sink
	codes []tunnel.Code
}

func (s *resetStream) Reset(code tunnel.Code) { s.codes = append(s.codes, code) }

// A peer that has not said which codecs it has has all; parameters do not count.
func TestLacks(t *testing.T) {
	for _, c := range []struct {
		codecs []string
		text   string
		lacks  bool
	}{
		{nil, "3lc(s=1.75)", false},
		{[]string{}, "lossless", true},
		{[]string{"3lc", "lossless"}, "3lc(s=1.75)", false},
		{[]string{"lossless"}, "3lc(s=1.75)", true},
	} {
		if got := (&path.Conn{PeerCodecs: c.codecs}).Lacks(c.text); got != c.lacks {
			t.Errorf("of a peer with %v %s is lacking: %v, want %v", c.codecs, c.text, got, c.lacks)
		}
	}
	if (&path.Conn{}).SharesValues() {
		t.Error("a connection without a value cache shares values")
	}
}

// A connection that is broken is broken once: the app and the peer see a reset, and nothing waits any more.
func TestAbort(t *testing.T) {
	a, b := pathtest.TCPPair(t)
	s := new(resetStream)
	c := &path.Conn{App: app.Plain(a), Stream: s, Gone: make(chan struct{})}
	c.Abort(frame.ResetByFrames)
	c.Abort(frame.ResetByApp)
	c.GiveUp()
	if len(s.codes) != 1 || s.codes[0] != frame.ResetByFrames || !c.Aborted() {
		t.Errorf("the stream was reset with %v", s.codes)
	}
	select {
	case <-c.Gone:
	default:
		t.Error("a wait for a value goes on")
	}
	if n, err := b.Read(make([]byte, 1)); err == nil || err.Error() == "EOF" {
		t.Errorf("the app reads %d bytes, %v, where it must see a reset", n, err)
	}
}

// The FIN that ends the second direction of a connection closes it, also between two looks of the sender, and makes the
// app's own FIN no reset.
func TestFINIsNoReset(t *testing.T) {
	for range 2000 {
		a, b, err := pathtest.Connect()
		if err != nil {
			t.Fatal(err)
		}
		c := &path.Conn{App: app.Plain(b)}
		a.CloseWrite()
		if _, err := b.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(err)
		}
		sent := make(chan struct{})
		go func() { c.SendFIN(); close(sent) }()
		for done := false; !done; {
			select {
			case <-sent:
				done = true
			default:
			}
			if c.WasReset() {
				t.Fatal("an orderly end is taken for a reset")
			}
		}
		a.Close()
		b.Close()
	}
}

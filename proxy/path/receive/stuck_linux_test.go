package receive

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
)

// An app that takes bytes during one long write is not stuck, however slow it is, nor is one whose writes end, or that
// is offered nothing; one that takes nothing is.
func TestSlowAppIsNotStuck(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := &path.Conn{Env: pathtest.NewEnv(t), App: app.Plain(near.(*net.TCPConn)), Peer: "far", Log: pathtest.Log(t)}
	r := New(c, nil)
	if r.Stuck() || r.Stuck() {
		t.Error("an app is stuck that is offered nothing")
	}
	const size, piece = 64 << 20, 4 << 20 // of pieces each makes room, whatever the kernel's buffers
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.deliver.run(make([]byte, size))
	}()
	await := func(stuck bool) {
		t.Helper()
		for began := time.Now(); r.Stuck() != stuck; time.Sleep(time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("stuck: %v", !stuck)
			}
		}
	}
	for range 3 {
		await(true)
		r.deliver.writes.Add(2) // as if that write had ended and the next had begun
		if r.Stuck() {
			t.Error("an app is stuck though a write has ended")
		}
		await(true)
		if _, err := io.CopyN(io.Discard, far, piece); err != nil {
			t.Fatal(err)
		}
		await(false)
	}
	near.Close()
	<-ended
}

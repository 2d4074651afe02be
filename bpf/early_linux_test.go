package bpf

import (
	"io"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
)

// A client that writes its bytes and leaves, before the proxy has got round to accepting, is known all the same.
func TestClientLeavesBeforeItIsAccepted(t *testing.T) {
	b := newBed(t)
	late4, late6 := b.job.listen("tcp", "127.0.0.1:0"), b.job.listen("tcp", "[::1]:0")
	c := b.config()
	c.Listen4, c.Listen6 = addrPort(late4.Addr()).Port(), addrPort(late6.Addr()).Port()
	h := b.attach(c)
	job := b.client()
	for i, x := range []struct {
		order
		v4 bool
	}{{order{Dial: server4}, true}, {order{Dial: server6}, false}, {order{Dial: server4, Mapped: true}, true}} {
		x.Leave = "farewell"
		if a := job.do(x.order); a.Err != "" {
			t.Fatal(a.Err)
		}
		l := late4
		if !x.v4 {
			l = late6
		}
		waitUntilLeft(t, h)
		accepted, err := l.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		if got := dialledBy(accepted, x.v4); got.String() != x.Dial {
			t.Errorf("%+v: the client dialled %s, the proxy is told %v", x.order, x.Dial, got)
		}
		if text, err := io.ReadAll(accepted); err != nil || string(text) != x.Leave {
			t.Errorf("%+v: %q came: %v", x.order, text, err)
		}
		accepted.Close()
		if n := entries(t, h.objects.Dialled); n != 0 {
			t.Errorf("after %d connections that are closed %d are noted", i+1, n)
		}
	}
}

// entries counts the entries of a map.
func entries(t *testing.T, m *ebpf.Map) (n int) {
	t.Helper()
	var key bpfEnd
	var value bpfDial
	for all := m.Iterate(); all.Next(&key, &value); n++ {
	}
	return n
}

// waitUntilLeft waits until the kernel has closed the clients: that takes as long as the acknowledgement of a FIN may
// be delayed.
func waitUntilLeft(t *testing.T, h *Hooks) {
	t.Helper()
	for open := true; open && t.Context().Err() == nil; {
		flows, err := h.Flows()
		if err != nil {
			t.Fatal(err)
		}
		open = slices.ContainsFunc(flows, func(f Flow) bool { return f.Open })
		runtime.Gosched()
	}
}

package bpf

import (
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// Counters give the bytes that the job sent and received, by connection and in all, and nothing of connections that
// were left alone.
func TestFlows(t *testing.T) {
	b := newBed(t)
	c := b.config()
	c.Refuse = true
	h := b.attach(c)
	job := b.client()
	began := time.Now()
	sent := map[netip.AddrPort]uint64{}
	clients := map[netip.AddrPort]netip.AddrPort{}
	for server, n := range map[string]int{server4: 3 << 20, server6: 70_000} {
		a := job.do(order{Dial: server})
		clients[netip.MustParseAddrPort(server)] = netip.MustParseAddrPort(a.Local)
		sent[netip.MustParseAddrPort(server)] = uint64(n)
		if a := job.do(order{Conn: a.Conn, Send: n, Close: true}); a.Err != "" {
			t.Fatal(a.Err)
		}
	}
	open := job.do(order{Dial: "10.2.0.1:65535"})
	if a := job.do(order{Conn: open.Conn, Send: 5000}); a.Err != "" {
		t.Fatal(a.Err)
	}
	job.whoAnswers(order{Dial: "10.9.0.1:20001"}) // left alone

	var flows []Flow
	for closed := 0; closed < len(sent); { // the last packets are on their way
		if time.Since(began) > time.Minute {
			t.Fatalf("not closed: %+v", flows)
		}
		var err error
		if flows, err = h.Flows(); err != nil {
			t.Fatal(err)
		}
		closed = 0
		for _, f := range flows {
			if !f.Open {
				closed++
			}
		}
	}
	if len(flows) != len(sent)+1 {
		t.Fatalf("%d flows, want %d: %+v", len(flows), len(sent)+1, flows)
	}
	var bytes uint64
	for _, f := range flows {
		bytes += f.Sent
		if f.Open {
			if f.Server.String() != "10.2.0.1:65535" || f.Sent < 5000-1448 || f.Received == 0 {
				t.Errorf("open: %+v", f)
			}
			continue
		}
		n := sent[f.Server]
		// One byte more is the end of the stream, one more that is received the word of the program that accepts.
		if f.Client != clients[f.Server] || f.Sent < n || f.Sent > n+1 || f.Received < n+1 || f.Received > n+2 {
			t.Errorf("%d bytes each way with %v: %+v", n, clients[f.Server], f)
		}
		if f.SegmentsSent == 0 || f.SegmentsReceived == 0 || uint64(f.SegmentsSent) > n || f.Lasted <= 0 || f.Lasted > time.Since(began) {
			t.Errorf("%d bytes: %+v", n, f)
		}
	}
	total, err := h.Total()
	if err != nil {
		t.Fatal(err)
	}
	if total.Taken != uint64(len(flows)) || total.Refused != 0 || total.Sent != bytes {
		t.Errorf("total %+v, of flows %d bytes sent", total, bytes)
	}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	job.whoAnswers(order{Dial: server4})
	if total, err = h.Total(); err != nil || total.Taken != uint64(len(flows)) || total.Refused != 1 {
		t.Errorf("one refused: %+v, %v", total, err)
	}
}

// Whoever reads the counters at the very end is answered, or told that it is over.
func TestCountersDuringClose(t *testing.T) {
	b := newBed(t)
	h := b.attach(b.config())
	var readers sync.WaitGroup
	for range 2 {
		started := make(chan struct{})
		readers.Go(func() {
			close(started)
			for {
				_, err1 := h.Total()
				_, err2 := h.Flows()
				if err := errors.Join(err1, err2); err != nil {
					if !errors.Is(err, errClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
		<-started
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	readers.Wait()
	if err := h.Stop(); err != nil {
		t.Error(err)
	}
	if err := h.Update(b.config().Networks, nil); !errors.Is(err, errClosed) {
		t.Errorf("Update after Close: %v", err)
	}
}

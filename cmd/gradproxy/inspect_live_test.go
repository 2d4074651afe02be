package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/demo"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture/capturetest"
)

// A recorder is a Path that keeps the bytes of the apps at both sites, as a capture would.
type recorder struct {
	demo.Path
	t *testing.T

	mu     sync.Mutex
	conns  []capturetest.Conn
	chunks []capturetest.Chunk
}

func (r *recorder) Forward(target netip.AddrPort) (netip.AddrPort, error) {
	at, err := r.Path.Forward(target)
	return r.record(at, target, "10.1.0.1"), err
}

func (r *recorder) Backward(target netip.AddrPort) (netip.AddrPort, error) {
	at, err := r.Path.Backward(target)
	return r.record(at, target, "10.2.0.1"), err
}

// record returns an address that leads to at, where bytes go on their way to target. The clients get the address of
// their site.
func (r *recorder) record(at, target netip.AddrPort, client string) netip.AddrPort {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { ln.Close() })
	server := map[string]string{"10.1.0.1": "10.2.0.1", "10.2.0.1": "10.1.0.1"}[client]
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", at.String())
			if err != nil {
				near.Close()
				continue
			}
			r.mu.Lock()
			n := len(r.conns)
			r.conns = append(r.conns, capturetest.Conn{Client: netip.AddrPortFrom(netip.MustParseAddr(client), near.RemoteAddr().(*net.TCPAddr).AddrPort().Port()),
				Server: netip.AddrPortFrom(netip.MustParseAddr(server), target.Port())})
			r.mu.Unlock()
			go r.copy(far.(*net.TCPConn), near.(*net.TCPConn), n, parser.Client)
			go r.copy(near.(*net.TCPConn), far.(*net.TCPConn), n, parser.Server)
		}
	}()
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

func (r *recorder) copy(to, from *net.TCPConn, conn int, side parser.Side) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		r.mu.Lock()
		r.chunks = append(r.chunks, capturetest.Chunk{Conn: conn, From: side, Bytes: bytes.Clone(b[:n])})
		r.mu.Unlock()
		to.Write(b[:n])
		if err != nil {
			to.CloseWrite()
			return
		}
	}
}

// The bytes that inspect --what-if gives for a parameter server's job are within 10 % of the bytes that two proxies
// then carry for the same job: gradients with feedback, weights as differences, and one copy of them for both workers.
// A busy machine's proxies send their bytes in more and smaller records, so one of three live runs must agree.
func TestWhatIfAgreesWithALiveRun(t *testing.T) {
	for try := 1; ; try++ {
		off := offLiveRun(t)
		if len(off) == 0 {
			return
		}
		t.Log(off)
		if try == 3 {
			t.Fatal("none of three live runs agrees")
		}
	}
}

// offLiveRun runs a job and returns a line for each outcome of inspect --what-if that is more than 10 % off.
func offLiveRun(t *testing.T) (off []string) {
	t.Helper()
	var seen *recorder
	o := demo.Options{Link: demo.Link{Rate: 1e9, RTT: 10 * time.Millisecond}, Wires: []string{"pslite"}, Codes: []string{"lossless", "int8", "3lc"}, Steps: 30, Model: []int{64, 64}, Seed: 2}
	o.Through = func(ctx context.Context, r demo.Run, between demo.Between) (demo.Path, error) {
		p, err := throughProxies(ctx, r, between)
		if err != nil || r.Name != demo.Lossless {
			return p, err
		}
		seen = &recorder{Path: p, t: t}
		return seen, nil
	}
	report, err := demo.Do(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	seen.mu.Lock()
	capture := capturetest.Write(seen.conns, seen.chunks)
	seen.mu.Unlock()
	got, err := inspect.Read(bytes.NewReader(capture), inspect.Config{Policies: []string{"int8", "3lc"}, WhatIf: &inspect.Question{Price: 0.09, Currency: "USD"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.WhatIf.Outcomes) != len(report.Runs) || len(got.WhatIf.Sites) != 2 {
		t.Fatalf("%+v for %+v", got.WhatIf, report.Runs)
	}
	for i, x := range got.WhatIf.Outcomes {
		live := report.Runs[i]
		if d := float64(x.Bytes)/float64(live.WANBytes) - 1; math.Abs(d) > 0.1 {
			off = append(off, fmt.Sprintf("%s: %d bytes are %+.1f %% off the %d of the live run", x.Codec, x.Bytes, 100*d, live.WANBytes))
		} else {
			t.Logf("%s: %d bytes, %d live (%+.1f %%), error %.3g", x.Codec, x.Bytes, live.WANBytes, 100*d, x.Error)
		}
		if lossy := i > 1; lossy != (x.Error > 0) || lossy != (x.Coding > 0 && x.Error > 0) {
			t.Errorf("%s: error %v, %v s of coding", x.Codec, x.Error, x.Coding)
		}
		if want := float64(x.Bytes) / 1e9 * 0.09; math.Abs(x.Money-want) > 1e-12 {
			t.Errorf("%s: %v USD, want %v", x.Codec, x.Money, want)
		}
	}
	return off
}

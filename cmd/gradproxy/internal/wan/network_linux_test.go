package wan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
)

// up lays a topology out under a name of its own.
func up(t *testing.T, text string) *Network {
	t.Helper()
	require.Root(t)
	_, err := os.Stat("/dev/net/tun")
	require.Named(t, "tun", err == nil, "mknod /dev/net/tun c 10 200")
	ctx, cancel := context.WithCancel(t.Context())
	n, err := Up(ctx, planOf(t, text))
	cancel() // only ends the laying
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// planOf plans a topology under a name of its own, for the back end in user space.
func planOf(t *testing.T, text string) *Plan {
	t.Helper()
	topology, problems := parse("test.yaml", []byte(text), files)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	topology.Name = fmt.Sprintf("t%d-%s", os.Getpid(), topology.Name)
	return NewPlan(topology, User, "a test")
}

// An interrupted is a context that ends when it is asked for the n-th time whether it has.
type interrupted struct {
	context.Context
	n int
}

func (c *interrupted) Err() error {
	if c.n--; c.n > 0 {
		return nil
	}
	return context.Canceled
}

// Wherever laying out is interrupted, nothing remains.
func TestUpHeedsItsContext(t *testing.T) {
	require.Root(t)
	p := planOf(t, "name: int\nsites: [{name: a}, {name: b}, {name: c}]\nlinks: [{from: a, to: b}, {from: b, to: c}]\n")
	for n := range 5 { // before each site and each link
		if _, err := Up(&interrupted{t.Context(), n + 1}, p); err == nil {
			t.Errorf("%d: the network is up", n)
		}
		for _, name := range p.namespaces() {
			if _, err := os.Stat("/run/netns/" + name); err == nil {
				t.Errorf("%d: namespace %s remains", n, name)
			}
		}
	}
}

// A link that ends without an error of its own is said in plain words.
func TestEndedLink(t *testing.T) {
	n := &Network{plan: planOf(t, "name: end\nsites: [{name: a}, {name: b}]\nlinks: [{from: a, to: b}]\n")}
	for _, why := range []error{nil, io.ErrUnexpectedEOF} {
		err := n.ended(n.plan.Links[0], why)
		if said := err.Error(); strings.Contains(said, "%!") || !strings.Contains(said, "a-b has ended: gradproxy wan up") {
			t.Error(said)
		}
		if why != nil && !errors.Is(err, why) {
			t.Errorf("%v does not say why", err)
		}
	}
}

// carry sends bytes from one site to another over TCP and returns how long that took, the handshake left out.
func carry(t *testing.T, n *Network, from, to int, addr netip.Addr, bytes int) time.Duration {
	t.Helper()
	var l net.Listener
	if err := n.sites[to].Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var c net.Conn
	if err := n.sites[from].Do(func() (err error) {
		c, err = net.DialTimeout("tcp", l.Addr().String(), time.Minute)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	go func() {
		c.Write(make([]byte, bytes))
		c.Close()
	}()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.SetDeadline(time.Now().Add(time.Minute))
	if got, err := io.Copy(io.Discard, s); err != nil || got != int64(bytes) {
		t.Fatalf("%d bytes arrive, %v; want %d", got, err, bytes)
	}
	return time.Since(begin)
}

// Sites without a link reach each other through the one between, on IPv4 and IPv6, and both links count the bytes.
func TestSitesReachEachOther(t *testing.T) {
	t.Parallel()
	n := up(t, "name: star\nsites: [{name: hub}, {name: a}, {name: b}]\nlinks: [{from: a, to: hub}, {from: hub, to: b}]\n")
	const bytes = 100_000
	for i, addr := range n.plan.Sites[2].Addresses {
		carry(t, n, 1, 2, addr, bytes)
		r, err := n.Report()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range []int{0, 2} { // a -> hub, hub -> b
			if got := r.Links[k].Bytes; got < uint64(i+1)*bytes {
				t.Errorf("%s -> %s has carried %d bytes, want %d at least", r.Links[k].From, r.Links[k].To, got, (i+1)*bytes)
			}
		}
	}
}

// Whatever the links themselves could carry, a shared bottleneck bounds them; packets on the way back are free of it.
func TestSharedBottleneckBounds(t *testing.T) {
	n := up(t, `name: shared
sites: [{name: hub}, {name: a}, {name: b}]
bottlenecks: [{name: down, rate: 8Mbit/s}]
links:
  - {from: a, to: hub, there: {via: down}}
  - {from: b, to: hub, there: {via: down}}
`)
	const bytes = 250_000 // a quarter of a second, of each
	hub := n.plan.Sites[0].Addresses[0]
	done := make(chan time.Duration)
	begin := time.Now()
	for _, from := range []int{1, 2} {
		go func() { done <- carry(t, n, from, 0, hub, bytes) }()
	}
	<-done
	<-done
	if took := time.Since(begin); took < 2*bytes*time.Second/1e6 {
		t.Errorf("two times %d bytes crossed 8 Mbit/s in %v", bytes, took)
	}
	r, err := n.Report()
	if err != nil {
		t.Fatal(err)
	}
	if sum := r.Links[0].Bytes + r.Links[2].Bytes; sum < 2*bytes {
		t.Errorf("the links have carried %d bytes, want %d at least", sum, 2*bytes)
	}
}

// A trace changes the link while it is up: nothing passes, and then everything.
func TestLinksFollowTheirTraces(t *testing.T) {
	t.Parallel()
	n := up(t, `name: trace
sites: [{name: a}, {name: b}]
links: [{from: a, to: b, there: {loss: 100%, trace: [{at: 500ms, loss: 0%}]}}]
`)
	report := func() Carried {
		t.Helper()
		r, err := n.Report()
		if err != nil {
			t.Fatal(err)
		}
		return r.Links[0]
	}
	carried := make(chan struct{})
	go func() {
		defer close(carried)
		carry(t, n, 0, 1, n.plan.Sites[1].Addresses[0], 1000)
	}()
	for late := time.After(time.Minute); report().Lost == 0; { // the handshake's first packet
		select {
		case <-late:
			t.Fatal("no packet is lost")
		case <-time.After(time.Millisecond):
		}
	}
	n.Follow()
	<-carried
	if l := report(); l.Lost == l.Packets {
		t.Errorf("all of %d packets were lost, want some of them", l.Packets)
	}
}

// An order changes a link that is up, for a time or until it is taken back, under a trace that goes on meanwhile.
func TestOrdersChangeLinks(t *testing.T) {
	t.Parallel()
	n := up(t, "name: order\nsites: [{name: a}, {name: b}]\nlinks: [{from: a, to: b, delay: 1ms}]\n")
	now := func() (there, back string) {
		r, err := n.Report()
		if err != nil {
			t.Fatal(err)
		}
		return r.Links[0].Now, r.Links[1].Now
	}
	cut := Cut("b", "a")
	cut.OneWay = true
	cut.For = 2 * time.Second
	if err := n.Order(cut); err != nil {
		t.Fatal(err)
	}
	if there, back := now(); there != "" || back != "cut" {
		t.Errorf("there %q, back %q: want the way back to be cut", there, back)
	}
	carry(t, n, 0, 1, n.plan.Sites[1].Addresses[0], 1000) // the answers to the handshake are lost until the order ends
	if r, _ := n.Report(); r.Links[1].Lost == 0 {
		t.Error("nothing was lost on the way back")
	}
	if there, back := now(); there != "" || back != "" {
		t.Errorf("there %q, back %q: the order has not ended", there, back)
	}
	slow := Order{From: "a", To: "b"}
	if err := slow.Set([]string{"rate=800kbit/s", "delay=3ms"}); err != nil {
		t.Fatal(err)
	}
	if err := n.Order(slow); err != nil {
		t.Fatal(err)
	}
	if there, back := now(); there != "800kbit/s, 3ms, loss 0%" || back != there {
		t.Errorf("there %q, back %q", there, back)
	}
	const bytes = 400_000 // more than the queue of 256 KiB, which may let as many pass at once
	if took := carry(t, n, 0, 1, n.plan.Sites[1].Addresses[0], bytes); took < (bytes-256<<10)*time.Second/100_000 {
		t.Errorf("%d bytes cross 800 kbit/s in %v", bytes, took)
	}
	if err := n.Order(Order{From: "a", To: "b", Reset: true}); err != nil {
		t.Fatal(err)
	}
	if there, back := now(); there != "" || back != "" {
		t.Errorf("there %q, back %q: the orders were not forgotten", there, back)
	}
	for name, o := range map[string]Order{"no such link": Cut("a", "c"), "no change": {From: "a", To: "b"}} {
		if n.Order(o) == nil {
			t.Errorf("%s: the order is taken", name)
		}
	}
}

package bpf

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// Connections that are made while no proxy lives wait for the next one, which learns their servers; never do they reach another program's
// listener at the dead proxy's port, and if no proxy comes in time they are refused.
func TestHeldForTheNextProxy(t *testing.T) {
	for name, x := range map[string]struct {
		hold   time.Duration
		next   bool // another proxy comes
		others bool // a program without the mark listens at the dead proxy's port
		want   string
	}{
		"a next proxy":      {time.Hour, true, false, "P"},
		"no next proxy":     {time.Millisecond, false, false, "refused"},
		"another's program": {2 * time.Second, true, true, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			if x.want != "P" { // this process is in one proxy's cgroup at a time, and only there learns servers
				t.Parallel()
			}
			b := newBed(t)
			c := b.config()
			c.Refuse, c.Hold = true, x.hold
			first := b.attach(c)
			for _, l := range b.proxies { // as the kernel does at a kill
				l.Close()
			}
			if x.hold < time.Second {
				if err := first.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			first.die()
			var stolen []*net.TCPListener
			if x.others {
				for _, p := range []uint16{c.Listen4, c.Listen6} {
					at := netip.AddrPortFrom(netip.IPv6Loopback(), p)
					if p == c.Listen4 {
						at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), p)
					}
					l := b.job.listen("tcp", at.String())
					stolen = append(stolen, l)
					b.job.answer(l, "stolen", nil)
				}
			}
			type answer struct{ addr, by string }
			answers := make(chan answer, 2)
			for _, addr := range []string{server4, server6} {
				job := b.client()
				go func() { answers <- answer{addr, job.whoAnswers(order{Dial: addr})} }()
			}
			if x.next {
				select {
				case a := <-answers:
					t.Fatalf("without a proxy: %s answered by %q", a.addr, a.by)
				case <-time.After(300 * time.Millisecond):
				}
				listen4, listen6, err := Awaited(b.cgroup)
				if err != nil || listen4 != c.Listen4 || listen6 != c.Listen6 {
					t.Fatalf("connections wait at %d and %d, want %d and %d: %v", listen4, listen6, c.Listen4, c.Listen6, err)
				}
				at := [2]string{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), listen4).String(), netip.AddrPortFrom(netip.IPv6Loopback(), listen6).String()}
				if x.others {
					at = [2]string{"127.0.0.1:0", "[::1]:0"}
				}
				b.succeed(at, c)
			}
			if x.others { // they wait in vain; other connections go on
				if got := b.client().whoAnswers(order{Dial: server4}); got != "P" {
					t.Errorf("a new connection answered by %q", got)
				}
				time.Sleep(1500 * time.Millisecond) // the packets are repeated after 1 s
				for _, l := range stolen {
					l.Close()
				}
			}
			for range 2 {
				if a := <-answers; a.by != x.want {
					t.Errorf("%s answered by %q, want %q", a.addr, a.by, x.want)
				}
			}
			if x.want == "P" {
				b.wantLearnt(server4, server6)
			}
		})
	}
}

// wantLearnt fails the test unless the proxy has learnt these servers of its connections, in any order.
func (b *bed) wantLearnt(servers ...string) {
	b.t.Helper()
	var learnt []string
	for range servers {
		learnt = append(learnt, (<-b.seen).server.String())
	}
	slices.Sort(learnt)
	slices.Sort(servers)
	if !slices.Equal(learnt, servers) {
		b.t.Errorf("the proxy has learnt the servers %v, want %v", learnt, servers)
	}
}

// Connections that are made while the programs of a dead proxy and of the next one are both attached wait for the next one too, which learns
// their servers.
func TestHeldWhileProxiesChange(t *testing.T) {
	b := newBed(t)
	c := b.config()
	c.Refuse, c.Hold = true, time.Hour
	first := b.attach(c)
	for _, l := range b.proxies {
		l.Close()
	}
	first.die()
	totals, err := leftMap(b.cgroup, bpfMapTotals)
	if err != nil || totals == nil {
		t.Fatalf("no totals are left: %v", err)
	}
	defer totals.Close()
	next := &Hooks{config: c}
	defer func() {
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	}()
	b.job.Do(func() { err = next.open() })
	if err != nil {
		t.Fatal(err)
	}
	left, err := next.attachBeside()
	if err != nil || len(left) != 3 {
		t.Fatalf("%d programs are attached beside, want 3: %v", len(left), err)
	}
	answers := make(chan string, 2)
	for _, addr := range []string{server4, server6} {
		job := b.client()
		go func() { answers <- job.whoAnswers(order{Dial: addr}) }()
	}
	for taken := uint64(0); taken < 2 && t.Context().Err() == nil; time.Sleep(time.Millisecond) { // by the dead one's programs
		var sum bpfTotal
		if err := totals.Lookup(uint32(0), &sum); err != nil {
			t.Fatal(err)
		}
		taken = sum.Taken
	}
	for _, l := range left {
		if err := next.detach(l); err != nil {
			t.Fatal(err)
		}
		l.program.Close()
	}
	for i, at := range []string{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), c.Listen4).String(), netip.AddrPortFrom(netip.IPv6Loopback(), c.Listen6).String()} {
		b.serve(i, at)
	}
	if err := next.Refresh(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if by := <-answers; by != "P" {
			t.Errorf("answered by %q, want P", by)
		}
	}
	b.wantLearnt(server4, server6)
}

// A proxy that is stuck is awaited, and connections that were made meanwhile come to it.
func TestHeldForAStuckProxy(t *testing.T) {
	b := newBed(t)
	c := b.config()
	c.Refuse, c.Hold = true, time.Hour
	h := b.attach(c)
	if err := h.silence(); err != nil {
		t.Fatal(err)
	}
	answer := make(chan string, 1)
	job := b.client()
	go func() { answer <- job.whoAnswers(order{Dial: server4}) }()
	select {
	case by := <-answer:
		t.Fatalf("by a stuck proxy: %q", by)
	case <-time.After(300 * time.Millisecond):
	}
	if err := h.Refresh(); err != nil {
		t.Fatal(err)
	}
	if by := <-answer; by != "P" {
		t.Errorf("answered by %q, want P", by)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if n := attached(t, b.cgroup); n != 0 {
		t.Errorf("%d programs are left on the cgroup", n)
	}
}

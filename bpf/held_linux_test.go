package bpf

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Connections that are made while no proxy lives wait for the next one, which learns their servers; never do they reach
// another program's listener at the dead proxy's port, and if no proxy comes in time they are refused.
func TestHeldForTheNextProxy(t *testing.T) {
	for name, x := range map[string]struct {
		hold   time.Duration
		next   bool // another proxy comes
		others bool // a program without the mark listens at the dead proxy's port
		old    bool // the dead proxy's version did not note the port in its flows
		want   string
	}{
		"a next proxy":             {hold: time.Hour, next: true, want: "P"},
		"of a version before":      {hold: time.Hour, next: true, old: true, want: "P"},
		"no next proxy":            {hold: time.Millisecond, want: "refused"},
		"another's program":        {hold: 2 * time.Second, next: true, others: true, want: "refused"},
		"another's program before": {hold: 2 * time.Second, next: true, others: true, old: true, want: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			if x.want != "P" { // this process is in one proxy's cgroup at a time, and only there learns servers
				t.Parallel()
			}
			b := newBed(t)
			c := b.config()
			c.Refuse, c.Hold = true, x.hold
			first := b.attach(c)
			b.closeProxies()
			if x.hold < time.Second {
				if err := first.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			first.die()
			var stolen []*net.TCPListener
			if x.others {
				stolen = b.steal(c)
			}
			answers := b.dialBoth()
			if x.next {
				b.wantTaken(2)
				select {
				case by := <-answers:
					t.Fatalf("without a proxy: answered by %q", by)
				case <-time.After(300 * time.Millisecond):
				}
				listen4, listen6, err := Awaited(b.cgroup)
				if err != nil || listen4 != c.Listen4 || listen6 != c.Listen6 {
					t.Fatalf("connections wait at %d and %d, want %d and %d: %v", listen4, listen6, c.Listen4, c.Listen6, err)
				}
				if x.old {
					b.forgetPorts()
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
			b.wantAnswers(answers, x.want)
			if x.want == "P" {
				b.wantLearnt(server4, server6)
			}
		})
	}
}

// steal has a program without the mark listen at the ports of a dead proxy.
func (b *bed) steal(c Config) (stolen []*net.TCPListener) {
	for _, at := range loopbackAt(c) {
		l := b.job.listen("tcp", at)
		stolen = append(stolen, l)
		b.job.answer(l, "stolen", nil)
	}
	return stolen
}

// loopbackAt returns the addresses at which the proxy listens.
func loopbackAt(c Config) [2]string {
	return [2]string{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), c.Listen4).String(), netip.AddrPortFrom(netip.IPv6Loopback(), c.Listen6).String()}
}

// dialBoth has two processes of the job dial, and returns the channel of the answers.
func (b *bed) dialBoth() <-chan string {
	answers := make(chan string, 2)
	for _, addr := range []string{server4, server6} {
		job := b.client()
		go func() { answers <- job.whoAnswers(order{Dial: addr}) }()
	}
	return answers
}

// wantAnswers fails the test unless the two connections of dialBoth are answered by want.
func (b *bed) wantAnswers(answers <-chan string, want string) {
	b.t.Helper()
	for range 2 {
		if by := within(b.t, answers); by != want {
			b.t.Errorf("answered by %q, want %q", by, want)
		}
	}
}

// within returns the next value of a channel, and fails the test if none comes in a minute.
func within[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatal("nothing came in a minute")
	}
	return v
}

// forgetPorts makes the flows of a dead proxy those of a version that did not note the port that a connection was
// redirected to.
func (b *bed) forgetPorts() {
	b.t.Helper()
	flows, err := leftMap(b.cgroup, bpfMapFlows)
	if err != nil || flows == nil {
		b.t.Fatalf("no flows are left: %v", err)
	}
	defer flows.Close()
	var cookies []uint64
	var cookie uint64
	var f bpfFlow
	for entries := flows.Iterate(); entries.Next(&cookie, &f); {
		cookies = append(cookies, cookie)
	}
	for _, cookie := range cookies {
		if err := flows.Lookup(cookie, &f); err != nil {
			b.t.Fatal(err)
		}
		if f.Server.At == 0 {
			b.t.Error("a flow has no port")
		}
		f.Server.At = 0
		if err := flows.Put(cookie, f); err != nil {
			b.t.Fatal(err)
		}
	}
	if len(cookies) != 2 {
		b.t.Errorf("%d flows are left, want 2", len(cookies))
	}
}

// wantLearnt fails the test unless the proxy has learnt these servers of its connections, in any order.
func (b *bed) wantLearnt(servers ...string) {
	b.t.Helper()
	var learnt []string
	for range servers {
		learnt = append(learnt, within(b.t, b.seen).server.String())
	}
	slices.Sort(learnt)
	slices.Sort(servers)
	if !slices.Equal(learnt, servers) {
		b.t.Errorf("the proxy has learnt the servers %v, want %v", learnt, servers)
	}
}

// The next version's proxy goes on with a dead one's flows only if the size of a flow stays.
func TestSizeOfFlows(t *testing.T) {
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	if n := spec.Maps[bpfMapFlows].ValueSize; n != 88 {
		t.Errorf("a flow has %d bytes, want 88: connections that wait through an upgrade are refused", n)
	}
}

// Connections that wait for a proxy that cannot go on with them, since its flows have another form or since it has no
// Hold, are refused, and never reach another program's listener at the dead proxy's port, also when that proxy dies as
// well. An orderly end leaves nothing behind.
func TestHeldInVain(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		size   uint32 // of a flow of the dead proxy
		next   func(*Config)
		others bool
	}{
		"another form":                    {96, func(*Config) {}, false},
		"another form, another's program": {96, func(*Config) {}, true},
		"refuse":                          {88, func(c *Config) { c.Hold = 0 }, false},
		"refuse, another's program":       {88, func(c *Config) { c.Hold = 0 }, true},
		"direct, another's program":       {88, func(c *Config) { c.Hold, c.Refuse = 0, false }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			c := b.config()
			c.Refuse, c.Hold = true, time.Hour
			b.dieWith(c, x.size)
			var stolen []*net.TCPListener
			if x.others {
				stolen = b.steal(c)
			}
			answers := b.dialBoth()
			b.wantTaken(2)
			if listen4, listen6, err := Awaited(b.cgroup); err != nil || (listen4 != 0 || listen6 != 0) != (x.size == 88) {
				t.Errorf("connections can be handed over at %d and %d: %v", listen4, listen6, err)
			}
			x.next(&c)
			next := b.succeed([2]string{"127.0.0.1:0", "[::1]:0"}, c)
			if x.others { // the next one is killed too
				b.closeProxies()
				next.die()
				next = b.succeed([2]string{"127.0.0.1:0", "[::1]:0"}, c)
			}
			if got := b.client().whoAnswers(order{Dial: server4}); got != "P" {
				t.Errorf("a new connection answered by %q", got)
			}
			if x.others {
				time.Sleep(1500 * time.Millisecond) // the packets are repeated after 1 s
				for _, l := range stolen {
					l.Close()
				}
			}
			b.wantAnswers(answers, "refused")
			if err := next.Close(); err != nil {
				t.Fatal(err)
			}
			wantDetached(t, b.cgroup)
		})
	}
}

// dieWith attaches the programs of a proxy whose flows have that size, and kills it.
func (b *bed) dieWith(c Config, size uint32) {
	b.t.Helper()
	spec, err := loadBpf()
	if err != nil {
		b.t.Fatal(err)
	}
	spec.Maps[bpfMapFlows].ValueSize = size
	spec.Maps[bpfMapFlows].Value = nil
	h := &Hooks{config: c}
	b.job.Do(func() {
		if err = h.open(spec); err == nil {
			err = h.attach()
		}
	})
	if err == nil {
		err = h.Refresh()
	}
	if err != nil {
		b.t.Fatal(errors.Join(err, h.Close()))
	}
	b.closeProxies()
	h.die()
}

// wantTaken waits until the programs of a dead proxy have taken n connections.
func (b *bed) wantTaken(n uint64) {
	b.t.Helper()
	totals, err := leftMap(b.cgroup, bpfMapTotals)
	if err != nil || totals == nil {
		b.t.Fatalf("no totals are left: %v", err)
	}
	defer totals.Close()
	wantTaken(b.t, totals, n)
}

func wantTaken(t *testing.T, totals *ebpf.Map, n uint64) {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		var sum bpfTotal
		if err := totals.Lookup(uint32(0), &sum); err != nil {
			t.Fatal(err)
		}
		if sum.Taken >= n {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%d connections were taken in a minute, want %d", sum.Taken, n)
		}
	}
}

// Connections that are made while the programs of a dead proxy and of the next one are both attached wait for the next
// one too, which learns their servers.
func TestHeldWhileProxiesChange(t *testing.T) {
	for name, old := range map[string]bool{"of this version": false, "of a version before": true} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			c := b.config()
			c.Refuse, c.Hold = true, time.Hour
			first := b.attach(c)
			b.closeProxies()
			first.die()
			totals, err := leftMap(b.cgroup, bpfMapTotals)
			if err != nil || totals == nil {
				t.Fatalf("no totals are left: %v", err)
			}
			defer totals.Close()
			if old {
				b.forgetPortsBetween()
			}
			next := &Hooks{config: c}
			defer func() {
				if err := next.Close(); err != nil {
					t.Error(err)
				}
			}()
			spec, err := loadBpf()
			if err != nil {
				t.Fatal(err)
			}
			b.job.Do(func() { err = next.open(spec) })
			if err != nil {
				t.Fatal(err)
			}
			left, err := next.attachBeside()
			if err != nil || len(left) != 3 {
				t.Fatalf("%d programs are attached beside, want 3: %v", len(left), err)
			}
			answers := b.dialBoth()
			wantTaken(t, totals, 2) // by the dead one's programs
			for _, l := range left {
				if err := next.detach(l); err != nil {
					t.Fatal(err)
				}
				l.program.Close()
			}
			for i, at := range loopbackAt(c) {
				b.serve(i, at)
			}
			if err := next.Refresh(); err != nil {
				t.Fatal(err)
			}
			b.wantAnswers(answers, "P")
			b.wantLearnt(server4, server6)
		})
	}
}

// forgetPortsBetween attaches programs, behind the dead proxy's and before the next one's, that make each flow that of
// a version which did not note the port.
func (b *bed) forgetPortsBetween() {
	b.t.Helper()
	flows, err := leftMap(b.cgroup, bpfMapFlows)
	if err != nil || flows == nil {
		b.t.Fatalf("no flows are left: %v", err)
	}
	defer flows.Close()
	at := int16(unsafe.Offsetof(bpfFlow{}.Server.At))
	for _, a := range []ebpf.AttachType{ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupInet6Connect} {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "forget", Type: ebpf.CGroupSockAddr, AttachType: a, License: "Apache-2.0",
			Instructions: asm.Instructions{
				asm.FnGetSocketCookie.Call(),
				asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
				asm.LoadMapPtr(asm.R1, flows.FD()),
				asm.Mov.Reg(asm.R2, asm.RFP),
				asm.Add.Imm(asm.R2, -8),
				asm.FnMapLookupElem.Call(),
				asm.JEq.Imm(asm.R0, 0, "none"),
				asm.StoreImm(asm.R0, at, 0, asm.Half),
				asm.Mov.Imm(asm.R0, 1).WithSymbol("none"),
				asm.Return(),
			},
		})
		if err != nil {
			b.t.Fatal(err)
		}
		l, err := link.AttachCgroup(link.CgroupOptions{Path: b.cgroup, Attach: a, Program: p})
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() {
			if err := errors.Join(l.Close(), p.Close()); err != nil {
				b.t.Error(err)
			}
		})
	}
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
	if by := within(t, answer); by != "P" {
		t.Errorf("answered by %q, want P", by)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	wantDetached(t, b.cgroup)
}

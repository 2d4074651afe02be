package bpf

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The job sees the server that it dialled and its own address, and the proxy sees the same two, however the socket was
// made.
func TestConnectionsAreTurned(t *testing.T) {
	b := newBed(t)
	b.attach(b.config())
	job := b.client()
	const own4, own6 = "10.1.0.1", "2001:db8:1::1"
	for name, x := range map[string]struct {
		order
		own string
	}{
		"IPv4":               {order{Dial: server4}, own4},
		"IPv4 bound":         {order{Dial: server4, Bind: "10.1.0.1:0"}, own4},
		"IPv6":               {order{Dial: server6}, own6},
		"IPv6 bound":         {order{Dial: server6, Bind: "[2001:db8:1::1]:0"}, own6},
		"mapped":             {order{Dial: server4, Mapped: true}, own4},
		"mapped, bound":      {order{Dial: server4, Mapped: true, Bind: "10.1.0.1:0"}, own4},
		"Multipath TCP 6":    {order{Dial: server6, Multipath: true}, own6},
		"bound to a port":    {order{Dial: server4, Bind: "10.1.0.1:31000"}, own4},
		"the last of ports":  {order{Dial: "10.2.0.1:65535"}, own4},
		"Multipath TCP":      {order{Dial: server4, Multipath: true}, own4},
		"nobody serves it":   {order{Dial: "10.2.3.4:20001"}, own4},
		"nobody serves it 6": {order{Dial: "[2001:db8:2::7]:1024"}, own6},
	} {
		t.Run(name, func(t *testing.T) {
			if x.Multipath {
				needsMultipath(t)
			}
			a := job.do(x.order)
			if a.Err != "" || a.Word != "P" {
				t.Fatalf("answered by %q: %s", a.Word, a.Err)
			}
			local, peer := netip.MustParseAddrPort(a.Local), netip.MustParseAddrPort(a.Peer)
			if x.Mapped && !(local.Addr().Is4In6() && peer.Addr().Is4In6()) {
				t.Errorf("an IPv6 socket says its ends are %v and %v", local, peer)
			}
			local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
			peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
			if peer.String() != x.Dial {
				t.Errorf("getpeername says %v, dialled was %s", peer, x.Dial)
			}
			if local.Addr().String() != x.own {
				t.Errorf("getsockname says %v, want the host's address %s", local, x.own)
			}
			if got, want := <-b.seen, (seen{local, peer}); got != want {
				t.Errorf("the proxy sees %v, want %v", got, want)
			}
			if a := job.do(order{Conn: a.Conn, Send: 1 << 20, Close: true}); a.Err != "" || a.Back != 1<<20 {
				t.Errorf("%d bytes came back: %s", a.Back, a.Err)
			}
		})
	}
}

// A connection that is not the proxy's business is left alone, whether it lives or is dead and refuses.
func TestTheRestIsLeftAlone(t *testing.T) {
	b := newBed(t)
	b.job.answer(b.job.listen("tcp", "10.1.0.1:30000"), "L", nil)
	b.job.answer(b.job.listen("tcp", "127.0.0.1:30001"), "L", nil)
	b.job.answer(b.job.listen("tcp", "[2001:db8:1::1]:30000"), "L", nil)
	b.far.answer(b.far.listen("tcp", "127.0.0.1:30001"), "L", nil)
	c := b.config()
	c.Refuse = true
	c.First = 20 // so that 22 is inside
	c.Networks = append(c.Networks, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/64"), netip.MustParsePrefix("::/1"))
	h := b.attach(c)
	job, outside := b.client(), startClient(t, b.job, b.group.Proxy())
	elsewhere := startClient(t, b.far, b.cgroup)
	check := func(state, taken string) {
		t.Helper()
		for _, x := range []struct {
			who  *client
			o    order
			want string
			why  string
		}{
			{job, order{Dial: "10.2.0.1:80"}, taken, "a port of the range"},
			{job, order{Dial: "10.2.0.1:22"}, "D", "port 22"},
			{job, order{Dial: "10.2.0.1:22", Mapped: true}, "D", "port 22 of an IPv6 socket"},
			{job, order{Dial: "10.2.0.1:7443"}, "D", "the peer's tunnel"},
			{job, order{Dial: "10.9.0.1:20001"}, "D", "no peer's network"},
			{job, order{Dial: "10.9.0.1:20001", Mapped: true}, "D", "no peer's network, though ::/1 is one and the socket of IPv6"},
			{job, order{Dial: "10.1.0.1:30000"}, "L", "the host to itself"},
			{job, order{Dial: "10.1.0.1:30000", Bind: "10.1.0.1:0"}, "L", "the host to itself, bound as Gloo does"},
			{job, order{Dial: "10.1.0.1:30000", Mapped: true}, "L", "the host to itself, by an IPv6 socket"},
			{job, order{Dial: "[2001:db8:1::1]:30000"}, "L", "the host to itself by IPv6"},
			{job, order{Dial: "127.0.0.1:30001"}, "L", "loopback"},
			{job, order{Dial: server4, Mark: mark}, "D", "the proxy's mark"},
			{job, order{Dial: server4, Device: "wan"}, "D", "a socket bound to a device"},
			{outside, order{Dial: server4}, "D", "a process outside the cgroup"},
			{elsewhere, order{Dial: server4}, "D", "another network namespace"},
		} {
			if got := x.who.whoAnswers(x.o); got != x.want {
				t.Errorf("%s: %s: %s answered by %q, want %q", state, x.why, x.o.Dial, got, x.want)
			}
		}
	}
	check("alive", "P")
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	check("dead", "refused")
}

// A proxy that is in the job's cgroup itself, in one of its own below it, is let pass without a mark of its making.
func TestOwnSocketsAreMarked(t *testing.T) {
	for own, want := range map[string]string{"": "P", "own": "D"} {
		t.Run("cgroup "+own, func(t *testing.T) {
			b := newBed(t)
			folder := filepath.Join(b.cgroup, "own")
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.job.Check(os.Remove(folder)) }) // once no client is in it
			c := b.config()
			if own != "" {
				c.Own = folder
			}
			b.attach(c)
			proxy, job := startClient(t, b.job, folder), b.client()
			for _, o := range []order{{Dial: server4}, {Dial: server4, Mapped: true}, {Dial: server6}} {
				if got := proxy.whoAnswers(o); got != want {
					t.Errorf("the proxy's connection to %s: answered by %q, want %q", o.Dial, got, want)
				}
				if got := job.whoAnswers(o); got != "P" {
					t.Errorf("the job's connection to %s: answered by %q", o.Dial, got)
				}
			}
		})
	}
}

// A client of Multipath TCP is one of TCP where its socket's first subflow is concerned, which is the one that is
// redirected.
func TestMultipathTCP(t *testing.T) {
	needsMultipath(t)
	b := newBed(t)
	c := b.config()
	c.Refuse = true
	h := b.attach(c)
	job := b.client()
	for _, want := range []string{"P", "refused"} {
		if got := job.whoAnswers(order{Dial: server4, Multipath: true}); got != want {
			t.Errorf("%s answered by %q, want %q", server4, got, want)
		}
		if got := job.whoAnswers(order{Dial: "10.9.0.1:20001", Multipath: true}); got != "D" {
			t.Errorf("no peer's network, but answered by %q", got)
		}
		if err := h.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func needsMultipath(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err == nil {
		unix.Close(fd)
	}
	require.Named(t, "mptcp", err == nil, "use a kernel with Multipath TCP")
}

// Ports outside the range are left alone.
func TestPortsOutsideTheRange(t *testing.T) {
	b := newBed(t)
	c := b.config()
	c.First, c.Last = 20001, 20001
	b.attach(c)
	job := b.client()
	for addr, want := range map[string]string{server4: "P", "10.2.0.1:80": "D", "10.2.0.1:65535": "D"} {
		if got := job.whoAnswers(order{Dial: addr}); got != want {
			t.Errorf("%s answered by %q, want %q", addr, got, want)
		}
	}
}

// A proxy that no longer beats takes nothing: new connections go directly or are refused, open ones live.
func TestWithoutBeats(t *testing.T) {
	for name, x := range map[string]struct {
		refuse bool
		want   string
	}{"direct": {false, "D"}, "refuse": {true, "refused"}} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			c := b.config()
			c.Refuse = x.refuse
			h := b.attach(c)
			job := b.client()
			open := job.do(order{Dial: server4})
			if open.Word != "P" {
				t.Fatalf("alive: answered by %q %s", open.Word, open.Err)
			}
			// The last beat was that long ago.
			var now unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
				t.Fatal(err)
			}
			if err := h.objects.Beat.Put(uint32(0), uint64(now.Nano())-uint64(timeout)); err != nil {
				t.Fatal(err)
			}
			for _, o := range []order{{Dial: server4}, {Dial: server6}, {Dial: server4, Mapped: true}, {Dial: server4, Bind: "10.1.0.1:0"}} {
				if got := job.whoAnswers(o); got != x.want {
					t.Errorf("stuck: %+v answered by %q, want %q", o, got, x.want)
				}
			}
			if a := job.do(order{Conn: open.Conn, Send: 100}); a.Err != "" {
				t.Errorf("open before: %s", a.Err)
			}
			if err := h.Refresh(); err != nil {
				t.Fatal(err)
			}
			if got := job.whoAnswers(order{Dial: server4}); got != "P" {
				t.Errorf("awake again: answered by %q", got)
			}
		})
	}
}

// die does as the kernel when the process is killed: its descriptors go.
func (h *Hooks) die() {
	for _, l := range h.links {
		l.Close()
	}
	h.objects.Close()
	h.cgroup.Close()
	h.routes.Close()
	*h = Hooks{}
}

// After a kill connections go directly, or are refused for as long as the cgroup lives; the next proxy takes them again
// and leaves nothing behind.
func TestKilled(t *testing.T) {
	for name, x := range map[string]struct {
		refuse bool
		want   string
	}{"direct": {false, "D"}, "refuse": {true, "refused"}} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			c := b.config()
			c.Refuse = x.refuse
			first := b.attach(c)
			job := b.client()
			if _, err := b.tryAttach(c); err == nil || !strings.Contains(err.Error(), "another gradproxy takes its connections") {
				t.Errorf("beside a living proxy: %v", err)
			}
			// Its listeners live on here, so its last beat must be too old for them.
			if err := first.objects.Beat.Put(uint32(0), uint64(0)); err != nil {
				t.Fatal(err)
			}
			first.die()
			for _, addr := range []string{server4, server6} {
				if got := job.whoAnswers(order{Dial: addr}); got != x.want {
					t.Errorf("killed: %s answered by %q, want %q", addr, got, x.want)
				}
			}
			second := b.attach(c)
			for _, addr := range []string{server4, server6} {
				if got := job.whoAnswers(order{Dial: addr}); got != "P" {
					t.Errorf("a new proxy: %s answered by %q", addr, got)
				}
			}
			if err := second.Close(); err != nil {
				t.Fatal(err)
			}
			for _, addr := range []string{server4, server6} {
				if got := job.whoAnswers(order{Dial: addr}); got != "D" {
					t.Errorf("closed: %s answered by %q", addr, got)
				}
			}
			wantDetached(t, b.cgroup)
		})
	}
}

// Connections that a killed proxy of another version refuses are taken by the next one; others' programs stay.
func TestKilledOfAnotherVersion(t *testing.T) {
	for name, stays := range map[string]bool{"gp_connect4": false, "others_connect4": true} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			left, err := ebpf.NewProgram(&ebpf.ProgramSpec{
				Name: name, Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet4Connect, License: "GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, // EPERM for all
			})
			if err != nil {
				t.Fatal(err)
			}
			folder, err := os.Open(b.cgroup)
			if err != nil {
				t.Fatal(err)
			}
			err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(folder.Fd()), Program: left, Attach: ebpf.AttachCGroupInet4Connect, Flags: unix.BPF_F_ALLOW_MULTI})
			if err := errors.Join(err, left.Close(), folder.Close()); err != nil {
				t.Fatal(err)
			}
			job := b.client()
			refusal := job.whoAnswers(order{Dial: server4})
			if refusal == "D" {
				t.Fatal("the program that is left refuses nothing")
			}
			c := b.config()
			c.Refuse = true
			h := b.attach(c)
			for _, x := range []struct{ state, want string }{{"a new proxy", "P"}, {"closed", "D"}} {
				if stays {
					x.want = refusal
				}
				if got := job.whoAnswers(order{Dial: server4}); got != x.want {
					t.Errorf("%s: answered by %q, want %q", x.state, got, x.want)
				}
				if err := h.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A folder that is no cgroup is called so.
func TestNoCgroup(t *testing.T) {
	require.Root(t)
	if _, err := Attach(Config{Cgroup: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "that is no cgroup of version 2") {
		t.Error(err)
	}
}

// A start that fails half way leaves a dead proxy's refusal as it was.
func TestStartFailsAfterKill(t *testing.T) {
	b := newBed(t)
	c := b.config()
	c.Refuse = true
	first := b.attach(c)
	if err := first.objects.Beat.Put(uint32(0), uint64(0)); err != nil {
		t.Fatal(err)
	}
	first.die()
	folder, err := os.Open(b.cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	job := b.client()
	var others []*ebpf.Program
	for range 63 { // with the one that is left the kernel has room for no other, BPF_CGROUP_MAX_PROGS
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "others", Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet6Connect, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(folder.Fd()), Program: p, Attach: ebpf.AttachCGroupInet6Connect, Flags: unix.BPF_F_ALLOW_MULTI})
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, p)
	}
	if _, err := b.tryAttach(c); !errors.Is(err, unix.E2BIG) {
		t.Fatalf("there is no place for another program: %v", err)
	}
	for _, addr := range []string{server4, server6} {
		if got := job.whoAnswers(order{Dial: addr}); got != "refused" {
			t.Errorf("after a start that failed: %s answered by %q", addr, got)
		}
	}
	err = link.RawDetachProgram(link.RawDetachProgramOptions{Target: int(folder.Fd()), Program: others[0], Attach: ebpf.AttachCGroupInet6Connect})
	if err != nil {
		t.Fatal(err)
	}
	h := b.attach(c)
	for _, want := range []string{"P", "D"} {
		for _, addr := range []string{server4, server6} {
			if got := job.whoAnswers(order{Dial: addr}); got != want {
				t.Errorf("%s answered by %q, want %q", addr, got, want)
			}
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// New networks come into force, old ones leave it, open connections live; and an address that the host gets is its own.
func TestUpdate(t *testing.T) {
	b := newBed(t)
	h := b.attach(b.config())
	job := b.client()
	open := job.do(order{Dial: server4})
	if err := h.Update([]netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, nil); err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]string{server4: "D", server6: "D", "10.9.0.1:20001": "P"} {
		if got := job.whoAnswers(order{Dial: addr}); got != want {
			t.Errorf("%s answered by %q, want %q", addr, got, want)
		}
	}
	if a := job.do(order{Conn: open.Conn, Send: 100}); a.Err != "" {
		t.Errorf("open before: %s", a.Err)
	}
	b.job.answer(b.job.listen("tcp", ":30000"), "L", nil)
	b.job.Address("lo", "10.9.7.7/32")
	if err := h.Refresh(); err != nil {
		t.Fatal(err)
	}
	if got := job.whoAnswers(order{Dial: "10.9.7.7:30000"}); got != "L" {
		t.Errorf("a new address of the host answered by %q, want itself", got)
	}
}

// A proxy that lives goes on taking connections when it cannot learn of new addresses, and does not say otherwise.
func TestRefreshWithoutAddresses(t *testing.T) {
	b := newBed(t)
	h := b.attach(b.config())
	job := b.client()
	if err := errors.Join(h.objects.Beat.Put(uint32(0), uint64(0)), h.objects.Networks.Close()); err != nil { // the programs have it
		t.Fatal(err)
	}
	clear(h.maps.networks.holds)
	err := h.Refresh()
	if err == nil || !strings.Contains(err.Error(), "not brought up to date") || strings.Contains(err.Error(), "bypass") {
		t.Errorf("Refresh: %v", err)
	}
	if got := job.whoAnswers(order{Dial: server4}); got != "P" {
		t.Errorf("answered by %q", got)
	}
	if err := h.objects.Beat.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Refresh(); err == nil || !strings.Contains(err.Error(), "soon bypass the proxy") {
		t.Errorf("Refresh without a beat: %v", err)
	}
}

// A family that has no listener is said, not lost.
func TestUpdateNeedsAListener(t *testing.T) {
	b := newBed(t)
	c := b.config()
	c.Listen6, c.Networks = 0, c.Networks[:1]
	h := b.attach(c)
	err := h.Update([]netip.Prefix{netip.MustParsePrefix("2001:db8:2::/48")}, nil)
	if err == nil || !strings.Contains(err.Error(), "restart gradproxy") {
		t.Errorf("Update: %v", err)
	}
	if got := b.client().whoAnswers(order{Dial: server4}); got != "P" {
		t.Errorf("the old networks: answered by %q", got)
	}
}

// While networks change every new connection is taken that both the old and the new hold.
func TestUpdateLeavesNoGap(t *testing.T) {
	b := newBed(t)
	h := b.attach(b.config())
	job := b.client()
	halves := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/17"), netip.MustParsePrefix("10.2.128.0/17"), netip.MustParsePrefix("2001:db8::/32")}
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			networks := b.config().Networks
			if i%2 == 0 {
				networks = halves
			}
			if err := h.Update(networks, nil); err != nil {
				done <- err
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for i := range 200 {
		if got := job.whoAnswers(order{Dial: []string{server4, server6}[i%2]}); got != "P" {
			t.Errorf("dial %d answered by %q", i, got)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A client that dials the listener has dialled nobody else, and a socket's second try is not taken for its first.
func TestNobodyDialled(t *testing.T) {
	b := newBed(t)
	b.attach(b.config())
	outside := startClient(t, b.job, b.group.Proxy())
	if got := outside.whoAnswers(order{Dial: b.proxies[0].Addr().String()}); got != "P" {
		t.Fatalf("the listener: answered by %q", got)
	}
	if s := <-b.seen; s.server.IsValid() {
		t.Errorf("a connection to the listener itself was for %v", s.server)
	}
}

// Programs hold on kernels that want every access aligned.
func TestAccessesAreAligned(t *testing.T) {
	newGroup(t)
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range spec.Programs {
		p.Flags |= unix.BPF_F_STRICT_ALIGNMENT
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	c.Close()
}

package intercept

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/netns"
)

const (
	server4 = "10.2.0.1:20001"
	server6 = "[2001:db8:2::1]:20001"
)

func TestMain(m *testing.M) {
	require.ManyAtOnce()
	os.Exit(m.Run())
}

// twoSites returns a job's host, and a far host whose servers answer "D": reached directly.
func twoSites(t *testing.T) (job, far *site) {
	job, far = newSite(t), newSite(t)
	connect(job, far, "wan", []string{"10.1.0.1/24", "2001:db8:1::1/64"}, []string{"10.1.0.2/24", "2001:db8:1::2/64"})
	job.Route("10.2.0.0/16", "10.1.0.2")
	job.Route("2001:db8:2::/48", "2001:db8:1::2")
	connect(far, newSite(t), "lan", []string{"10.2.0.1/16", "2001:db8:2::1/48"}, nil)
	for _, addr := range []string{server4, server6, "10.2.0.1:22", "10.2.0.1:7443", "10.2.0.1:80"} {
		far.answer(addr, "D")
	}
	if t.Failed() {
		t.FailNow()
	}
	return job, far
}

func paris() RedirectConfig {
	return RedirectConfig{Site: "paris", Networks: prefixes("10.2.0.0/16", "2001:db8:2::/48", "10.1.0.0/24"),
		Tunnels: []netip.AddrPort{netip.MustParseAddrPort("10.2.0.1:7443")}}
}

// redirect puts rules in force inside the site.
func redirect(s *site, c RedirectConfig) *Redirect {
	s.t.Helper()
	var r *Redirect
	var err error
	s.Do(func() { r, err = NewRedirect(c) })
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { r.Close() })
	return r
}

// serve runs r with a handler that answers "P": reached the proxy. It returns the function that stops it.
func serve(t *testing.T, r *Redirect, seen func(client, server netip.AddrPort)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		defer close(done)
		done <- r.Serve(ctx, func(c *net.TCPConn, server netip.AddrPort, ended func()) {
			defer ended()
			if seen != nil {
				seen(addrPort(c.RemoteAddr()), server)
			}
			say(c, "P")
		})
	}()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestRedirectTellsWhereTheClientMeantToGo(t *testing.T) {
	job, _ := twoSites(t)
	type ends struct{ client, server netip.AddrPort }
	seen := make(chan ends, 2)
	serve(t, redirect(job, paris()), func(client, server netip.AddrPort) { seen <- ends{client, server} })
	for _, addr := range []string{server4, server6} {
		c, err := job.dial(addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := readWord(c); got != "P" {
			t.Fatalf("%s: answered by %q, want the proxy", addr, got)
		}
		want := ends{addrPort(c.LocalAddr()), netip.MustParseAddrPort(addr)}
		if got := <-seen; got != want {
			t.Errorf("handler was given %v, want %v", got, want)
		}
		if !strings.HasPrefix(want.client.String(), "10.1.0.1:") && !strings.HasPrefix(want.client.String(), "[2001:db8:1::1]:") {
			t.Errorf("the client is %v: not its real address", want.client)
		}
	}
}

// A connection that must never be redirected to the proxy is not, though its network and ports match.
func TestRedirectSparesWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	job, _ := twoSites(t)
	job.answer("10.1.0.1:30000", "L")
	c := paris()
	c.Ports = Ports{1, 65535}
	c.Refuse = true
	r := redirect(job, c)
	serve(t, r, nil)
	check := func(state string, taken string) {
		for _, x := range []struct{ addr, want, why string }{
			{"10.2.0.1:80", taken, "a port of the range"},
			{"10.2.0.1:22", "D", "port 22 is never taken"},
			{"10.2.0.1:7443", "D", "the peer's tunnel is never taken"},
			{"10.1.0.1:30000", "L", "local addresses are never taken"},
		} {
			if got := job.whoAnswers(x.addr); got != x.want {
				t.Errorf("%s: %s answered by %q, want %q: %s", state, x.addr, got, x.want, x.why)
			}
		}
		job.Do(func() {
			d := net.Dialer{Control: Control}
			own, err := d.Dial("tcp", server4)
			if err != nil {
				t.Error(err)
				return
			}
			defer own.Close()
			if got := readWord(own); got != "D" {
				t.Errorf("%s: the proxy's own connection was answered by %q, want D", state, got)
			}
		})
	}
	check("alive", "P")
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	check("dead", "refused")
}

func TestPortsOutsideTheRangeAreSpared(t *testing.T) {
	job, _ := twoSites(t)
	serve(t, redirect(job, paris()), nil)
	if got := job.whoAnswers("10.2.0.1:80"); got != "D" {
		t.Errorf("port 80 answered by %q, want D", got)
	}
}

// Connections that were open before the rules came, idle or not, are untouched by them, whether they are in force, have
// expired, or refuse; and so are connections whose first packet conntrack never saw.
func TestOpenConnectionsAreUntouched(t *testing.T) {
	t.Parallel()
	job, _ := twoSites(t)
	var open []net.Conn
	for _, addr := range []string{server4, server6} {
		c, err := job.dial(addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := readWord(c); got != "D" {
			t.Fatalf("answered by %q", got)
		}
		open = append(open, c)
	}
	all := func(state string) {
		for _, c := range open {
			echoes(t, state+": "+c.RemoteAddr().String(), c)
		}
	}
	c := paris()
	c.Refuse = true
	r := redirect(job, c)
	stop := serve(t, r, nil)
	all("in force")
	if got := job.whoAnswers(server4); got != "P" {
		t.Fatalf("a new connection was answered by %q, want P", got)
	}
	stop()
	all("refusing")
	if got := job.whoAnswers(server4); got != "refused" {
		t.Errorf("a new connection was answered by %q, want a refusal", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	all("removed")
}

// The rules of a proxy that no longer refreshes them lose their force by themselves. Connections that were redirected
// before stay so: conntrack holds their mapping.
func TestRulesExpireByThemselves(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name   string
		refuse bool
		want   string
	}{{"direct", false, "D"}, {"refuse", true, "refused"}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			job, _ := twoSites(t)
			c := paris()
			c.Refuse = x.refuse
			r := redirect(job, c)
			for _, l := range r.listeners { // accepts, but never refreshes: a stuck proxy
				go func() {
					_ = acceptAll(t.Context(), l, Places{}, r.log, func(c *net.TCPConn, _ func()) { say(c, "P") })
				}()
			}
			redirected, err := job.dial(server4)
			if err != nil {
				t.Fatal(err)
			}
			if got := readWord(redirected); got != "P" {
				t.Fatalf("answered by %q, want P", got)
			}
			began := time.Now()
			got := "P"
			for got == "P" && time.Since(began) < 10*Timeout { // by the kernel's clock: all that a test can do is look
				time.Sleep(Refresh / 30)
				got = job.whoAnswers(server4)
			}
			if got != x.want {
				t.Fatalf("after %v a new connection was answered by %q, want %q", time.Since(began), got, x.want)
			}
			if got := job.whoAnswers(server6); got != x.want {
				t.Errorf("IPv6: answered by %q, want %q", got, x.want)
			}
			echoes(t, "redirected before", redirected)
		})
	}
}

// Connections that are made while no proxy runs wait for the next one, if it comes in time: from the moment at which
// the old one was killed, also while its rules are still in force. If none comes, they are refused, and never go
// directly.
func TestHeldForTheNextProxy(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name string
		hold time.Duration
		die  func(r *Redirect) error
		next bool
		want string
	}{
		{"killed", HoldFor, (*Redirect).closeAll, true, "P"},
		{"stopped, then killed", HoldFor, func(r *Redirect) error { return errors.Join(r.Stop(), r.closeAll()) }, true, "P"},
		{"no next proxy", time.Millisecond, (*Redirect).closeAll, false, "refused"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			job, _ := twoSites(t)
			c := paris()
			c.Refuse, c.Hold = true, x.hold
			if err := x.die(redirect(job, c)); err != nil { // as the kernel does at kill -9: descriptors go, the table stays
				t.Fatal(err)
			}
			answers := make(chan string, 2)
			for _, addr := range []string{server4, server6} {
				go func() { answers <- job.whoAnswers(addr) }()
			}
			if x.next {
				select {
				case got := <-answers:
					t.Fatalf("without a proxy: answered by %q", got)
				case <-time.After(500 * time.Millisecond):
				}
				serve(t, redirect(job, c), nil)
			}
			for range 2 {
				if got := <-answers; got != x.want {
					t.Errorf("answered by %q, want %q", got, x.want)
				}
			}
		})
	}
}

// Refreshed in time, the rules stay in force beyond their time-out. Reading the set says when its element ends.
func TestRefreshProlongs(t *testing.T) {
	job, _ := twoSites(t)
	r := redirect(job, paris())
	left := func() time.Duration {
		es, err := inKernel(r).conn.GetSetElements(aliveSet(inKernel(r).table()))
		if err != nil || len(es) != 1 {
			t.Fatalf("set alive: %v, %v", es, err)
		}
		return es[0].Expires
	}
	for left() > Timeout-100*time.Millisecond {
		time.Sleep(10 * time.Millisecond)
	}
	before := left()
	if err := r.refresh(); err != nil {
		t.Fatal(err)
	}
	if after := left(); after <= before {
		t.Errorf("the element ends in %v, before the refresh in %v", after, before)
	}
}

// Rules that somebody flushed are back with the next refresh.
func TestRefreshRestoresFlushedRules(t *testing.T) {
	job, _ := twoSites(t)
	r := redirect(job, paris())
	serve(t, r, nil)
	job.Do(func() {
		inKernel(r).conn.FlushRuleset()
		job.Check(inKernel(r).conn.Flush())
	})
	if got := job.whoAnswers(server4); got != "D" {
		t.Fatalf("without rules: answered by %q, want D", got)
	}
	if err := r.refresh(); err != nil {
		t.Fatal(err)
	}
	if got := job.whoAnswers(server4); got != "P" {
		t.Errorf("restored: answered by %q, want P", got)
	}
}

// A redirect that goes on writes rules anew that somebody flushed meanwhile. One that has stopped stays so.
func TestGoOnRestoresFlushedRules(t *testing.T) {
	for name, hold := range map[string]time.Duration{"held": HoldFor, "not held": 0} {
		t.Run(name, func(t *testing.T) {
			job, _ := twoSites(t)
			c := paris()
			c.Hold = hold
			r := redirect(job, c)
			serve(t, r, nil)
			if err := r.Pause(); err != nil {
				t.Fatal(err)
			}
			job.Do(func() {
				inKernel(r).conn.FlushRuleset()
				job.Check(inKernel(r).conn.Flush())
			})
			if err := r.GoOn(); err != nil {
				t.Fatal(err)
			}
			if got := job.whoAnswers(server4); got != "P" {
				t.Errorf("gone on: answered by %q, want P", got)
			}
		})
	}
	job, _ := twoSites(t)
	r := redirect(job, paris())
	serve(t, r, nil)
	if err := errors.Join(r.Pause(), r.Stop(), r.GoOn()); err != nil {
		t.Fatal(err)
	}
	if got := job.whoAnswers(server4); got != "D" {
		t.Errorf("stopped: answered by %q, want D", got)
	}
}

// A table that a killed proxy left is replaced; a living proxy's is not.
func TestLeftOverTable(t *testing.T) {
	job, _ := twoSites(t)
	dead := redirect(job, paris())
	job.Do(func() {
		_, err := NewRedirect(paris())
		if err == nil || !strings.Contains(err.Error(), "belongs to another gradproxy") || strings.Contains(err.Error(), "\n") {
			t.Errorf("beside a living proxy: %v", err)
		}
	})
	if err := dead.closeAll(); err != nil { // as the kernel does at kill -9: descriptors go, the table stays
		t.Fatal(err)
	}
	serve(t, redirect(job, paris()), nil)
	for _, addr := range []string{server4, server6} {
		if got := job.whoAnswers(addr); got != "P" {
			t.Errorf("%s: answered by %q, want the new proxy", addr, got)
		}
	}
}

// A redirect can be tried while a proxy of its site runs, which stays as it was, and the try says whether rights are
// missing.
func TestTryRedirect(t *testing.T) {
	job, _ := twoSites(t)
	serve(t, redirect(job, paris()), nil)
	job.Do(func() {
		for range 2 {
			job.Check(TryRedirect(paris()))
		}
	})
	if got := job.whoAnswers(server4); got != "P" {
		t.Errorf("after the tries: answered by %q, want P", got)
	}
	job.Do(func() {
		before := unprivileged(job)
		defer privileged(job, before)
		if err := TryRedirect(paris()); err == nil || !strings.Contains(err.Error(), "lacks CAP_NET_ADMIN") {
			t.Errorf("without rights: %v", err)
		}
	})
}

// unprivileged takes all rights in force from this thread, and returns what privileged gives back.
func unprivileged(s *site) (was [2]unix.CapUserData) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	s.Check(unix.Capget(&header, &was[0]))
	less := was
	less[0].Effective, less[1].Effective = 0, 0
	s.Check(unix.Capset(&header, &less[0]))
	return was
}

func privileged(s *site, was [2]unix.CapUserData) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	s.Check(unix.Capset(&header, &was[0]))
}

// A user without rights cannot keep a proxy from its rules, as the name of an abstract socket could, and the claim goes
// with its owner only.
func TestClaims(t *testing.T) {
	job, _ := twoSites(t)
	job.Do(func() {
		for _, name := range []string{"gradproxy_paris", "claim_gradproxy_paris", "gradproxy mark", "claim_mark"} {
			l, err := net.Listen("unix", "@"+name)
			job.Check(err)
			defer l.Close()
		}
		first, err := claim("claim_gradproxy_paris", "the table")
		if err != nil {
			t.Fatal(err)
		}
		conn := openConn(job)
		if _, err := claim("claim_gradproxy_paris", "the table"); err == nil || !strings.Contains(err.Error(), "the table belongs to another gradproxy") {
			t.Errorf("claimed twice: %v", err)
		}
		conn.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "claim_gradproxy_paris"})
		if err := conn.Flush(); !errors.Is(err, syscall.EPERM) {
			t.Errorf("another process deletes the claim: %v", err)
		}
		conn.FlushRuleset()
		job.Check(conn.Flush())
		if !exists("claim_gradproxy_paris") {
			t.Error("the claim is gone after a flush of the rule set")
		}
		job.Check(first.Close())
		second, err := claim("claim_gradproxy_paris", "the table")
		if err != nil {
			t.Fatalf("once its owner is gone: %v", err)
		}
		job.Check(second.Close())
		if exists("claim_gradproxy_paris") {
			t.Error("the claim outlives its owner")
		}
	})
}

// Of two proxies of one site on a host the second is refused, and leaves the rules of the first in force; it may start
// once the first one has ended. Two proxies of different sites run beside each other, and each takes its own networks'
// connections.
func TestTwoProxiesOnOneHost(t *testing.T) {
	job, _ := twoSites(t)
	first := redirect(job, paris())
	stop := serve(t, first, nil)
	var err error
	var second *Redirect
	start := func() { job.Do(func() { second, err = NewRedirect(paris()) }) }
	for range 2 { // also when it is tried again
		if start(); err == nil {
			second.Close()
			t.Fatal("two proxies of one site run")
		} else if !strings.Contains(err.Error(), "belongs to another gradproxy") {
			t.Errorf("the second is refused without a reason: %v", err)
		}
		for _, addr := range []string{server4, server6} {
			if got := job.whoAnswers(addr); got != "P" {
				t.Errorf("after the second was refused %s is answered by %q, want the first", addr, got)
			}
		}
	}
	lyon := RedirectConfig{Site: "lyon", Networks: prefixes("10.3.0.0/16")}
	serve(t, redirect(job, lyon), func(_, server netip.AddrPort) {
		t.Errorf("lyon is given a connection to %v, which lies behind a peer of paris", server)
	})
	for _, addr := range []string{server4, server6} {
		if got := job.whoAnswers(addr); got != "P" {
			t.Errorf("beside another site's proxy %s is answered by %q", addr, got)
		}
	}
	stop()
	job.Check(first.Close())
	if start(); err != nil {
		t.Fatalf("once the first has ended: %v", err)
	}
	serve(t, second, nil)
	t.Cleanup(func() { second.Close() })
	if got := job.whoAnswers(server4); got != "P" {
		t.Errorf("the second is not asked: %q answers", got)
	}
}

// Kernels without owned tables have a socket in their place.
func TestClaimBySocket(t *testing.T) {
	first, err := claimSocket("gradproxy_claim_test", "the table")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claimSocket("gradproxy_claim_test", "the table"); err == nil || !strings.Contains(err.Error(), "belongs to another gradproxy") {
		t.Errorf("claimed twice: %v", err)
	}
	first.Close()
	second, err := claimSocket("gradproxy_claim_test", "the table")
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

// Close removes every trace.
func TestCloseRemovesTheTable(t *testing.T) {
	job, _ := twoSites(t)
	r := redirect(job, paris())
	tables := func() []string {
		conn, names := openConn(job), []string{}
		ts, err := conn.ListTables()
		job.Check(err)
		for _, table := range ts {
			names = append(names, table.Name)
		}
		return names
	}
	if got := tables(); len(got) != 2 || !slices.Contains(got, "gradproxy_paris") || !slices.Contains(got, "claim_gradproxy_paris") {
		t.Fatalf("tables: %v", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got := tables(); len(got) != 0 {
		t.Errorf("tables after Close: %v", got)
	}
}

// New networks come into force, old ones leave it, and open connections are not harmed.
func TestUpdate(t *testing.T) {
	t.Parallel()
	job, _ := twoSites(t)
	c := paris()
	c.Networks = prefixes("10.9.0.0/16", "2001:db8:2::/48")
	r := redirect(job, c)
	serve(t, r, nil)
	if got := job.whoAnswers(server4); got != "D" {
		t.Fatalf("answered by %q, want D", got)
	}
	kept, err := job.dial(server6)
	if err != nil {
		t.Fatal(err)
	}
	if got := readWord(kept); got != "P" {
		t.Fatalf("answered by %q, want P", got)
	}
	if err := r.Update(prefixes("10.2.0.0/16"), nil); err != nil {
		t.Fatal(err)
	}
	if got := job.whoAnswers(server4); got != "P" {
		t.Errorf("added network: answered by %q, want P", got)
	}
	if got := job.whoAnswers(server6); got != "D" {
		t.Errorf("removed network: answered by %q, want D", got)
	}
	echoes(t, "redirected before the update", kept)
}

// A gateway takes connections that other hosts send through it, and refuses them when dead.
func TestGateway(t *testing.T) {
	t.Parallel()
	job, gateway := newSite(t), newSite(t)
	_, far := newSite(t), newSite(t)
	connect(job, gateway, "lan", []string{"10.1.0.1/24", "2001:db8:1::1/64"}, []string{"10.1.0.254/24", "2001:db8:1::254/64"})
	connect(gateway, far, "wan", []string{"10.2.0.254/24", "2001:db8:2::254/64"}, []string{"10.2.0.1/24", "2001:db8:2::1/64"})
	job.Route("10.2.0.0/24", "10.1.0.254")
	job.Route("2001:db8:2::/64", "2001:db8:1::254")
	far.Route("10.1.0.0/24", "10.2.0.254")
	far.Route("2001:db8:1::/64", "2001:db8:2::254")
	gateway.Do(func() {
		gateway.Check(netns.Sysctl("net/ipv4/ip_forward", "1"))
		gateway.Check(netns.Sysctl("net/ipv6/conf/all/forwarding", "1"))
	})
	far.answer(server4, "D")
	far.answer(server6, "D")
	for _, addr := range []string{server4, server6} {
		if got := job.whoAnswers(addr); got != "D" {
			t.Fatalf("%s without rules: answered by %q, want D", addr, got)
		}
	}
	c := RedirectConfig{Site: "gw", Networks: prefixes("10.2.0.0/24", "2001:db8:2::/64"), Gateway: true, Refuse: true}
	r := redirect(gateway, c)
	serve(t, r, func(client, server netip.AddrPort) {
		if s := server.String(); s != server4 && s != server6 {
			t.Errorf("server = %s", s)
		}
	})
	for _, addr := range []string{server4, server6} {
		if got := job.whoAnswers(addr); got != "P" {
			t.Errorf("%s: answered by %q, want P", addr, got)
		}
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{server4, server6} {
		if got := job.whoAnswers(addr); got != "refused" {
			t.Errorf("%s, dead: answered by %q, want refused", addr, got)
		}
	}
}

// A client that dials the listener itself is reset: there is no destination, and a gateway's listener is open to the
// network.
func TestDirectConnectionsToTheListenerAreReset(t *testing.T) {
	job, _ := twoSites(t)
	r := redirect(job, paris())
	serve(t, r, func(_, server netip.AddrPort) { t.Errorf("handled, with server %v", server) })
	for _, l := range r.listeners {
		c, err := job.dial(l.Addr().String())
		if err == nil {
			_, err = io.ReadAll(c)
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v: %v, want a reset", l.Addr(), err)
		}
	}
}

// While networks change and the rules are refreshed, every new connection is taken: each change is one transaction.
func TestChangesLeaveNoGap(t *testing.T) {
	t.Parallel()
	job, _ := twoSites(t)
	r := redirect(job, paris())
	serve(t, r, nil)
	const changes, dials = 200, 200
	changed := make(chan error, 1)
	go func() {
		for i := range changes {
			networks := prefixes("10.2.0.0/16", "2001:db8:2::/48")
			if i%2 == 1 {
				networks = prefixes("10.2.0.0/17", "10.2.128.0/17", "10.77.0.0/16", "2001:db8::/32")
			}
			if err := errors.Join(r.Update(networks, nil), r.refresh()); err != nil {
				changed <- err
				return
			}
		}
		changed <- nil
	}()
	job.Do(func() {
		for i := range dials {
			addr := []string{server4, server6}[i%2]
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Errorf("dial %d: %v", i, err)
				return
			}
			if got := readWord(c); got != "P" {
				t.Errorf("dial %d of %s: answered by %q, want the proxy", i, addr, got)
			}
			reset(c.(*net.TCPConn))
		}
	})
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
}

// A claim by an abstract socket, as on a kernel without tables that belong to a process, holds, and is told in one
// line.
func TestClaimByASocketIsTold(t *testing.T) {
	job, _ := twoSites(t)
	job.Do(func() {
		var log bytes.Buffer
		r := &Redirect{log: slog.New(slog.NewTextHandler(&log, nil))}
		c, err := claimSocket("claim_gradproxy_paris", "the table")
		if err != nil {
			t.Fatal(err)
		}
		r.keep(c, "the table")
		if _, err := claimSocket("claim_gradproxy_paris", "the table"); err == nil || !strings.Contains(err.Error(), "the table belongs to another gradproxy") {
			t.Errorf("claimed twice: %v", err)
		}
		said := log.String()
		if strings.Count(said, "\n") != 1 || !strings.Contains(said, "Linux 5.12") || !strings.Contains(said, "socket=@claim_gradproxy_paris") {
			t.Errorf("the log says: %s", said)
		}
		table, err := claim("claim_gradproxy_tokyo", "the table")
		if err != nil {
			t.Fatal(err)
		}
		if r.keep(table, "the table"); log.String() != said {
			t.Errorf("a table is told too: %s", log.String())
		}
		job.Check(r.closeAll())
	})
}

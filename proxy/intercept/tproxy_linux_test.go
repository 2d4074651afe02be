package intercept

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require/netns"
)

// gateway returns a client's host, a gateway, and a server's host behind it whose servers answer "D": reached directly.
func gateway(t *testing.T) (client, gw, server *site) {
	client, gw, server = newSite(t), newSite(t), newSite(t)
	connect(client, gw, "lan", []string{"10.1.0.1/24", "2001:db8:1::1/64"}, []string{"10.1.0.2/24", "2001:db8:1::2/64"})
	connect(server, gw, "wan", []string{"10.2.0.1/24", "2001:db8:2::1/64"}, []string{"10.2.0.2/24", "2001:db8:2::2/64"})
	for _, s := range []struct {
		site *site
		via  []string
	}{{client, []string{"10.1.0.2", "2001:db8:1::2"}}, {server, []string{"10.2.0.2", "2001:db8:2::2"}}} {
		s.site.Route("0.0.0.0/0", s.via[0])
		s.site.Route("::/0", s.via[1])
	}
	gw.Do(func() {
		gw.Check(netns.Sysctl("net/ipv4/ip_forward", "1"))
		gw.Check(netns.Sysctl("net/ipv6/conf/all/forwarding", "1"))
	})
	for _, addr := range []string{server4, server6, "10.2.0.1:22", "10.2.0.1:7443"} {
		server.answer(addr, "D")
	}
	if t.Failed() {
		t.FailNow()
	}
	return client, gw, server
}

func transparent() RedirectConfig {
	return RedirectConfig{Site: "gw", Networks: prefixes("10.2.0.0/16", "2001:db8:2::/48"), Transparent: true,
		Tunnels: []netip.AddrPort{netip.MustParseAddrPort("10.2.0.1:7443")}}
}

func TestTransparentTellsWhereTheClientMeantToGo(t *testing.T) {
	t.Parallel()
	client, gw, _ := gateway(t)
	type ends struct{ client, server netip.AddrPort }
	seen := make(chan ends, 2)
	r := redirect(gw, transparent())
	stop := serve(t, r, func(client, server netip.AddrPort) { seen <- ends{client, server} })
	var open []net.Conn
	for _, addr := range []string{server4, server6} {
		c, err := client.dial(addr)
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
		open = append(open, c)
	}
	for _, x := range []struct{ addr, why string }{
		{"10.2.0.1:22", "port 22 is never taken"},
		{"10.2.0.1:7443", "the peer's tunnel is never taken"},
	} {
		if got := client.whoAnswers(x.addr); got != "D" {
			t.Errorf("%s answered by %q, want D: %s", x.addr, got, x.why)
		}
	}
	stop()
	for _, c := range open {
		echoes(t, "a connection that was open when the rules lost their force", c)
	}
	for _, addr := range []string{server4, server6} {
		if got := client.whoAnswers(addr); got != "D" {
			t.Errorf("%s after the proxy: answered by %q, want D", addr, got)
		}
	}
}

// A connection of the gateway that has its client's address and port gets its answers though they are addressed to the
// client, and the server sees the client.
func TestTransparentConnectionsKeepTheirClient(t *testing.T) {
	t.Parallel()
	_, gw, server := gateway(t)
	c := transparent()
	c.Networks = prefixes("10.1.0.0/16", "2001:db8:1::/48") // the clients', as at the gateway beside the servers
	redirect(gw, c)
	for _, x := range []struct{ client, server string }{
		{"10.1.0.1:40123", "10.2.0.1:20002"},
		{"[2001:db8:1::1]:40123", "[2001:db8:2::1]:20002"},
	} {
		seen := make(chan string, 2)
		server.Do(func() {
			l, err := listen("tcp", netip.MustParseAddrPort(x.server), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.AcceptTCP()
					if err != nil {
						return
					}
					seen <- c.RemoteAddr().String()
					go say(c, "D")
				}
			}()
		})
		for range 2 { // at once again: the first has left TIME_WAIT behind on one side
			gw.Do(func() {
				d := net.Dialer{Control: TransparentControl, Timeout: 10 * time.Second,
					LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(x.client))}
				c, err := d.Dial("tcp", x.server)
				for begin := time.Now(); errors.Is(err, unix.EADDRNOTAVAIL) && time.Since(begin) < 10*time.Second; { // the kernel may not be done with the first one
					time.Sleep(time.Millisecond)
					c, err = d.Dial("tcp", x.server)
				}
				if err != nil {
					t.Errorf("dial %s as %s: %v", x.server, x.client, err)
					return
				}
				if got := readWord(c); got != "D" {
					t.Errorf("answered by %q, want D", got)
				}
				if got := <-seen; got != x.client {
					t.Errorf("the server sees %s, want %s", got, x.client)
				}
				echoes(t, "with the client's address", c)
				reset(c.(*net.TCPConn))
			})
		}
	}
}

func TestTransparentRefusesWhenDead(t *testing.T) {
	t.Parallel()
	client, gw, _ := gateway(t)
	c := transparent()
	c.Refuse = true
	r := redirect(gw, c)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{server4, server6} {
		if got := client.whoAnswers(addr); got != "refused" {
			t.Errorf("%s after the proxy: %q, want refused", addr, got)
		}
	}
	if got := client.whoAnswers("10.2.0.1:22"); got != "D" {
		t.Errorf("port 22 after the proxy: %q, want D", got)
	}
}

// Routes go with the proxy that made them, and routes that a dead one left are no obstacle.
func TestTransparentRoutesComeAndGo(t *testing.T) {
	_, gw, _ := gateway(t)
	rules := func() (marks []uint32) {
		gw.Do(func() {
			for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
				list, err := netlink.RuleList(f)
				gw.Check(err)
				for _, r := range list {
					if r.Mark != 0 {
						marks = append(marks, r.Mark)
					}
				}
			}
		})
		return marks
	}
	gw.Do(func() { // as a proxy that was killed
		_, err := addRoutes(markOf("gw"), true, true)
		gw.Check(err)
	})
	r := redirect(gw, transparent())
	if got, want := rules(), []uint32{markOf("gw"), markOf("gw")}; !slices.Equal(got, want) {
		t.Errorf("marks of routing rules: %#x, want %#x", got, want)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if got := rules(); len(got) > 0 {
		t.Errorf("after Close there are rules for %#x", got)
	}
}

// The mark of a site is a hash of its name. Of two sites with the same one the second does not start, so that no end of
// one takes the routes of the other; once the first has ended the mark is free.
func TestTransparentSitesDoNotShareAMark(t *testing.T) {
	_, gw, _ := gateway(t)
	first, second := transparent(), transparent()
	for i := 0; markOf(second.Site) != markOf(first.Site) || second.Site == first.Site; i++ {
		second.Site = fmt.Sprintf("gw%d", i)
	}
	r := redirect(gw, first)
	open := func() (other *Redirect, err error) {
		gw.Do(func() { other, err = NewRedirect(second) })
		return other, err
	}
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "name this site otherwise") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%s beside %s: %v, want one line that says what to do", second.Site, first.Site, err)
	} else {
		t.Log(err)
	}
	gw.Do(func() {
		rules, err := netlink.RuleListFiltered(unix.AF_INET, &netlink.Rule{Mark: markOf(first.Site)}, netlink.RT_FILTER_MARK)
		gw.Check(err)
		if len(rules) != 1 {
			t.Errorf("%d routing rules for the first site, want 1", len(rules))
		}
	})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	other, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

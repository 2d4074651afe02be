package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	codecs "github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/integration/require/freeport"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// A lab is three sites on loopback: every address 127.0.N.x lies at site N.
type lab struct {
	t    *testing.T
	dir  string
	port int // of the sites' tunnels
}

func newLab(t *testing.T) *lab {
	l := &lab{t, t.TempDir(), freePort()}
	if _, err := pki.Write(pki.Options{Dir: l.dir, Domain: "lab", Sites: names[:]}); err != nil {
		t.Fatal(err)
	}
	return l
}

var names = [...]string{"paris", "tokyo", "virginia"}

// labPorts has the ports that this process has given to labs.
var labPorts sync.Map

// freePort returns a port that is free at each site's address, so that the tests run beside a gradproxy and beside each
// other. It lies below the range from which the kernel takes ports for connections.
func freePort() int {
	for {
		port := 10000 + rand.IntN(20000)
		if _, taken := labPorts.LoadOrStore(port, true); taken {
			continue
		}
		taken := false
		for n := range names {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.%d.1:%d", n+1, port))
			if taken = taken || err != nil; err == nil {
				l.Close()
			}
		}
		if !taken {
			return port
		}
	}
}

// load writes and reads the configuration of site n: its tunnel is at 127.0.n+1.1, the sites after it dial it.
func (l *lab) load(n int, more string) *config.Config {
	l.t.Helper()
	text := fmt.Sprintf("site: %s\ntunnel: {listen: \"127.0.%d.1:%d\"}\nadmin: unix:%s/%[1]s.sock\npeers:\n", names[n], n+1, l.port, l.dir)
	for p, name := range names {
		if p == n {
			continue
		}
		dial := ""
		if p < n {
			dial = fmt.Sprintf(`dial: "127.0.%d.1:%d", `, p+1, l.port)
		}
		text += fmt.Sprintf("  - {name: %s, %snetworks: [127.0.%d.0/24], may_dial: [\"127.0.%d.0/24:1024-65535\"]}\n", name, dial, p+1, n+1)
	}
	file := filepath.Join(l.dir, names[n]+".yaml")
	if err := os.WriteFile(file, []byte(text+more), 0o600); err != nil {
		l.t.Fatal(err)
	}
	c, problems := config.Load(file, Known())
	if problems = append(problems, c.Identify(time.Now())...); len(problems.Errors()) > 0 {
		l.t.Fatal(problems)
	}
	return c
}

// A running site is one that Run runs.
type running struct {
	*Site
	log       *buffer
	end, cut  context.CancelFunc
	ended     chan error
	socket    string
	forwarded string // address of the first forward
}

// A buffer is a log.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (l *lab) run(c *config.Config) *running {
	l.t.Helper()
	r := &running{log: &buffer{}, ended: make(chan error, 1), socket: strings.TrimPrefix(c.Admin, "unix:")}
	s, err := Start(c, "v0", slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		l.t.Fatal(err)
	}
	r.Site = s
	if len(s.forwards) > 0 {
		r.forwarded = s.forwards[0].Addr().String()
	}
	var ctx, cut context.Context
	ctx, r.end = context.WithCancel(context.Background())
	cut, r.cut = context.WithCancel(context.Background())
	go func() { r.ended <- s.Run(ctx, cut) }()
	l.t.Cleanup(func() {
		r.end()
		r.cut()
		if err := <-r.ended; err != nil {
			l.t.Errorf("Run: %v", err)
		}
		if l.t.Failed() {
			l.t.Logf("log of %s:\n%s", c.Site, r.log)
		}
	})
	return r
}

// wait ends once Run has ended.
func (r *running) wait(t *testing.T) {
	t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err
	case <-time.After(time.Minute):
		t.Fatal("Run does not end")
	}
}

// get asks the admin socket.
func (r *running) get(path string) (int, string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.socket)
	}}}
	response, err := client.Get("http://admin" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	b, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(b)
}

// until asks again and again, and fails the test if the answer never is the wanted one.
func (r *running) until(t *testing.T, path string, status int, part string) {
	t.Helper()
	var got int
	var body string
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if got, body = r.get(path); got == status && strings.Contains(body, part) {
			return
		}
	}
	t.Fatalf("%s: %d %s, never %d with %q", path, got, body, status, part)
}

// echo serves at an address and returns it.
func echo(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func free(t *testing.T) string {
	t.Helper()
	address, err := freeport.Find("tcp", "127.0.0.1")
	must(t, err)
	return address
}

func forwardTo(t *testing.T, target string) string {
	return fmt.Sprintf("forward: [{listen: %q, target: %q}]\n", free(t), target)
}

// talk sends a word and wants it back.
func talk(c net.Conn, word string) error {
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	b := make([]byte, len(word))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != word {
		return fmt.Errorf("sent %q, came back %q", word, b)
	}
	return nil
}

func connect(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Three sites find each other, whoever dials, and a connection between any two goes to the right one.
func TestThreeSites(t *testing.T) {
	l := newLab(t)
	tokyo, virginia := echo(t, "127.0.2.9"), echo(t, "127.0.3.9")
	first := l.run(l.load(0, fmt.Sprintf("forward: [{listen: %q, target: %q}, {listen: %q, target: %q}]\n", free(t), tokyo, free(t), virginia)))
	status, body := first.get("/readyz")
	for _, line := range []string{"✓ drain", "✗ peer/tokyo: no tunnel has come up", "✗ peer/virginia: no tunnel has come up", "not ready"} {
		if status != 503 || !strings.Contains(body, line) {
			t.Errorf("alone: /readyz is %d %s, want 503 with %q", status, body, line)
		}
	}
	second := l.run(l.load(1, ""))
	third := l.run(l.load(2, forwardTo(t, tokyo)))
	for _, r := range []*running{first, second, third} {
		r.until(t, "/readyz", 200, "ready")
	}
	for i, f := range first.forwards {
		if err := talk(connect(t, f.Addr().String()), "bonjour"); err != nil {
			t.Errorf("forward %d of paris: %v", i, err)
		}
	}
	if err := talk(connect(t, third.forwarded), "hello"); err != nil {
		t.Errorf("forward of virginia: %v", err)
	}
	_, metrics := first.get("/metrics")
	for _, line := range []string{`gradproxy_peer_up{peer="tokyo"} 1`, `gradproxy_peer_up{peer="virginia"} 1`,
		`gradproxy_opens_total{peer="tokyo",result="ok"} 1`, `gradproxy_opens_total{peer="virginia",result="ok"} 1`,
		`gradproxy_config_last_reload_ok 1`, `gradproxy_build_info{`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
	if problems, err := testutil.GatherAndLint(first.registry); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
}

// Sites whose carriers are DTLS over UDP, or chosen, carry connections as others do.
func TestSitesOverDTLS(t *testing.T) {
	for _, carrier := range []string{tunnel.CarrierDTLS, tunnel.CarrierAuto} {
		t.Run(carrier, func(t *testing.T) { testSitesOver(t, carrier) })
	}
}

func testSitesOver(t *testing.T, carrier string) {
	l := newLab(t)
	over := func(n int, more string) *running {
		c := l.load(n, more)
		c.Tunnel.Carrier = carrier
		return l.run(c)
	}
	paris := over(0, forwardTo(t, echo(t, "127.0.2.9")))
	over(1, "")
	paris.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	c := connect(t, paris.forwarded)
	for _, n := range []int{1, 1000, 1 << 20} {
		if err := talk(c, strings.Repeat("x", n)); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if log := paris.log.String(); !strings.Contains(log, "udp:127.0.1.1:") {
		t.Errorf("the log names no listener of UDP:\n%s", log)
	}
	for path, chosen := range map[string]string{
		"/metrics": `gradproxy_peer_choice{carrier="tls",peer="tokyo",reason="first"} 1`,
		"/live":    `"choice": "tls: first"`, // which the page shows
	} {
		if _, text := paris.get(path); strings.Contains(text, chosen) != (carrier == tunnel.CarrierAuto) {
			t.Errorf("with carrier %s, %s says %s: %v", carrier, path, chosen, strings.Contains(text, chosen))
		}
	}
}

// A site whose file leaves the carrier out has carriers over TLS and datagrams, or over TLS alone where another program
// has the port of datagrams.
func TestCarriersWithoutTheirKey(t *testing.T) {
	for name, busy := range map[string]bool{"both": false, "no port": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			start := func(n int, more string) *running {
				c := l.load(n, more)
				c.Memory, c.References, c.State.Memory, c.Tunnel.Memory = 16<<20, 0, 16<<20, 16<<20 // so that datagrams fit in a small host
				if busy {
					other, err := net.ListenPacket("udp", c.Tunnel.Listen)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { other.Close() })
				}
				return l.run(c)
			}
			paris := start(0, forwardTo(t, echo(t, "127.0.2.9")))
			start(1, "")
			paris.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
			if err := talk(connect(t, paris.forwarded), "words"); err != nil {
				t.Fatal(err)
			}
			log := paris.log.String()
			if udp, said := strings.Contains(log, "udp:127.0.1.1:"), strings.Contains(log, "carriers use TLS alone, since datagrams have no listener"); udp == busy || said != busy {
				t.Errorf("a listener of UDP: %v, a line that says why not: %v:\n%s", udp, said, log)
			}
		})
	}
}

// The codecs of a peer are the codecs in its hello; a peer without a hello has none.
func TestPeerCodecs(t *testing.T) {
	l := newLab(t)
	r := l.run(l.load(0, ""))
	l.run(l.load(1, ""))
	r.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	if got, want := r.peerCodecs("tokyo"), append(codecs.Names(), proxy.Excerpts, proxy.Views, proxy.SharedValues, proxy.SharedParts, proxy.Models, proxy.ShortValues, proxy.HandOver, proxy.Short, proxy.Checksums, proxy.Masks); !slices.Equal(got, want) {
		t.Errorf("tokyo has %q, want %q", got, want)
	}
	if got := r.peerCodecs("virginia"); got == nil || len(got) > 0 {
		t.Errorf("virginia, which is down, has %#v, want an empty list", got)
	}
}

// An address that a peer may not have dialled is refused at once, and so are this site's own listeners.
func TestRefusals(t *testing.T) {
	l := newLab(t)
	r := l.run(l.load(0, fmt.Sprintf(`forward:
  - {listen: %q, target: "127.0.2.9:22"}
  - {listen: %q, target: "127.0.2.1:%d"}
`, free(t), free(t), l.port)))
	l.run(l.load(1, ""))
	r.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	for i, why := range []string{"is not in may_dial of this peer", "is this proxy itself"} {
		c, err := net.Dial("tcp", r.forwards[i].Addr().String())
		if err == nil {
			_, err = io.ReadAll(c)
			c.Close()
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("forward %d: %v, want a reset", i, err)
		}
		if !strings.Contains(r.log.String(), why) {
			t.Errorf("forward %d: the log does not say %q:\n%s", i, why, r.log)
		}
	}
}

// A connection that comes before the far site waits for it.
func TestHeldForFirstSession(t *testing.T) {
	l := newLab(t)
	r := l.run(l.load(0, forwardTo(t, echo(t, "127.0.2.9"))))
	c := connect(t, r.forwarded)
	l.run(l.load(1, ""))
	if err := talk(c, "early"); err != nil {
		t.Error(err)
	}
}

// A drain lets connections end by themselves, takes no new ones, and ends orderly.
func TestDrainWaitsForConnections(t *testing.T) {
	l := newLab(t)
	r := l.run(l.load(0, "drain: 1h\n"+forwardTo(t, echo(t, "127.0.2.9"))))
	far := l.run(l.load(1, ""))
	r.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	c := connect(t, r.forwarded)
	if err := talk(c, "before"); err != nil {
		t.Fatal(err)
	}
	r.end()
	r.until(t, "/readyz", 503, "this proxy is ending")
	far.until(t, "/readyz", 503, "✗ peer/paris: the peer is ending")
	if err := talk(c, "during"); err != nil {
		t.Errorf("while draining: %v", err)
	}
	if _, err := net.Dial("tcp", r.forwarded); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v, want a refusal", err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("the end: %v", err)
	}
	c.Close()
	r.wait(t)
	if strings.Contains(r.log.String(), "were reset") {
		t.Errorf("log:\n%s", r.log)
	}
}

// A second request to end does not wait: open connections are reset.
func TestDrainIsCutShort(t *testing.T) {
	l := newLab(t)
	r := l.run(l.load(0, "drain: 1h\n"+forwardTo(t, echo(t, "127.0.2.9"))))
	l.run(l.load(1, ""))
	r.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	c := connect(t, r.forwarded)
	if err := talk(c, "before"); err != nil {
		t.Fatal(err)
	}
	r.end()
	r.until(t, "/readyz", 503, "this proxy is ending")
	r.cut()
	r.wait(t)
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the open connection: %v, want a reset", err)
	}
	if !strings.Contains(r.log.String(), "1 connections were still open and were reset") {
		t.Errorf("log:\n%s", r.log)
	}
}

// A reload changes the keys that it can at once, names the keys that need a restart, and keeps open connections.
func TestReload(t *testing.T) {
	l := newLab(t)
	server := echo(t, "127.0.2.9")
	forward := forwardTo(t, server)
	r := l.run(l.load(0, forward))
	far := l.run(l.load(1, ""))
	r.until(t, "/readyz?exclude=peer/virginia", 200, "ready")
	kept := connect(t, r.forwarded)
	if err := talk(kept, "before"); err != nil {
		t.Fatal(err)
	}
	port := netip.MustParseAddrPort(server).Port()
	c := l.load(1, "memory: 64MiB\n")
	c.Peers[0].MayDial[0].First, c.Peers[0].MayDial[0].Last = 1, port-1 // not the server any more
	if err := far.Reload(c); err != nil {
		t.Fatal(err)
	}
	if err := talk(kept, "after"); err != nil {
		t.Errorf("the open connection: %v", err)
	}
	fresh, err := net.Dial("tcp", r.forwarded)
	if err == nil {
		_, err = io.ReadAll(fresh)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection: %v, want a reset: its destination is not allowed any more", err)
	}
	if !strings.Contains(far.log.String(), "keys=memory") {
		t.Errorf("the log does not say that memory needs a restart:\n%s", far.log)
	}
	far.ReloadFailed()
	_, metrics := far.get("/metrics")
	for _, line := range []string{`gradproxy_config_reloads_total{result="ok"} 1`, `gradproxy_config_reloads_total{result="failed"} 1`, "gradproxy_config_last_reload_ok 0"} {
		if !strings.Contains(metrics, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
	without := l.load(1, "")
	without.Peers = without.Peers[1:]
	if err := far.Reload(without); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(far.log.String(), "keys=memory"); n != 1 { // memory needs a restart
		t.Errorf("the log says %d times that memory needs a restart:\n%s", n, far.log)
	}
	if _, err := io.ReadAll(kept); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection of a peer that is gone: %v, want a reset", err)
	}
	if _, body := far.get("/readyz"); strings.Contains(body, "paris") {
		t.Errorf("/readyz still lists the peer: %s", body)
	}
}

// A part that cannot be opened is reported, and parts that were opened before are released.
func TestStartReleasesWhatItOpened(t *testing.T) {
	l := newLab(t)
	taken := echo(t, "127.0.0.1")
	c := l.load(0, fmt.Sprintf("forward: [{listen: %q, target: \"127.0.2.9:9000\"}]\n", taken))
	for range 2 {
		_, err := Start(c, "v0", slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "listen "+taken+": the port is in use") || strings.Contains(err.Error(), "\n") {
			t.Fatalf("Start = %v", err)
		}
	}
	c.Forward = nil
	c.Tunnel.Listen = taken
	if _, err := Start(c, "v0", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "tunnel: listen "+taken+": the port is in use") {
		t.Errorf("Start = %v", err)
	}
}

// The log's line on the start names all listeners, UDP and unix sockets too.
func TestAddressesOfAllListeners(t *testing.T) {
	carriers, err := listenCarriers(tunnel.CarrierDTLS, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer carriers.Close()
	pages, err := net.Listen("unix", filepath.Join(t.TempDir(), "admin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	want := []string{"udp:" + carriers.Addr().String(), "unix:" + pages.Addr().String()}
	if got := (&Site{carriers: carriers, admin: pages}).addresses(); !slices.Equal(got, want) {
		t.Errorf("addresses %q, want %q", got, want)
	}
}

//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gradproxy/gradproxy/integration/require/freeport"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A pair is two processes on loopback, which carry connections from the address entry to the server.
type pair struct {
	name      string
	entry     string
	processes []*os.Process
}

// pairs measures T1, T2 and T4: gradproxy's pair over each carrier beside others with TLS 1.3 between them.
func (m *measurement) pairs(ctx context.Context, k *keys, kinds map[string]bool) error {
	l, err := net.Listen("tcp", "127.0.2.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	all := []*pair{{name: "direct", entry: l.Addr().String()}}
	defer func() {
		for _, p := range all {
			p.kill()
		}
	}()
	for _, make := range []func(k *keys, server string) (name, entry string, commands []*exec.Cmd, err error){
		m.gradproxyPair("tls"), m.gradproxyPair("dtls"), haproxyPair, stunnelPair, relayPair} {
		name, entry, commands, err := make(k, l.Addr().String())
		if err != nil {
			return err
		}
		p := &pair{name: name, entry: entry}
		all = append(all, p)
		if err := p.start(commands); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := p.await(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, n := range []int{1, 8} {
		of, err := m.comparePairs(ctx, l, all, n)
		if err != nil {
			return err
		}
		m.notePairs(all, n, kinds, of)
	}
	return nil
}

// start starts the pair's processes, which end with this one at the latest.
func (p *pair) start(commands []*exec.Cmd) error {
	for _, c := range commands {
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			return err
		}
		p.processes = append(p.processes, c.Process)
	}
	return nil
}

// kill ends the pair's processes.
func (p *pair) kill() {
	for _, process := range p.processes {
		process.Kill()
		process.Wait()
	}
}

// pairFigures has the figures of pairs, each of some rounds, by the pair's name.
type pairFigures struct {
	rates, cpu, added map[string][]float64 // Mbit/s, s/GB, and µs that a byte's round trip takes longer than without the pair
}

// comparePairs has each pair carry n connections in turn. The first pair is the direct way. Round trips are measured
// where n is 1.
func (m *measurement) comparePairs(ctx context.Context, l net.Listener, all []*pair, n int) (pairFigures, error) {
	of := pairFigures{map[string][]float64{}, map[string][]float64{}, map[string][]float64{}}
	for range m.rounds {
		base := 0.0
		for i, p := range all {
			c, err := p.carry(ctx, l, n, 2*time.Second)
			if err != nil {
				return of, fmt.Errorf("%s: %w", p.name, err)
			}
			of.rates[p.name] = append(of.rates[p.name], c.mbps)
			of.cpu[p.name] = append(of.cpu[p.name], c.cpu)
			if n > 1 {
				continue
			}
			ping, err := p.ping(l, 2000)
			if err != nil {
				return of, fmt.Errorf("%s: %w", p.name, err)
			}
			if i == 0 {
				base = ping
			}
			of.added[p.name] = append(of.added[p.name], ping-base)
		}
	}
	return of, nil
}

// notePairs adds the rows of pairs that carried n connections.
func (m *measurement) notePairs(all []*pair, n int, kinds map[string]bool, of pairFigures) {
	for i, p := range all {
		m.beside(fmt.Sprintf("pair/%s/%d", p.name, n), "rate by way of "+p.name, median(of.rates[p.name]), "Mbit/s")
		if i > 0 {
			m.beside(fmt.Sprintf("pair/%s/%d/cpu", p.name, n), "processor time of its two processes", median(of.cpu[p.name]), "s/GB")
		}
		if i > 0 && n == 1 {
			m.beside("pair/"+p.name+"/ping", "time that it adds to a byte's round trip, median", median(of.added[p.name]), "µs")
		}
	}
	for _, other := range []string{"haproxy", "stunnel", "go"} {
		if kinds["T1"] {
			m.add(fmt.Sprintf("T1/%s/%d", other, n), "rate through the pair, TLS between, at least, of "+other+"'s", median(of.rates["gradproxy-tls"])/median(of.rates[other]), 1, "x", false)
		}
		if kinds["T2"] {
			m.add(fmt.Sprintf("T2/%s/%d", other, n), "processor time of the pair for a byte, at most, of "+other+"'s", median(of.cpu["gradproxy-tls"])/median(of.cpu[other]), 1, "x", true)
		}
	}
	if kinds["T4"] && n == 1 {
		m.add("T4", "time that the pair adds to a byte's round trip, at most, of haproxy's", median(of.added["gradproxy-tls"])/median(of.added["haproxy"]), 1, "x", true)
	}
}

// frees returns n addresses at which nobody listens.
func frees(n int) (all []string, err error) {
	for range n {
		a, err := freeport.Find("tcp", "127.0.0.1")
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// gradproxyPair returns a maker of two gradproxies.
func (m *measurement) gradproxyPair(carrier string) func(k *keys, server string) (string, string, []*exec.Cmd, error) {
	return func(k *keys, server string) (string, string, []*exec.Cmd, error) {
		at, err := frees(4)
		if err != nil {
			return "", "", nil, err
		}
		texts := map[string]string{
			"a": fmt.Sprintf("admin: %q\npeers: [{name: b, dial: %q, id: \"spiffe://bench/b\", networks: [127.0.2.0/24]}]\nforward: [{listen: %q, target: %q}]\n", at[2], at[0], at[1], server),
			"b": fmt.Sprintf("admin: %q\npeers: [{name: a, id: \"spiffe://bench/a\", networks: [127.0.1.0/24], may_dial: [\"127.0.2.0/24:1024-65535\"]}]\n", at[3]),
		}
		var commands []*exec.Cmd
		for _, site := range []string{"b", "a"} {
			text := fmt.Sprintf("site: %[1]s\ntunnel: {cert: %[2]s/%[1]s.pem, key: %[2]s/%[1]s.key, ca: %[2]s/ca.pem, carrier: %[3]s", site, k.dir, carrier)
			if site == "b" {
				text += fmt.Sprintf(", listen: %q", at[0])
			}
			file := filepath.Join(k.dir, "pair-"+carrier+"-"+site+".yaml")
			if err := os.WriteFile(file, []byte(text+"}\n"+texts[site]), 0o600); err != nil {
				return "", "", nil, err
			}
			commands = append(commands, m.gradproxy.Command("run", "-c", file))
		}
		return "gradproxy-" + carrier, at[1], commands, nil
	}
}

func haproxyPair(k *keys, server string) (string, string, []*exec.Cmd, error) {
	at, err := frees(2)
	if err != nil {
		return "", "", nil, err
	}
	for _, site := range []string{"a", "b"} {
		cert, err1 := os.ReadFile(filepath.Join(k.dir, site+".pem"))
		key, err2 := os.ReadFile(filepath.Join(k.dir, site+".key"))
		if err := errors.Join(err1, err2, os.WriteFile(filepath.Join(k.dir, site+".both"), append(cert, key...), 0o600)); err != nil {
			return "", "", nil, err
		}
	}
	const head = "global\n  maxconn 1000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"
	var commands []*exec.Cmd
	for site, listen := range map[string]string{
		"a": fmt.Sprintf("listen a\n  bind %s\n  server s %s ssl crt %s/a.both ca-file %[3]s/ca.pem verify required ssl-min-ver TLSv1.3\n", at[0], at[1], k.dir),
		"b": fmt.Sprintf("listen b\n  bind %s ssl crt %s/b.both ca-file %[2]s/ca.pem verify required ssl-min-ver TLSv1.3\n  server s %[3]s\n", at[1], k.dir, server),
	} {
		file := filepath.Join(k.dir, "haproxy-"+site+".cfg")
		if err := os.WriteFile(file, []byte(head+listen), 0o600); err != nil {
			return "", "", nil, err
		}
		commands = append(commands, exec.Command("haproxy", "-f", file))
	}
	return "haproxy", at[0], commands, nil
}

func stunnelPair(k *keys, server string) (string, string, []*exec.Cmd, error) {
	program, err := exec.LookPath("stunnel4")
	if err != nil {
		return "", "", nil, fmt.Errorf("stunnel4 is not installed (apt-get install stunnel4): %w", err)
	}
	at, err := frees(2)
	if err != nil {
		return "", "", nil, err
	}
	var commands []*exec.Cmd
	for site, service := range map[string]string{
		"a": fmt.Sprintf("client = yes\naccept = %s\nconnect = %s\n", at[0], at[1]),
		"b": fmt.Sprintf("accept = %s\nconnect = %s\n", at[1], server),
	} {
		text := fmt.Sprintf("foreground = quiet\npid =\ndebug = err\nsocket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n[pair]\ncert = %[1]s/%[2]s.pem\nkey = %[1]s/%[2]s.key\nCAfile = %[1]s/ca.pem\nverifyChain = yes\nsslVersionMin = TLSv1.3\n%[3]s",
			k.dir, site, service)
		file := filepath.Join(k.dir, "stunnel-"+site+".conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", "", nil, err
		}
		commands = append(commands, exec.Command(program, file))
	}
	return "stunnel", at[0], commands, nil
}

// relayPair is two processes of this program, which copy between TCP and TLS.
func relayPair(k *keys, server string) (string, string, []*exec.Cmd, error) {
	at, err := frees(2)
	if err != nil {
		return "", "", nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return "", "", nil, err
	}
	return "go", at[0], []*exec.Cmd{exec.Command(self, "relay", k.dir, "0", at[0], at[1]), exec.Command(self, "relay", k.dir, "1", at[1], server)}, nil
}

// relay is the program of relayPair: end 0 dials by TLS, end 1 accepts it.
func relay(dir, end, listen, target string) error {
	k, err := loadKeys(dir)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	for {
		in, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				return
			}
			near, far := in, net.Conn(tls.Client(out, k.config(0)))
			if end == "1" {
				near, far = tls.Server(in, k.config(1)), out
			}
			var ways sync.WaitGroup
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				ways.Go(func() {
					io.CopyBuffer(struct{ io.Writer }{way[1]}, struct{ io.Reader }{way[0]}, make([]byte, 256<<10))
					way[1].(interface{ CloseWrite() error }).CloseWrite()
				})
			}
			ways.Wait()
			near.Close()
			far.Close()
		}()
	}
}

// await waits until a byte comes through to the server.
func (p *pair) await(ctx context.Context, l net.Listener) error {
	for until := time.Now().Add(20 * time.Second); ; {
		near, far, err := p.connect(l)
		if err == nil {
			near.Close()
			far.Close()
			return nil
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return fmt.Errorf("nothing comes through it: %w", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// connect makes a connection through the pair.
func (p *pair) connect(l net.Listener) (near, far net.Conn, err error) {
	if near, err = net.Dial("tcp", p.entry); err != nil {
		return nil, nil, err
	}
	near.Write([]byte{1})
	for { // of connections that were tried before, the server has the ends
		l.(*net.TCPListener).SetDeadline(time.Now().Add(3 * time.Second))
		if far, err = l.Accept(); err != nil {
			near.Close()
			return nil, nil, err
		}
		far.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := io.ReadFull(far, make([]byte, 1)); err == nil {
			far.SetReadDeadline(time.Time{})
			return near, far, nil
		}
		far.Close()
	}
}

// carry has n connections carry all they can for a time.
func (p *pair) carry(ctx context.Context, l net.Listener, n int, d time.Duration) (c carried, err error) {
	var got atomic.Int64
	var all sync.WaitGroup
	var conns []net.Conn
	for range n {
		near, far, err := p.connect(l)
		if err != nil {
			return c, err
		}
		conns = append(conns, near, far)
		all.Go(func() {
			b := make([]byte, 1<<20)
			for {
				if _, err := near.Write(b); err != nil {
					return
				}
			}
		})
		all.Go(func() {
			b := make([]byte, 1<<20)
			for {
				n, err := far.Read(b)
				if err != nil {
					return
				}
				got.Add(int64(n))
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	used, err := p.cpu()
	if err != nil {
		return c, err
	}
	bytes, began := got.Load(), time.Now()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return c, ctx.Err()
	}
	after, err := p.cpu()
	if err != nil {
		return c, err
	}
	moved, took := float64(got.Load()-bytes), time.Since(began)
	for _, c := range conns {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	all.Wait()
	return carried{moved * 8 / took.Seconds() / 1e6, (after - used).Seconds() / (moved / 1e9)}, nil
}

// cpu returns the processor time of the processes so far.
func (p *pair) cpu() (sum time.Duration, err error) {
	for _, x := range p.processes {
		d, err := testbed.CPUOf(x.Pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// ping returns the median time of a byte's way there and back, in µs.
func (p *pair) ping(l net.Listener, n int) (µs float64, err error) {
	near, far, err := p.connect(l)
	if err != nil {
		return 0, err
	}
	defer near.Close()
	defer far.Close()
	go io.CopyBuffer(struct{ io.Writer }{far}, struct{ io.Reader }{far}, make([]byte, 1))
	b := make([]byte, 1)
	var took []float64
	for range n {
		began := time.Now()
		if _, err := near.Write(b); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(near, b); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(began).Nanoseconds())/1e3)
	}
	slices.Sort(took)
	return took[n/2], nil
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/bpf/cgroup"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/netns"
	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// Two sites are two hosts, each a network namespace, with a line between them: paris with 10.1.0.1, which dials, and
// tokyo with 10.2.0.1.
type twoSites struct {
	t            *testing.T
	dir          string
	paris, tokyo *netns.Namespace
}

func newTwoSites(t *testing.T) *twoSites {
	t.Helper()
	s := &twoSites{t: t, dir: openFolder(t), paris: netns.New(t), tokyo: netns.New(t)}
	netns.Connect(s.paris, s.tokyo, "wan0", []string{"10.0.0.1/24", "2001:db8::1/64"}, []string{"10.0.0.2/24", "2001:db8::2/64"})
	s.paris.Address("lo", "10.1.0.1/32")
	s.tokyo.Address("lo", "10.2.0.1/32")
	s.paris.Route("10.2.0.0/16", "10.0.0.2")
	s.tokyo.Route("10.1.0.0/16", "10.0.0.1")
	if _, err := pki.Write(pki.Options{Dir: s.dir, Domain: "lab", Sites: []string{"paris", "tokyo"}}); err != nil {
		t.Fatal(err)
	}
	s.write("paris", "tokyo", `dial: "10.0.0.2:7443", networks: [10.2.0.0/16], may_dial: ["10.1.0.0/16:1024-65535"]`, "")
	s.write("tokyo", "paris", `networks: [10.1.0.0/16], may_dial: ["10.2.0.0/16:1024-65535"]`, "")
	return s
}

// write writes a site's configuration, with the keys of its peer and more lines.
func (s *twoSites) write(site, peer, keys, more string) {
	s.t.Helper()
	text := fmt.Sprintf("site: %s\npeers:\n  - {name: %s, %s}\n%s\n", site, peer, keys, more)
	if err := os.WriteFile(s.file(site), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *twoSites) file(site string) string { return filepath.Join(s.dir, site+".yaml") }

// A process is a gradproxy with its lines of standard error and standard output.
type process struct {
	t   *testing.T
	cmd *exec.Cmd

	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed when a line comes
	ended chan struct{}
}

// start starts gradproxy on a host. The process ends with the test at the latest.
func (s *twoSites) start(host *netns.Namespace, args ...string) *process {
	s.t.Helper()
	p := &process{t: s.t, cmd: gradproxyCommand(s.t, args...), more: make(chan struct{}), ended: make(chan struct{})}
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	host.Do(func() { err = p.cmd.Start() })
	w.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		for in := bufio.NewScanner(r); in.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, in.Text())
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
		p.cmd.Wait()
		close(p.ended)
	}()
	s.t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(time.Minute):
			p.cmd.Process.Kill()
			<-p.ended
			s.t.Errorf("gradproxy %s does not end", args[0])
		}
		if s.t.Failed() {
			s.t.Logf("gradproxy %s says:\n%s", strings.Join(args, " "), p.said())
		}
	})
	return p
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// says waits for a line that has all parts, and returns it.
func (p *process) says(parts ...string) string {
	p.t.Helper()
	bound := time.After(time.Minute)
	for seen := 0; ; {
		p.mu.Lock()
		lines, more := p.lines[seen:], p.more
		seen = len(p.lines)
		p.mu.Unlock()
	line:
		for _, line := range lines {
			for _, part := range parts {
				if !strings.Contains(line, part) {
					continue line
				}
			}
			return line
		}
		select {
		case <-more:
		case <-bound:
			p.t.Fatalf("it never says %q", parts)
		}
	}
}

// serveWord listens at tokyo, reads a line from each connection and answers it with its client's address.
func (s *twoSites) serveWord() (port int) {
	s.t.Helper()
	var l net.Listener
	var err error
	s.tokyo.Do(func() { l, err = net.Listen("tcp", "10.2.0.1:0") })
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				line, err := bufio.NewReader(c).ReadString('\n')
				if err == nil {
					fmt.Fprintf(c, "%s from %v\n", bytes.TrimSpace([]byte(line)), c.RemoteAddr().(*net.TCPAddr).IP)
				}
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// The connection that a command of exec makes at once waits for the first session, though the far proxy starts only
// later.
func TestExecHoldsFirstConnection(t *testing.T) {
	needsHooks(t)
	require.Command(t, "bash")
	s := newTwoSites(t)
	port := s.serveWord()
	job := s.start(s.paris, "exec", "-c", s.file("paris"), "--", "bash", "-c",
		fmt.Sprintf("exec 3<>/dev/tcp/10.2.0.1/%d && echo early >&3 && read -r answer <&3 && echo \"got $answer\"", port))
	job.says("connections wait for it", "peer=tokyo", "at_most=30s")
	s.start(s.tokyo, "run", "-c", s.file("tokyo"))
	job.says("got early from 10.2.0.1") // which the far proxy has dialled, not paris
	<-job.ended
	if code := job.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// With on_first: direct a host's programs reach their servers as before, while there has been no session yet.
func TestRunDirectBeforeFirstSession(t *testing.T) {
	t.Parallel()
	require.Root(t)
	s := newTwoSites(t)
	port := s.serveWord()
	s.write("paris", "tokyo", `dial: "10.0.0.2:7443", networks: [10.2.0.0/16], may_dial: ["10.1.0.0/16:1024-65535"]`, "intercept: {mode: redirect, on_first: direct}")
	proxy := s.start(s.paris, "run", "-c", s.file("paris"))
	proxy.says("msg=running")
	var c net.Conn
	var err error
	s.paris.Do(func() { c, err = net.Dial("tcp", fmt.Sprintf("10.2.0.1:%d", port)) })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintln(c, "early")
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "early from 10.0.0.1\n" {
		t.Errorf("%q, %v", line, err)
	}
	proxy.says("goes directly, in the clear", "peer=tokyo")
}

// An outage is told while it lasts and when it is over, and changes nothing for the connection. A peer that is
// suspended is no outage.
func TestOutageIsTold(t *testing.T) {
	t.Parallel()
	require.Root(t)
	require.Command(t, "nft")
	s := newTwoSites(t)
	var l net.Listener
	var err error
	s.tokyo.Do(func() { l, err = net.Listen("tcp", "10.2.0.1:9000") })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}()
	socket := filepath.Join(s.dir, "paris.sock")
	// Over TLS alone: where its handshakes are refused, or take too long on a busy machine, datagrams carry everything,
	// whose witness is not the kernel of a suspended peer but its process.
	s.write("paris", "tokyo", `dial: "10.0.0.2:7443", networks: [10.2.0.0/16], may_dial: ["10.1.0.0/16:1024-65535"]`,
		"tunnel: {carrier: tls}\nforward: [{listen: \"127.0.0.1:9000\", target: \"10.2.0.1:9000\"}]\nadmin: \"unix:"+socket+"\"")
	tokyo := s.start(s.tokyo, "run", "-c", s.file("tokyo"))
	tokyo.says("msg=running")
	paris := s.start(s.paris, "run", "-c", s.file("paris"))
	paris.says("msg=running")
	var c net.Conn
	s.paris.Do(func() { c, err = net.Dial("tcp", "127.0.0.1:9000") })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	talk := func(word string) {
		t.Helper()
		b := make([]byte, len(word))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != word {
			t.Fatalf("%q comes back, %v", b, err)
		}
	}
	io.WriteString(c, "before")
	talk("before")

	tokyo.cmd.Process.Signal(syscall.SIGSTOP)
	io.WriteString(c, "suspended")
	time.Sleep(4 * time.Second)
	tokyo.cmd.Process.Signal(syscall.SIGCONT)
	talk("suspended")
	if said := paris.said(); strings.Contains(said, "outage") {
		t.Errorf("a suspended peer is told as an outage:\n%s", said)
	}

	rules := func(commands string) {
		t.Helper()
		s.tokyo.Do(func() {
			cmd := exec.Command("nft", "-f", "-")
			cmd.Stdin = strings.NewReader(commands)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("nft: %v: %s", err, out)
			}
		})
	}
	rules("add table inet hole\nadd chain inet hole in { type filter hook input priority 0; policy drop; }\nadd chain inet hole out { type filter hook output priority 0; policy drop; }\nadd rule inet hole in iif lo accept\nadd rule inet hole out oif lo accept\n")
	io.WriteString(c, "during")
	paris.says("outage: nothing comes back", "peer=tokyo")
	if status, body := getUnix(socket, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "peer/tokyo: outage: nothing has come back from the peer for ") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if _, metrics := getUnix(socket, "/metrics"); !strings.Contains(metrics, `gradproxy_peer_up{peer="tokyo"} 0`) || !strings.Contains(metrics, `gradproxy_peer_outages_total{peer="tokyo"} 1`) {
		t.Error("the metrics say that tokyo is up, or count another number of outages than one")
	}
	if _, metrics := getUnix(socket, "/metrics"); !strings.Contains(metrics, `gradproxy_peer_rtt_seconds{peer="tokyo"} 0`+"\n") || !strings.Contains(metrics, `gradproxy_peer_goodput_bytes_per_second{peer="tokyo"} 0`+"\n") {
		t.Error("the metrics have a round-trip time or a goodput of a link that is out")
	}
	rules("delete table inet hole\n")
	talk("during")
	paris.says("outage is over", "peer=tokyo", "lasted=", "bytes_sent_again=")
	if status, body := getUnix(socket, "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz afterwards: %d %s", status, body)
	}
}

// getUnix asks for a page of an admin socket.
func getUnix(socket, path string) (int, string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	response, err := client.Get("http://localhost" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	b, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(b)
}

// awaitDeath waits until a killed process has closed its sockets. The kernel does so with its last thread, which may be
// another than the first: that one may be a zombie before.
func awaitDeath(t *testing.T, pid int) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if _, state, ok := strings.Cut(string(stat), ") "); err != nil || ok && strings.HasPrefix(state, "Z") && len(threads) <= 1 {
			return
		}
	}
	t.Fatalf("process %d lives after it was killed", pid)
}

// A connection that a command of exec makes after a kill -9 of exec waits for the next proxy, which here is a service
// for the command's cgroup.
func TestHeldAfterExecIsKilled(t *testing.T) {
	needsHooks(t)
	require.Command(t, "bash")
	s := newTwoSites(t)
	port := s.serveWord()
	s.start(s.tokyo, "run", "-c", s.file("tokyo"))
	killed := filepath.Join(s.dir, "killed")
	job := s.start(s.paris, "exec", "-c", s.file("paris"), "--", "bash", "-c", fmt.Sprintf(
		`echo "ready $$"; until [ -e %s ]; do sleep 0.02; done; echo dials; exec 3<>/dev/tcp/10.2.0.1/%d && echo held >&3 && read -r answer <&3 && echo "got $answer"`, killed, port))
	var pid string
	if _, err := fmt.Sscanf(job.says("ready"), "ready %s", &pid); err != nil {
		t.Fatal(err)
	}
	if err := job.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitDeath(t, job.cmd.Process.Pid)
	if err := os.WriteFile(killed, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	job.says("dials")
	time.Sleep(300 * time.Millisecond)                                                                     // the connection would be refused at once
	if said := job.said(); strings.Contains(said, "Connection refused") || strings.Contains(said, "got") { // by bash: the log has such words of the tunnel
		t.Fatalf("without a proxy:\n%s", said)
	}
	group, err := cgroup.New("look")
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	folders, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(group.Proxy())), "gradproxy-paris-*", "job"))
	folders = slices.DeleteFunc(folders, func(f string) bool {
		pids, _ := os.ReadFile(filepath.Join(f, "cgroup.procs"))
		return !slices.Contains(strings.Fields(string(pids)), pid)
	})
	if err != nil || len(folders) != 1 {
		t.Fatalf("cgroups of process %s: %v %v", pid, folders, err)
	}
	s.write("paris", "tokyo", `dial: "10.0.0.2:7443", networks: [10.2.0.0/16], may_dial: ["10.1.0.0/16:1024-65535"]`,
		fmt.Sprintf("intercept: {mode: cgroup, cgroup: %q}", folders[0]))
	s.start(s.paris, "run", "-c", s.file("paris"))
	job.says("got held from 10.2.0.1")
}

package pair

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The benchmarks of passing on compare one gradproxy, whose forward is direct, with haproxy (option splice-request and
// splice-response, and pipes of gradproxy's size: with 64 KiB, its own, it needs four times the calls) and with a plain
// relay in Go (io.Copy both ways, which splices too), each a process of its own. Rounds are interleaved, medians are
// over the rounds, and "-of-haproxy" is the median of the quotients of a round. Clients and server are this process,
// which does not count.
//
//	go test ./cmd/gradproxy/internal/pair -run '^$' -bench Pass -benchtime 1x

// TestMain lets this program be the plain relay, for the address that its environment names.
func TestMain(m *testing.M) {
	if target := os.Getenv(plainRelay); target != "" {
		fmt.Println(relayPlainly(target))
		return
	}
	os.Exit(m.Run())
}

const plainRelay = "GRADPROXY_TEST_PLAIN_RELAY"

func relayPlainly(target string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			s, err := net.Dial("tcp", target)
			if err != nil {
				c.Close()
				return
			}
			one := func(to, from net.Conn) {
				io.Copy(to, from)
				to.(*net.TCPConn).CloseWrite()
			}
			go one(s, c)
			one(c, s)
		}()
	}
}

// A passWay is a process that passes connections on to the server; direct has none.
type passWay struct {
	way
	process
}

func passWays(b *testing.B, ln *net.TCPListener) []passWay {
	require.Command(b, "haproxy")
	target := ln.Addr().(*net.TCPAddr).AddrPort()
	p := buildProgram(b)
	return []passWay{
		{way: way{"direct", target}},
		startDirect(b, p, target),
		startHAProxy(b, target),
		startPlain(b, target),
	}
}

// startDirect starts gradproxy. Its peer is one that never comes.
func startDirect(b *testing.B, p program, target netip.AddrPort) passWay {
	addr := freeAddr(b)
	config := fmt.Sprintf(`site: near
tunnel: {listen: %q, insecure: true}
peers: [{name: far, networks: [10.255.255.0/24]}]
admin: "off"
forward: [{listen: %q, target: %q, direct: true}]
`, freeAddr(b), addr, target)
	started := startProcess(b, p, filepath.Join(b.TempDir(), "direct.yaml"), config)
	awaitListener(b, addr)
	return passWay{way{"gradproxy", addr}, started}
}

// startHAProxy starts haproxy in the foreground as one process.
func startHAProxy(b *testing.B, target netip.AddrPort) passWay {
	addr := freeAddr(b)
	file := filepath.Join(b.TempDir(), "haproxy.cfg")
	config := fmt.Sprintf(`global
  maxconn 9200
  maxpipes 256
  tune.pipesize 262144
defaults
  mode tcp
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  option splice-request
  option splice-response
listen plain
  bind %v
  server s %v
`, addr, target)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		b.Fatal(err)
	}
	started := startCommand(b, exec.Command("haproxy", "-db", "-f", file))
	awaitListener(b, addr)
	return passWay{way{"haproxy", addr}, started}
}

func startPlain(b *testing.B, target netip.AddrPort) passWay {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), plainRelay+"="+target.String())
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	started := startCommand(b, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	addr, err := netip.ParseAddrPort(line[:len(line)-1])
	if err != nil {
		b.Fatal(err)
	}
	return passWay{way{"go", addr}, started}
}

func startCommand(b *testing.B, cmd *exec.Cmd) process {
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return process{cmd.Process.Pid}
}

// awaitListener waits until somebody listens. The connection that tells so is passed on, to whom it makes no
// difference.
func awaitListener(b *testing.B, a netip.AddrPort) {
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", a.String()); err == nil {
			c.Close()
			return
		} else if time.Since(begin) > time.Minute {
			b.Fatalf("%v: nobody listens: %v", a, err)
		}
	}
}

// drain accepts the connections of awaitListener.
func drain(ln *net.TCPListener) {
	for ln.SetDeadline(time.Now().Add(300 * time.Millisecond)); ; {
		c, err := ln.Accept()
		if err != nil {
			ln.SetDeadline(time.Time{})
			return
		}
		c.Close()
	}
}

// figures are the measurements of one way, by their names, one a round.
type figures map[string][]float64

func (f figures) add(what string, x float64) { f[what] = append(f[what], x) }

// report reports the medians of the measurements, and of the quotients by haproxy's.
func report(b *testing.B, all map[string]figures, units ...string) {
	for name, f := range all {
		for _, unit := range units {
			if len(f[unit]) == 0 {
				continue
			}
			b.ReportMetric(median(f[unit]), name+"-"+unit)
			if name == "direct" || name == "haproxy" {
				continue
			}
			var x []float64
			for i, v := range f[unit] {
				x = append(x, v/all["haproxy"][unit][i])
			}
			b.ReportMetric(median(x), name+"-"+unit+"-of-haproxy")
		}
	}
}

// BenchmarkPassThroughput sends 512 MiB one way on one connection, and on eight at once. "s/GB" is the processor time
// of the process that passes on.
func BenchmarkPassThroughput(b *testing.B) {
	for _, streams := range []int{1, 8} {
		b.Run(strconv.Itoa(streams), func(b *testing.B) {
			const total, turns = 512 << 20, 7
			ln := listen(b)
			ways := passWays(b, ln)
			drain(ln)
			all := map[string]figures{}
			for b.Loop() {
				for range turns {
					for _, w := range ways {
						if all[w.name] == nil {
							all[w.name] = figures{}
						}
						var before time.Duration
						if w.pid != 0 {
							before = w.processor(b)
						}
						seconds := sendAll(b, w.way, ln, streams, total/streams)
						all[w.name].add("GB/s", total/seconds/1e9)
						if w.pid != 0 {
							all[w.name].add("s/GB", (w.processor(b)-before).Seconds()/(total/1e9))
						}
					}
				}
			}
			report(b, all, "GB/s", "s/GB")
		})
	}
}

// sendAll sends so many bytes on each of some connections and returns how many seconds that takes.
func sendAll(b *testing.B, w way, ln *net.TCPListener, streams, bytesEach int) float64 {
	data := make([]byte, 1<<20)
	type end struct{ client, server net.Conn }
	var ends []end
	for range streams {
		client, server := connect(b, w.addr, ln)
		ends = append(ends, end{client, server})
	}
	arrived := make(chan error, streams)
	begin := time.Now()
	for _, e := range ends {
		go func() {
			for range bytesEach / len(data) {
				e.client.Write(data)
			}
			e.client.(*net.TCPConn).CloseWrite()
		}()
		go func() {
			buf, n := make([]byte, 1<<20), 0
			for {
				k, err := e.server.Read(buf)
				if n += k; err == io.EOF {
					if n != bytesEach {
						err = fmt.Errorf("%d bytes of %d arrived", n, bytesEach)
					} else {
						err = nil
					}
					arrived <- err
					return
				} else if err != nil {
					arrived <- err
					return
				}
			}
		}()
	}
	for range ends {
		if err := <-arrived; err != nil {
			b.Fatalf("%s: %v", w.name, err)
		}
	}
	seconds := time.Since(begin).Seconds()
	for _, e := range ends {
		e.client.Close()
		e.server.Close()
	}
	return seconds
}

// BenchmarkPassPing sends one byte there and back, 500 times in each of 25 turns. "added-us" is the difference between
// its p50 and that of a direct connection in the same turn.
func BenchmarkPassPing(b *testing.B) {
	const turns, pings = 25, 500
	ln := listen(b)
	ways := passWays(b, ln)
	drain(ln)
	all := map[string]figures{}
	for b.Loop() {
		for range turns {
			var direct float64
			for _, w := range ways {
				if all[w.name] == nil {
					all[w.name] = figures{}
				}
				took := ping(b, w.way, ln, pings)
				slices.Sort(took)
				p50 := took[len(took)/2] * 1e6
				if w.name == "direct" {
					direct = p50
				}
				all[w.name].add("p50-us", p50)
				all[w.name].add("p99-us", took[len(took)*99/100]*1e6)
				if w.pid != 0 {
					all[w.name].add("added-us", p50-direct)
				}
			}
		}
	}
	report(b, all, "p50-us", "p99-us", "added-us")
}

// BenchmarkPassIdle opens 9,000 connections through each (3,000 through the plain relay), sends a byte both ways on
// them, and looks at the memory (PSS of /proc/PID/smaps_rollup) each process has more than before, once nothing
// happens. KiB are of one connection.
func BenchmarkPassIdle(b *testing.B) {
	require.Command(b, "haproxy")
	p := buildProgram(b)
	for b.Loop() {
		for _, start := range []func(target netip.AddrPort) passWay{
			func(target netip.AddrPort) passWay { return startDirect(b, p, target) },
			func(target netip.AddrPort) passWay { return startHAProxy(b, target) },
			func(target netip.AddrPort) passWay { return startPlain(b, target) },
		} {
			ln := listen(b) // one each, since closed connections keep their ports for a while
			w := start(ln.Addr().(*net.TCPAddr).AddrPort())
			drain(ln)
			count := 9000
			if w.name == "go" {
				count = 3000 // a pair takes six descriptors: two pipes wait with it
			}
			before := w.memory(b)
			var open []net.Conn
			for range count {
				client, server := connect(b, w.addr, ln)
				open = append(open, client, server)
				one := []byte{1}
				for _, way := range [2][2]net.Conn{{client, server}, {server, client}} {
					way[0].Write(one)
					if _, err := io.ReadFull(way[1], one); err != nil {
						b.Fatal(err)
					}
				}
			}
			after := w.memory(b)
			b.ReportMetric(float64(after-before)/float64(count), w.name+"-KiB")
			b.ReportMetric(float64(after)/1024, w.name+"-MiB-in-all")
			for _, c := range open {
				c.Close()
			}
		}
	}
}

// memory returns the KiB that the process has.
func (p process) memory(b *testing.B) int {
	all, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range bytes.Lines(all) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			n, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatal("the kernel tells no PSS")
	return 0
}

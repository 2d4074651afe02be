package pair

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// The benchmarks compare a pair of proxies, whose tunnel is TLS 1.3, with a direct connection, with one haproxy that
// passes bytes on in the clear, and with two haproxies that have TLS 1.3 between them. Rounds are interleaved and
// medians reported, since these machines are shared. Everything runs on loopback, apps included.

// A way leads from an address to the server's listener.
type way struct {
	name string
	addr netip.AddrPort
}

func ways(b *testing.B, ln *net.TCPListener) []way {
	target := ln.Addr().(*net.TCPAddr).AddrPort()
	ws := []way{
		{"direct", target},
		{"pair", forward(b, start(b, Config{}), ln)},
	}
	if _, err := exec.LookPath("haproxy"); err == nil || require.Declared("haproxy") {
		require.Command(b, "haproxy")
		plain, tls := haproxies(b, target)
		ws = append(ws, way{"haproxy", plain}, way{"haproxy-tls-pair", tls})
		for ln.SetDeadline(time.Now().Add(300 * time.Millisecond)); ; { // the connection that asked whether haproxy listens
			c, err := ln.Accept()
			if err != nil {
				break
			}
			c.Close()
		}
	}
	return ws
}

const rounds = 5

// BenchmarkThroughput sends 256 MiB one way on one connection.
func BenchmarkThroughput(b *testing.B) {
	ln := listen(b)
	ws := ways(b, ln)
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(i * i >> 8)
	}
	const total = 256 << 20
	seconds := map[string][]float64{}
	for b.Loop() {
		for range rounds {
			for _, w := range ws {
				client, server := connect(b, w.addr, ln)
				begin := time.Now()
				go func() {
					for range total / len(data) {
						client.Write(data)
					}
					client.CloseWrite()
				}()
				if n, err := io.Copy(io.Discard, server); err != nil || n != total {
					b.Fatalf("%s: %d bytes arrived: %v", w.name, n, err)
				}
				seconds[w.name] = append(seconds[w.name], time.Since(begin).Seconds())
				client.Close()
				server.Close()
			}
		}
	}
	b.SetBytes(0)
	for _, w := range ws {
		m := median(seconds[w.name])
		b.ReportMetric(total/m/1e9, w.name+"-GB/s")
		b.ReportMetric(median(seconds["direct"])/m, w.name+"-of-direct")
	}
}

// BenchmarkPing sends one byte there and back.
func BenchmarkPing(b *testing.B) {
	ln := listen(b)
	ws := ways(b, ln)
	const pings = 1000
	took := map[string][]float64{}
	for b.Loop() {
		for range rounds {
			for _, w := range ws {
				took[w.name] = append(took[w.name], ping(b, w, ln, pings)...)
			}
		}
	}
	for _, w := range ws {
		slices.Sort(took[w.name])
		n := len(took[w.name])
		b.ReportMetric(took[w.name][n/2]*1e6, w.name+"-p50-us")
		b.ReportMetric(took[w.name][n*99/100]*1e6, w.name+"-p99-us")
	}
}

func ping(b *testing.B, w way, ln *net.TCPListener, n int) (seconds []float64) {
	client, server := connect(b, w.addr, ln)
	defer client.Close()
	defer server.Close()
	go func() {
		buf := make([]byte, 1)
		for {
			if _, err := server.Read(buf); err != nil {
				return
			}
			server.Write(buf)
		}
	}()
	buf := make([]byte, 1)
	for range n {
		begin := time.Now()
		client.Write(buf)
		if _, err := io.ReadFull(client, buf); err != nil {
			b.Fatalf("%s: %v", w.name, err)
		}
		seconds = append(seconds, time.Since(begin).Seconds())
	}
	return seconds
}

func median(x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[len(x)/2]
}

// haproxies starts haproxy and returns the address that leads to target through one plain hop, and the one that leads
// there through two with TLS between them.
func haproxies(b *testing.B, target netip.AddrPort) (plain, tls netip.AddrPort) {
	dir := b.TempDir()
	if _, err := pki.Write(pki.Options{Dir: dir, Domain: domain, Sites: []string{"near", "far"}}); err != nil {
		b.Fatal(err)
	}
	for _, site := range []string{"near", "far"} {
		cert, err1 := os.ReadFile(filepath.Join(dir, site+".pem"))
		key, err2 := os.ReadFile(filepath.Join(dir, site+".key"))
		if err1 != nil || err2 != nil {
			b.Fatal(err1, err2)
		}
		if err := os.WriteFile(filepath.Join(dir, site+".both"), append(cert, key...), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	var ports [3]netip.AddrPort
	for i := range ports {
		ports[i] = freeAddr(b)
	}
	config := fmt.Sprintf(`global
  maxconn 1000
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option splice-request
  option splice-response
listen plain
  bind %v
  server s %v
listen near
  bind %v
  server s %v ssl crt %s/near.both ca-file %s/ca.pem verify required ssl-min-ver TLSv1.3
listen far
  bind %v ssl crt %s/far.both ca-file %s/ca.pem verify required ssl-min-ver TLSv1.3
  server s %v
`, ports[0], target, ports[1], ports[2], dir, dir, ports[2], dir, dir, target)
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("haproxy", "-f", file)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for _, a := range ports {
		for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			if c, err := net.Dial("tcp", a.String()); err == nil {
				c.Close()
				break
			} else if time.Since(begin) > time.Minute {
				b.Fatalf("haproxy does not listen: %v", err)
			}
		}
	}
	return ports[0], ports[1]
}

func freeAddr(b *testing.B) netip.AddrPort {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

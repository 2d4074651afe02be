package pair

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A program is the built program, with certificates for two sites beside it.
type program struct{ file, dir string }

// buildProgram builds the program as users do, without flags.
func buildProgram(b *testing.B) program {
	require.Command(b, "go")
	dir := b.TempDir()
	p := program{filepath.Join(dir, "gradproxy"), dir}
	for _, cmd := range []*exec.Cmd{
		exec.CommandContext(b.Context(), "go", "build", "-o", p.file, "github.com/gradproxy/gradproxy/cmd/gradproxy"),
		exec.CommandContext(b.Context(), p.file, "cert", "--ca-dir", dir, "--domain", domain, "near", "far"),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	return p
}

// sites are two processes of the program, joined by a tunnel. The near one leads to a server's listener.
type sites struct {
	near, far process
	forward   netip.AddrPort
	server    *net.TCPListener
	admin     http.Client // of the near one
}

// startSites starts both and waits for the tunnel. Gradients travel by codec.
func startSites(b *testing.B, p program, codec string, tls bool) *sites {
	dir := b.TempDir()
	s := &sites{forward: freeAddr(b), server: listen(b)}
	listener := freeAddr(b)
	identity := func(site string) string {
		if !tls {
			return "insecure: true"
		}
		return fmt.Sprintf("cert: %[1]s/%[2]s.pem, key: %[1]s/%[2]s.key, ca: %[1]s/ca.pem", p.dir, site)
	}
	const config = `site: %[1]s
tunnel: {listen: %[2]s, %[3]s}
peers: [{name: %[4]s%[5]s}]
admin: unix:%[6]s/%[1]s.sock
jobs: [{name: pslite, networks: [127.0.0.0/8]}]
policy: [{role: gradient, codec: %[7]q}]
`
	far := fmt.Sprintf(config, "far", fmt.Sprintf("%q", listener), identity("far"), "near", `, may_dial: ["127.0.0.0/8:1-65535"]`, dir, codec)
	near := fmt.Sprintf(config, "near", `"off"`, identity("near"), "far", fmt.Sprintf(`, dial: %q, networks: [127.0.0.0/8]`, listener), dir, codec) +
		fmt.Sprintf("forward: [{listen: %q, target: %q}]\n", s.forward, s.server.Addr())
	s.far = startProcess(b, p, filepath.Join(dir, "far.yaml"), far)
	s.near = startProcess(b, p, filepath.Join(dir, "near.yaml"), near)
	s.admin.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "near.sock"))
	}}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		response, err := s.admin.Get("http://near/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return s
			}
		}
		if time.Since(begin) > time.Minute {
			b.Fatalf("the proxies did not find each other: %v", err)
		}
	}
}

// startProcess runs the program until the benchmark ends.
func startProcess(b *testing.B, p program, file, config string) process {
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(p.file, "run", "-c", file, "--log-level", "error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return process{cmd.Process.Pid}
}

// An amount is of bytes: as the app sent them, and as they left.
type amount struct{ raw, wire int64 }

// coded returns how much of gradients the near proxy has sent by codec.
func (s *sites) coded(b *testing.B, codec string) (a amount) {
	response, err := s.admin.Get("http://near/tensors")
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct{ Tensors []proxy.TensorInfo }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		b.Fatalf("/tensors: %v", err)
	}
	for _, t := range answer.Tensors {
		if t.Role == tensor.Gradient.String() && t.Codec == codec {
			a.raw += t.RawBytes
			a.wire += t.WireBytes
		}
	}
	return a
}

// A process may be any of this machine.
type process struct{ pid int }

func self() process { return process{os.Getpid()} }

// processor returns the processor time that the process has taken, user and system.
func (p process) processor(b *testing.B) time.Duration {
	const scheduled = 2 // CPUCLOCK_SCHED of include/linux/posix-timers.h: to the nanosecond
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^p.pid<<3|scheduled), &t); err != nil {
		b.Fatalf("clock of process %d: %v", p.pid, err)
	}
	return time.Duration(t.Nano())
}

// A worker pushes arrays, as MXNet does, to a server that reads them and does nothing else.
type worker struct {
	conn   *zmtp.Conn
	server *net.TCPConn
	time   int32
	buf    []byte
}

func newWorker(b *testing.B, s *sites) *worker {
	client, server := connect(b, s.forward, s.server)
	b.Cleanup(func() { client.Close(); server.Close() })
	greeted := make(chan error, 1)
	go func() { // it reads no further than READY, since nothing comes after it yet
		_, err := zmtp.Handshake(b.Context(), server, zmtp.Socket{Type: zmtp.Router}, nil)
		greeted <- err
	}()
	conn, err := zmtp.Handshake(b.Context(), client, zmtp.Socket{Type: zmtp.Dealer, Identity: "ps9"}, nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := <-greeted; err != nil {
		b.Fatal(err)
	}
	return &worker{conn: conn, server: server, buf: make([]byte, 1<<20)}
}

// push pushes n arrays and returns how many bytes that were, once all have arrived.
func (w *worker) push(b *testing.B, values [][]byte, n int) (size int) {
	messages := make([][][]byte, n)
	for i := range messages {
		messages[i] = w.message(values[int(w.time)%len(values)])
		for _, frame := range messages[i] {
			size += len(frame) + frameHeader(len(frame))
		}
	}
	written := make(chan error, 1)
	go func() {
		for _, m := range messages {
			if err := w.conn.WriteMessages([][][]byte{m}); err != nil {
				w.conn.Close() // so that the server does not wait
				written <- err
				return
			}
		}
		written <- nil
	}()
	w.server.SetReadDeadline(time.Now().Add(2 * time.Minute))
	for left := size; left > 0; {
		k, err := w.server.Read(w.buf)
		if left -= k; err != nil || left < 0 {
			b.Fatalf("%d bytes of %d have not arrived: %v", left, size, err)
		}
	}
	if err := <-written; err != nil {
		b.Fatal(err)
	}
	return size
}

// message returns the frames of the next push.
func (w *worker) message(values []byte) [][]byte {
	m := pslitesim.Meta{Request: true, Push: true, Timestamp: w.time,
		DataTypes: []int32{pslitesim.TypeUint64, pslitesim.TypeOther, pslitesim.TypeInt32}}
	key := binary.LittleEndian.AppendUint64(nil, uint64(w.time%arrays))
	lens := binary.LittleEndian.AppendUint32(nil, uint32(len(values)))
	w.time++
	return [][]byte{m.Append(nil), key, values, lens}
}

// frameHeader returns the bytes that ZMTP puts before a frame of n bytes: flags, and a length of one byte or eight.
func frameHeader(n int) int {
	if n > math.MaxUint8 {
		return 9
	}
	return 2
}

// appendNormal appends n normally distributed values.
func appendNormal(dst []byte, r *rand.Rand, n int) []byte {
	for range n {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(r.NormFloat64())))
	}
	return dst
}

package main

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/proxy/history"
	"github.com/gradproxy/gradproxy/tensor"
)

// A person sees links and tensors on a terminal, orders them, and gets the terminal back as it was.
func TestTopOnATerminal(t *testing.T) {
	registry := prometheus.NewRegistry()
	up := prometheus.NewGauge(prometheus.GaugeOpts{Name: "gradproxy_peer_up", ConstLabels: prometheus.Labels{"peer": "tokyo"}})
	up.Set(1)
	registry.MustRegister(up)
	metrics := proxy.NewMetrics(registry)
	metrics.Sent("tokyo", "resnet", "3lc", tensor.Gradient, 5_000_000, 1_000_000)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	one := proxy.TensorInfo{ID: 5, Job: "resnet", Protocol: "pslite", Role: "gradient", DType: "float32", Key: 0xabc, Bytes: 4096, Codec: "3lc", Reason: "ok", RawBytes: 5_000_000, WireBytes: 1_000_000}
	now := []int64{time.Now().Unix()}
	server := &http.Server{Handler: admin.Handler(admin.Config{Site: "paris", Version: "v1", Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		Tensors: func() []proxy.TensorInfo { return []proxy.TensorInfo{one} },
		Tensor: func(id uint64) (proxy.TensorInfo, *admin.TensorHistory, bool) {
			return one, &admin.TensorHistory{Step: 10, Times: now, Raw: []float32{1}, Wire: []float32{1}, Error: []float32{0.125}, Residual: []float32{1}}, id == 5
		},
		History: func(step int) history.Table {
			return history.Table{Step: step, Times: now, Series: []history.Series{{Name: history.Name{Peer: "tokyo", Link: true}, Raw: []int64{1}, Sent: []int64{1}, Delivered: []int64{1}, Received: []int64{1}, Down: []float32{9}}}}
		}})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })

	for name, typed := range map[string]string{"q": "q", "Ctrl-C": "\x03"} {
		t.Run(name, func(t *testing.T) {
			cmd := gradproxyCommand(t, "top", "--admin", "unix:"+socket, "--interval", "100ms")
			cmd.Env = append(cmd.Environ(), "TERM=xterm-256color")
			tty := pty(t, cmd)
			if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 160}); err != nil {
				t.Fatal(err)
			}
			stuck := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() }) // which ends the reading
			defer stuck.Stop()
			var shown strings.Builder
			until := func(want string) {
				t.Helper()
				piece := make([]byte, 4096)
				for !strings.Contains(shown.String(), want) {
					n, err := tty.Read(piece)
					shown.Write(piece[:n])
					if err != nil {
						t.Fatalf("no %q in %q: %v", want, shown.String(), err)
					}
				}
			}
			for _, want := range []string{"\x1b[?1049h", "site paris", "tokyo", "5.0 MB", "0000000000000abc", "3lc", "ordered by rate"} {
				until(want)
			}
			io.WriteString(tty, "ss")
			until("worst") // only cells that change are drawn, and spaces do not
			io.WriteString(tty, "\r")
			until("0.125") // the tensor's history
			io.WriteString(tty, "\x1b[Z")
			until("▒") // an outage
			io.WriteString(tty, typed)
			if code := exitCode(t, cmd.Wait()); code != 0 {
				t.Errorf("exit code %d", code)
			}
			rest, _ := io.ReadAll(tty) // ends with EIO once nobody has the terminal open
			if !strings.Contains(shown.String()+string(rest), "\x1b[?1049l") {
				t.Error("the terminal is not given back")
			}
		})
	}
}

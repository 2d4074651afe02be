package adminclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/tensor"
)

// serve answers as a proxy's admin address does, at a TCP address and at a unix socket.
func serve(t *testing.T, c admin.Config) []*Proxy {
	t.Helper()
	tcp := httptest.NewServer(admin.Handler(c))
	t.Cleanup(tcp.Close)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	unix := &http.Server{Handler: admin.Handler(c)}
	go unix.Serve(l)
	t.Cleanup(func() { unix.Close() })
	_, port, _ := net.SplitHostPort(tcp.Listener.Addr().String())
	return []*Proxy{At(tcp.Listener.Addr().String()), At("0.0.0.0:" + port), At("unix:" + path)}
}

// The metrics are the proxy's own, so that a name which changes there fails here.
func TestStatus(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := proxy.NewMetrics(registry)
	m.Sent("tokyo", "", "3lc", tensor.Gradient, 1000, 100)
	m.Sent("tokyo", "", "lossless", tensor.State, 500, 400)
	m.Delivered("tokyo", "", 70)
	m.Delivered("berlin", "", 7)
	for peer, up := range map[string]float64{"tokyo": 1, "berlin": 0} {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "gradproxy_peer_up", ConstLabels: prometheus.Labels{"peer": peer}})
		g.Set(up)
		sent := prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_peer_network_sent_bytes_total", ConstLabels: prometheus.Labels{"peer": peer}})
		sent.Add(300 * up)
		registry.MustRegister(g, sent)
	}
	for name, money := range map[string]float64{"spent_total": 3, "saved": 4} {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "gradproxy_peer_egress_" + name, ConstLabels: prometheus.Labels{"peer": "tokyo", "currency": "USD"}})
		g.Set(money)
		registry.MustRegister(g)
	}
	for _, p := range serve(t, admin.Config{Site: "paris", Version: "v1", Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		Checks: func() []admin.Check {
			return []admin.Check{{Name: "drain"}, {Name: "peer/berlin", Err: errors.New("no tunnel")}}
		}}) {
		s, err := p.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Site != "paris" || s.Version != "v1" || s.Ready || len(s.Checks) != 2 || s.Checks[1].Error != "no tunnel" {
			t.Errorf("%s: %+v", p.address, s.Readiness)
		}
		if s.Raw != 1500 || s.Wire != 500 || s.Delivered != 77 {
			t.Errorf("%s: raw %d, wire %d, delivered %d; want 1500, 500, 77", p.address, s.Raw, s.Wire, s.Delivered)
		}
		if len(s.Peers) != 2 || s.Peers[0].Name != "berlin" || s.Peers[0].Up || !s.Peers[1].Up || s.Peers[1].Delivered != 70 || s.Peers[1].Raw != 1500 || s.Peers[1].Network.Sent != 300 || s.Peers[0].Raw != 0 {
			t.Errorf("%s: peers %+v", p.address, s.Peers)
		}
		if s.Peers[0].Money != nil || s.Peers[1].Money == nil || *s.Peers[1].Money != (Money{"USD", 3, 4}) {
			t.Errorf("%s: money %+v, %+v", p.address, s.Peers[0].Money, s.Peers[1].Money)
		}
		if r := s.Network.Ratio(s.Raw, s.Delivered); s.Network.Sent != 300 || r < 5.25 || r > 5.26 || (Traffic{}).Ratio(1, 1) != 0 {
			t.Errorf("%s: the link has %+v, a ratio of %v, want 1577/300", p.address, s.Network, r)
		}
	}
}

func TestAwait(t *testing.T) {
	var asked atomic.Int32
	p := serve(t, admin.Config{Checks: func() []admin.Check {
		if asked.Add(1) < 3 {
			return []admin.Check{{Name: "peer/tokyo", Err: errors.New("no tunnel")}}
		}
		return []admin.Check{{Name: "peer/tokyo"}}
	}})[2]
	r, err := p.Await(t.Context())
	if err != nil || !r.Ready || asked.Load() != 3 {
		t.Errorf("%+v, %v after %d questions; want ready after 3", r, err, asked.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	nobody := At("unix:" + filepath.Join(t.TempDir(), "none"))
	transport, dials := nobody.client.Transport.(*http.Transport), 0
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials++; dials == 2 { // amid the second question: the answer to the first one counts
			cancel()
		}
		return dial(ctx, network, address)
	}
	if _, err := nobody.Await(ctx); err == nil || !strings.Contains(err.Error(), "no proxy answers") {
		t.Errorf("nobody there: %v", err)
	}
}

// The address may be that of another program, or of none.
func TestNoProxy(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) }))
	defer html.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, c := range []struct {
		ctx           context.Context
		address, want string
	}{
		{t.Context(), other.Listener.Addr().String(), "404 Not Found: is this the admin address of a gradproxy?"},
		{t.Context(), html.Listener.Addr().String(), "not the one of a gradproxy"},
		{t.Context(), "127.0.0.1:1", "no proxy answers at 127.0.0.1:1: start gradproxy run"},
		{t.Context(), "%zz", "is no admin address"},
		{ctx, silent.Addr().String(), "does not answer in time"},
	} {
		_, err := At(c.address).Ready(c.ctx)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", c.address, err, c.want)
		}
	}
}

package site

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/demo/ddp"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/integration/promtest"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
)

const deployed = "../../../../deploy/"

// expressions returns every expression of the dashboards, rules and alerts, by the place where it stands. Of an alert
// they are the quantities that it compares: a comparison that does not hold is empty.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	boards, err := filepath.Glob(deployed + "grafana/*.json")
	if err != nil || len(boards) == 0 {
		t.Fatalf("no dashboards (%v)", err)
	}
	for _, file := range boards {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board any
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		collect(all, filepath.Base(file), board)
	}
	comparison := regexp.MustCompile(`^(.+) (==|>|<) [-+.e0-9]+$`)
	for _, file := range []string{"rules.yml", "alerts.yml"} {
		text, err := os.ReadFile(deployed + "prometheus/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var rules struct {
			Groups []struct {
				Rules []struct{ Record, Alert, Expr string }
			}
		}
		if err := yaml.Unmarshal(text, &rules); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				if r.Record != "" {
					all[file+": "+r.Record] = r.Expr
					continue
				}
				for i, line := range strings.Split(r.Expr, "\nand on (instance, peer)\n") {
					m := comparison.FindStringSubmatch(strings.TrimSpace(line))
					if m == nil {
						t.Fatalf("%s: %s: %q is no comparison", file, r.Alert, line)
					}
					all[fmt.Sprintf("%s: %s, condition %d", file, r.Alert, i+1)] = m[1]
				}
			}
		}
	}
	return all
}

// collect finds the expressions below v, a dashboard's JSON. An annotation is a comparison, whose quantity it takes.
func collect(all map[string]string, where string, v any) {
	switch v := v.(type) {
	case []any:
		for i, x := range v {
			collect(all, fmt.Sprintf("%s[%d]", where, i), x)
		}
	case map[string]any:
		for key, x := range v {
			if text, ok := x.(string); ok && key == "expr" {
				all[where] = strings.TrimSuffix(text, " > 0")
			}
			collect(all, where+"."+key, x)
		}
	}
}

// page shows the admin socket of a site at an address of TCP, as Prometheus needs it.
func (r *running) page(t *testing.T) (address string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		status, body := r.get(q.URL.Path)
		w.WriteHeader(cmp.Or(status, http.StatusBadGateway)) // 0: the site does not answer
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// trainPair trains two ranks of a DDP job, rank 0 behind listener and rank 1 behind address, until ctx ends.
func trainPair(ctx context.Context, t *testing.T, listener net.Listener, address string) (end func()) {
	published := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("198.51.100.1:1")}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, len(published))
	rank := func(n int) error {
		g, err := gloosim.Connect(ctx, gloosim.Config{Rank: n, Addrs: published, Listeners: [][]net.Listener{{listener}, nil}[n],
			Dial: func(ctx context.Context, _ int) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			}})
		if err != nil {
			return err
		}
		defer g.Close()
		defer context.AfterFunc(ctx, func() { g.Abort(context.Cause(ctx)) })()
		const elements = 100_000
		params := []train.Param{{Shape: []int{elements}, Value: make([]float32, elements), Grad: make([]float32, elements)}}
		replica, err := ddp.New(g, params, nil)
		if err != nil {
			return err
		}
		for r := rand.New(rand.NewPCG(uint64(n), 2)); ; time.Sleep(10 * time.Millisecond) {
			if err := replica.Forward(); err != nil {
				return err
			}
			for i := range params[0].Grad {
				params[0].Grad[i] = float32(r.NormFloat64())
			}
			replica.Ready(0)
			if err := replica.Finish(); err != nil {
				return err
			}
		}
	}
	for n := range published {
		go func() { ended <- rank(n) }()
	}
	return sync.OnceFunc(func() {
		select {
		case err := <-ended:
			t.Errorf("the job ended by itself: %v", err)
			ended <- err
		default:
		}
		cancel()
		for range published {
			<-ended
		}
	})
}

// Every expression of the dashboards, the rules and the alerts has a value where two proxies carry a job that may lose
// something, and the numbers of Prometheus are those of the links.
func TestExpressionsHaveValues(t *testing.T) {
	if require.Race {
		t.Skip("needs a build without the race detector: its job must be fast enough for rates over a minute")
	}
	t.Parallel()
	require.Prometheus(t)
	lab := newLab(t)
	listener, err := net.Listen("tcp", "127.0.2.9:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	entry := free(t)
	var sites []*running
	for n := range 2 {
		more := fmt.Sprintf("state: {dir: %s}\nshadow: [int4]\njobs: [{name: resnet, networks: [127.0.0.0/8], ranks: 2, sums: gradients, aggregates: lossy}]\npolicy: [{role: gradient, codec: 3lc}, {role: aggregate, codec: int8}]\n", t.TempDir())
		if n == 0 {
			more += fmt.Sprintf("forward: [{listen: %q, target: %q}]\n", entry, listener.Addr())
		}
		c := lab.load(n, more)
		c.Peers[0].Price = config.Price{EgressPerGB: 0.09, Currency: "USD"}
		c.Peers[0].Budget = config.Budget{GBPerDay: 1000}
		sites = append(sites, lab.run(c))
	}
	sites[0].until(t, "/readyz?exclude=peer/virginia", 200, "peer/tokyo")
	instance := sites[0].page(t)
	p := promtest.Start(t, deployed+"prometheus", instance, sites[1].page(t))
	p.Await(t, "count(up == 1) == 2") // it has the series at 0
	end := trainPair(t.Context(), t, listener, entry)
	defer end()

	left := expressions(t)
	if len(left) < 80 {
		t.Fatalf("%d expressions: the files are not read", len(left))
	}
	why := map[string]string{}
	replace := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$instance", ".*", "$peer", ".*", "offset 1h", "offset 2s")
	for deadline := time.Now().Add(promtest.Patience); len(left) > 0 && time.Now().Before(deadline); time.Sleep(time.Second) {
		for where, expr := range maps.Clone(left) {
			result, err := p.Query(replace.Replace(expr))
			switch {
			case err != nil:
				why[where] = err.Error()
			case len(result) == 0:
				why[where] = "empty"
			case !slices.ContainsFunc(result, func(x promtest.Sample) bool { v := x.Number(); return !math.IsNaN(v) && !math.IsInf(v, 0) }):
				why[where] = "no number"
			default:
				delete(left, where)
			}
		}
	}
	for where, expr := range left {
		t.Errorf("%s: %s: %s", where, why[where], expr)
	}
	sums := strings.NewReplacer("raw", "gradproxy_raw_bytes_total", "link", "gradproxy_peer_network_sent_bytes_total", "spent", "gradproxy_peer_egress_spent_total",
		"direct", "gradproxy_peer_egress_direct_total", "saved", "gradproxy_peer_egress_saved", ")", fmt.Sprintf(`{instance=%q,peer="tokyo"})`, instance))
	p.Await(t, sums.Replace("sum(raw) >= 10e6"))
	end()
	for _, holds := range []string{ // in one scrape: the tunnel's own bytes go on
		"sum(link) <= sum(raw) / 2",
		"-1e-9 < sum(spent) - sum(link) / 1e9 * 0.09 < 1e-9",
		"-1e-9 < sum(direct) - sum(raw) / 1e9 * 0.09 < 1e-9",
		"-1e-9 < sum(saved) - sum(direct) + sum(spent) < 1e-9",
	} {
		p.Await(t, sums.Replace(holds))
	}
	if result, err := p.Query(`ALERTS{alertname!~"GradproxyPeerDown"}`); err != nil || len(result) > 0 { // virginia is not there
		t.Errorf("alerts of a good run: %v, %v", result, err)
	}
}

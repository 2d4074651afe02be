// Package admin answers an operator's questions over HTTP: /metrics for Prometheus, /tensors for why each tensor
// travels as it does, /peers for the settings of peers, /healthz and /readyz for supervisors, and one page for people at /.
//
// It only reads: nothing can be changed through it. It has no authentication, so it belongs on a loopback address or
// a unix socket.
package admin

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/gradproxy/gradproxy/proxy"
)

const (
	// maxConns bounds the connections, whose descriptors jobs and tunnels want too.
	maxConns = 64
	// writeTimeout is how long a client may take for its answer.
	writeTimeout = 30 * time.Second
)

// A Config says where the answers come from. All functions are called for each request, on its goroutine.
type Config struct {
	Site    string                    // shown on the page
	Version string                    // shown on the page
	Metrics http.Handler              // /metrics; nil: not found
	Tensors func() []proxy.TensorInfo // /tensors; nil: none
	Checks  func() []Check            // /readyz; nil: always ready
	// Peers asks all peers for their settings about this site (/peers); nil: not found.
	Peers func(ctx context.Context) []Excerpt
	Log   *slog.Logger // nil discards
}

// A Check is one thing that must be so for the proxy to be ready.
type Check struct {
	Name string // as in /readyz?exclude=NAME: "drain", "intercept", "peer/tokyo"
	Err  error  // why it is not so; nil: it is
}

// Handler returns the pages.
func Handler(c Config) http.Handler {
	if c.Tensors == nil {
		c.Tensors = func() []proxy.TensorInfo { return nil }
	}
	if c.Checks == nil {
		c.Checks = func() []Check { return nil }
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.index)
	mux.HandleFunc("GET /healthz", c.healthz)
	mux.HandleFunc("GET /readyz", c.readyz)
	mux.HandleFunc("GET /tensors", c.tensors)
	if c.Peers != nil {
		mux.HandleFunc("GET /peers", c.peers)
	}
	if c.Metrics != nil {
		mux.Handle("GET /metrics", c.Metrics)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		if !c.trusts(r) {
			http.Error(w, "this request comes from a page of another site, or names a host that is not this one: use the address, or localhost", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// trusts reports whether a request comes from no foreign web page in a browser on this host. Such a page says its origin, or has a name of its
// own lead to a loopback address. Names of hosts that reach another address of this host are not judged, since Prometheus may use them.
func (c *Config) trusts(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host != r.Host {
			return false
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() {
		return true
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}

// healthz says that the process runs; readyz says whether it is of use.
func (c *Config) healthz(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// A Readiness is the answer of /readyz to a client that accepts application/json. Its names are stable.
type Readiness struct {
	Site    string   `json:"site"`
	Version string   `json:"version"`
	Ready   bool     `json:"ready"`
	Checks  []Result `json:"checks"`
}

// A Result is a Check as clients see it.
type Result struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Excluded bool   `json:"excluded,omitempty"` // by the client: it does not count
	Error    string `json:"error,omitempty"`    // why it is not so
}

// String writes a result for people.
func (r Result) String() string {
	switch {
	case r.Excluded:
		return fmt.Sprintf("- %s: excluded", r.Name)
	case !r.OK:
		return fmt.Sprintf("✗ %s: %s", r.Name, r.Error)
	}
	return "✓ " + r.Name
}

func (c *Config) readiness(excluded []string) Readiness {
	all := Readiness{Site: c.Site, Version: c.Version, Ready: true, Checks: []Result{}}
	for _, check := range c.Checks() {
		r := Result{Name: check.Name, OK: check.Err == nil, Excluded: slices.Contains(excluded, check.Name)}
		if !r.OK {
			r.Error = check.Err.Error()
			all.Ready = all.Ready && r.Excluded
		}
		all.Checks = append(all.Checks, r)
	}
	return all
}

// readyz answers 200 if every check holds that the query does not exclude, else 503, with a line for each, or as JSON.
func (c *Config) readyz(w http.ResponseWriter, r *http.Request) {
	all := c.readiness(r.URL.Query()["exclude"])
	status, verdict := http.StatusOK, "ready"
	if !all.Ready {
		status, verdict = http.StatusServiceUnavailable, "not ready"
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		writeJSON(w, all)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	for _, result := range all.Checks {
		fmt.Fprintln(w, result)
	}
	fmt.Fprintln(w, verdict)
}

func writeJSON(w http.ResponseWriter, v any) {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	_ = e.Encode(v) // it fails only if the client has gone
}

// tensors answers {"tensors": [...], "count": N}, the ones that have sent most bytes first. The query's limit bounds the list; count is of all.
func (c *Config) tensors(w http.ResponseWriter, r *http.Request) {
	limit := math.MaxInt
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			http.Error(w, "limit is a number of tensors: write a whole number, as in /tensors?limit=100", http.StatusBadRequest)
			return
		}
		limit = n
	}
	list := c.Tensors()
	count := len(list)
	if list = list[:min(count, limit)]; len(list) == 0 {
		list = []proxy.TensorInfo{}
	}
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, map[string]any{"tensors": list, "count": count})
}

// An Excerpt has the settings about this site with which a peer's proxy runs, by the peer's own words, which are not checked.
type Excerpt struct {
	Peer  string `json:"peer"`
	Text  string `json:"text"`            // as the peer has sent it
	Error string `json:"error,omitempty"` // why there is none
}

// peers answers {"site": ..., "peers": [...]}.
func (c *Config) peers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, map[string]any{"site": c.Site, "peers": c.Peers(r.Context())})
}

//go:embed index.html
var indexText string

var indexPage = template.Must(template.New("index").Funcs(template.FuncMap{
	"size": Size,
	"ratio": func(raw, wire int64) string {
		if wire == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", float64(raw)/float64(wire))
	},
}).Parse(indexText))

// shown is how many tensors the page lists; /tensors lists all.
const shown = 100

func (c *Config) index(w http.ResponseWriter, _ *http.Request) {
	tensors := c.Tensors()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = indexPage.Execute(w, map[string]any{
		"Site": c.Site, "Version": c.Version, "Checks": c.Checks(), "Count": len(tensors),
		"Tensors": tensors[:min(len(tensors), shown)], "Shown": shown,
	})
}

// Size writes bytes for people.
func Size(n int64) string {
	v, unit := float64(n), "B"
	for _, u := range []string{"kB", "MB", "GB", "TB"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

// Serve answers requests from l until ctx ends, then closes l, lets running answers finish for a moment, and returns
// nil.
func Serve(ctx context.Context, l net.Listener, c Config) error {
	log := cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	s := &http.Server{
		Handler:           Handler(c),
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s.Shutdown(grace) != nil {
			_ = s.Close()
		}
	})
	defer stop()
	if err := s.Serve(netutil.LimitListener(l, maxConns)); ctx.Err() == nil {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

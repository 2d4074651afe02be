// Package admin answers an operator's questions over HTTP: /metrics for Prometheus, /tensors for why each tensor
// travels as it does, /peers for the settings of peers, /healthz and /readyz for supervisors, and one page for people
// at /, which is kept up to date by /events (server-sent events; see events.go), /history and /tensor.
//
// It only reads: nothing can be changed through it. It has no authentication, so it belongs on a loopback address or
// a unix socket.
package admin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxConns bounds the connections, whose descriptors jobs and tunnels want too.
const maxConns = 64

// Pages are all pages of a proxy.
type Pages struct {
	http.Handler
	End func() // disconnects the readers of events
}

// Handler returns the pages.
func Handler(c Config) Pages {
	c.setDefaults()
	events := newHub(&c)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.index)
	mux.HandleFunc("GET /healthz", c.healthz)
	mux.HandleFunc("GET /readyz", c.readyz)
	mux.HandleFunc("GET /tensors", c.tensors())
	mux.HandleFunc("GET /page/{name}", c.asset)
	mux.HandleFunc("GET /live", c.live)
	mux.HandleFunc("GET /events", events.events)
	mux.HandleFunc("GET /history", c.history)
	mux.HandleFunc("GET /tensor", c.tensor(events))
	if c.Shadow != nil {
		mux.HandleFunc("GET /shadow", c.shadow)
	}
	if c.Peers != nil {
		mux.HandleFunc("GET /peers", c.peers)
	}
	if c.Metrics != nil {
		mux.Handle("GET /metrics", c.Metrics)
	}
	return Pages{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Security-Policy", contentPolicy)
		if !c.trusts(r) {
			http.Error(w, "this request comes from a page of another site, or names a host that is not this one: use the address, or localhost", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	}), events.end}
}

// trusts reports whether a request comes from no foreign web page in a browser on this host. Such a page says its
// origin, or has a name of its own lead to a loopback address. Names of hosts that reach another address of this host
// are not judged, since Prometheus may use them.
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

// shadow answers with a trials.Report.
func (c *Config) shadow(w http.ResponseWriter, _ *http.Request) {
	r, ok := c.Shadow()
	if !ok {
		http.Error(w, "no codec is tried: name candidates in the configuration, such as shadow: [int8, 3lc], and have the proxy read it again", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, r)
}

// peers answers {"site": ..., "peers": [...]}.
func (c *Config) peers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, map[string]any{"site": c.Site, "peers": c.Peers(r.Context())})
}

// LinkState writes the state of a link for people, and RTTOf its round-trip time; "": it is not known. outage and rtt
// are in seconds.
func LinkState(up bool, outage float64) string {
	switch {
	case outage > 0:
		return fmt.Sprintf("outage for %v", time.Duration(outage*float64(time.Second)).Round(100*time.Millisecond))
	case !up:
		return "down"
	}
	return "up"
}

// RTTOf is described with LinkState.
func RTTOf(rtt float64) string {
	if rtt <= 0 {
		return ""
	}
	return time.Duration(rtt * float64(time.Second)).Round(10 * time.Microsecond).String()
}

// Amount writes an amount of money for people, with its currency. A loss that rounds to nothing has no sign.
func Amount(x float64, currency string) string {
	text := fmt.Sprintf("%.2f", x)
	if text == "-0.00" {
		text = "0.00"
	}
	return text + " " + currency
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

// bodyTimeout is how long a request's body is awaited, of which no page has a use: net/http reads it before it answers,
// and such a connection would not give way.
const bodyTimeout = time.Second

// withoutBody bounds the time in which a request's body comes.
func withoutBody(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // a server's own connection has deadlines
		}
		h.ServeHTTP(w, r)
	})
}

// A patience is how long a connection may have no whole header of a request: from its first byte on, and before that.
type patience struct{ header, idle time.Duration }

// Serve answers requests from l until ctx ends, then closes l, lets running answers finish for a moment, and returns
// nil.
func Serve(ctx context.Context, l net.Listener, c Config) error {
	return servePatiently(ctx, newCrowd(l, maxConns), c, patience{header: 5 * time.Second, idle: time.Minute})
}

func servePatiently(ctx context.Context, members *crowd, c Config, p patience) error {
	log := cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	pages := Handler(c)
	s := &http.Server{
		ConnState:         members.changed,
		Handler:           withoutBody(pages),
		ReadHeaderTimeout: p.header,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       p.idle,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	s.RegisterOnShutdown(pages.End)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s.Shutdown(grace) != nil {
			_ = s.Close()
		}
	})
	defer stop()
	if err := s.Serve(members); ctx.Err() == nil {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

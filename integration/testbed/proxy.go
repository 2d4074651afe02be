//go:build linux

package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/proxy/trials"
)

// A Proxy is a gradproxy process at a site.
type Proxy struct {
	site *Site
	*process
}

// Proxies are the proxies of a WAN, in the order of their sites.
type Proxies []*Proxy

// Stop ends all of them as an operator would and reports each that did not end well.
func (ps Proxies) Stop() error {
	var errs []error
	for _, p := range ps {
		errs = append(errs, p.Stop())
	}
	return errors.Join(errs...)
}

// CPU returns the processor time of all of them so far.
func (ps Proxies) CPU() (time.Duration, error) {
	var sum time.Duration
	for _, p := range ps {
		used, err := p.cpu()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// Pid returns the number of the proxy's process.
func (p *Proxy) Pid() int { return p.cmd.Process.Pid }

// Resident returns the bytes of memory that the proxy has in use, as the kernel counts them.
func (p *Proxy) Resident() (int64, error) { return p.resident() }

// Stop sends SIGTERM and waits for the end. It reports one that fails or had ended before; not one that was killed.
func (p *Proxy) Stop() error {
	if p.killed.Load() {
		return nil
	}
	if p.ended() {
		return fmt.Errorf("testbed: proxy at site %s ended by itself: %w\n%s", p.site.Site, errOr(p.err, "exit code 0"), p.log)
	}
	if err := p.terminate(20 * time.Second); err != nil {
		return fmt.Errorf("testbed: proxy at site %s: %w\n%s", p.site.Site, err, p.log)
	}
	return nil
}

func errOr(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// Kill ends the proxy as kill -9 does.
func (p *Proxy) Kill() { p.kill() }

// Log returns the last lines of the proxy's log.
func (p *Proxy) Log() string { return p.log.String() }

// Warnings returns the warnings and errors among the last lines of all proxies' logs, each behind the site's name.
func (ps Proxies) Warnings() string {
	var b strings.Builder
	for _, p := range ps {
		for line := range strings.Lines(p.Log()) {
			if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
				fmt.Fprintf(&b, "proxy at site %s: %s\n", p.site.Site, strings.TrimSpace(line))
			}
		}
	}
	return b.String()
}

// Ready waits until /readyz says yes. It fails if the proxy ends, and with ctx.
func (p *Proxy) Ready(ctx context.Context) error {
	for {
		body, err := p.get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-p.done:
			return fmt.Errorf("testbed: proxy at site %s ended: %w\n%s", p.site.Site, errOr(p.err, "exit code 0"), p.log)
		case <-ctx.Done():
			return fmt.Errorf("testbed: proxy at site %s is not ready: %w: %w %s\n%s", p.site.Site, context.Cause(ctx), err, body, p.log)
		}
	}
}

// Metrics returns the samples of /metrics by name and labels as printed there: `gradproxy_x_total{peer="b"}`.
func (p *Proxy) Metrics(ctx context.Context) (map[string]float64, error) {
	body, err := p.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return samplesOf(body), nil
}

// samplesOf reads the text of /metrics.
func samplesOf(text string) map[string]float64 {
	samples := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value := line, ""
		if i := strings.LastIndexByte(line, ' '); i >= 0 {
			name, value = line[:i], line[i+1:]
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(line, "#") {
			samples[name] = v
		}
	}
	return samples
}

// Metrics returns the samples of each proxy.
func (ps Proxies) Metrics(ctx context.Context) (all []map[string]float64, err error) {
	for _, p := range ps {
		samples, err := p.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, samples)
	}
	return all, nil
}

// Sum adds up the samples of one metric that have all the given labels, each `name="value"`.
func Sum(samples map[string]float64, metric string, labels ...string) float64 {
	var sum float64
	for name, v := range samples {
		base, rest, _ := strings.Cut(name, "{")
		missing := slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) })
		if base == metric && !missing {
			sum += v
		}
	}
	return sum
}

// Sent returns how many bytes of tensors of a role the job has sent so far with a codec, over all proxies. Both are
// written as in metrics.
func (ps Proxies) Sent(ctx context.Context, role, codec string) (bytes float64, err error) {
	return ps.Sum(ctx, "gradproxy_raw_bytes_total", fmt.Sprintf("role=%q", role), fmt.Sprintf("codec=%q", codec))
}

// Sum is the function Sum, over all proxies.
func (ps Proxies) Sum(ctx context.Context, metric string, labels ...string) (sum float64, err error) {
	for _, p := range ps {
		samples, err := p.Metrics(ctx)
		if err != nil {
			return 0, err
		}
		sum += Sum(samples, metric, labels...)
	}
	return sum, nil
}

// Doubts returns the doubts about a candidate's prediction for a role, over all proxies: the part of the sample, from 0
// to 1, that came while residuals were still growing, and the blocks on which the guard acted.
func (ps Proxies) Doubts(ctx context.Context, role, codec string) (early float64, guarded int, err error) {
	var grew, raw int64
	for _, p := range ps {
		body, err := p.get(ctx, "/shadow")
		if err != nil {
			return 0, 0, err
		}
		var r trials.Report
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			return 0, 0, fmt.Errorf("testbed: /shadow of site %s: %w", p.site.Site, err)
		}
		for _, g := range r.Groups {
			for _, c := range g.Candidates {
				if g.Role == role && c.Codec == codec {
					grew, raw, guarded = grew+c.Early, raw+c.Raw, guarded+c.Behind
				}
			}
		}
	}
	if raw == 0 {
		return 0, 0, fmt.Errorf("testbed: no proxy has tried %s for role %s", codec, role)
	}
	return float64(grew) / float64(raw), guarded, nil
}

// Tensors returns the tensors that the proxy lists in /tensors: the ones that its site has sent.
func (p *Proxy) Tensors(ctx context.Context) ([]tensors.Info, error) {
	body, err := p.get(ctx, "/tensors")
	if err != nil {
		return nil, err
	}
	var list struct{ Tensors []tensors.Info }
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		return nil, fmt.Errorf("testbed: /tensors of site %s: %w", p.site.Site, err)
	}
	return list.Tensors, nil
}

// Count is Sum of a metric without labels, which each proxy must have: a name that no proxy knows is an error and
// not 0.
func (ps Proxies) Count(ctx context.Context, metric string) (sum float64, err error) {
	for _, p := range ps {
		samples, err := p.Metrics(ctx)
		if err != nil {
			return 0, err
		}
		n, ok := samples[metric]
		if !ok {
			return 0, fmt.Errorf("testbed: the proxy of site %s has no metric %s", p.site.Site, metric)
		}
		sum += n
	}
	return sum, nil
}

// get asks the proxy's admin address, which only its namespace sees.
func (p *Proxy) get(ctx context.Context, path string) (body string, err error) {
	client := http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: p.site.dialEdge},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+adminAddress+path, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(io.LimitReader(response.Body, 8<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("testbed: %s of site %s: %s", path, p.site.Site, response.Status)
	}
	return string(b), err
}

// Forward makes the admin address reachable for programs of the host, at the address that it returns, until ctx ends.
func (p *Proxy) Forward(ctx context.Context) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("testbed: %w", err)
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(ctx, c)
		}
	}()
	return l.Addr().String(), nil
}

// carry carries one connection to the admin address.
func (p *Proxy) carry(ctx context.Context, c net.Conn) {
	defer c.Close()
	to, err := p.site.dialEdge(ctx, "tcp", adminAddress)
	if err != nil {
		return
	}
	defer to.Close()
	defer context.AfterFunc(ctx, func() { c.Close(); to.Close() })()
	go func() {
		io.Copy(to, c)
		to.Close()
	}()
	io.Copy(c, to)
}

// Run runs the program where the proxy runs, and returns its standard output.
func (g *Gradproxy) Run(ctx context.Context, p *Proxy, args ...string) ([]byte, error) {
	ns, _, _ := p.site.edge()
	cmd := ns.Command(g.binary, args...)
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Start()
	if err == nil {
		stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
		err = cmd.Wait()
		stop()
	}
	if err != nil {
		return nil, fmt.Errorf("testbed: gradproxy %s: %w", strings.Join(args, " "), err)
	}
	return out.Bytes(), nil
}

// Site returns the name of the proxy's site.
func (p *Proxy) Site() string { return p.site.Site }

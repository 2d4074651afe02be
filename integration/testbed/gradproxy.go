//go:build linux

package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// A Gradproxy is the program under test, and a folder with the certificates and configurations of its processes.
type Gradproxy struct {
	binary string
	dir    string
}

// domain is the trust domain of the test sites' certificates.
const domain = "testbed"

// maxSites bounds the sites of a WAN.
const maxSites = 3

// Build builds the program into dir, with the race detector if GRADPROXY_RACE is 1, and has it make certificates.
func Build(ctx context.Context, dir string) (*Gradproxy, error) {
	g := &Gradproxy{binary: filepath.Join(dir, "gradproxy"), dir: dir}
	args := []string{"build", "-o", g.binary}
	if os.Getenv("GRADPROXY_RACE") == "1" {
		args = append(args, "-race")
	}
	build := exec.CommandContext(ctx, "go", append(args, "github.com/gradproxy/gradproxy/cmd/gradproxy")...)
	cert := []string{"cert", "--ca-dir", g.dir, "--domain", domain}
	for i := range maxSites {
		cert = append(cert, siteName(i))
	}
	for _, cmd := range []*exec.Cmd{build, exec.CommandContext(ctx, g.binary, cert...)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("testbed: %s: %w\n%s", cmd, err, out)
		}
	}
	return g, nil
}

// Command returns a command that runs the program.
func (g *Gradproxy) Command(args ...string) *exec.Cmd { return exec.Command(g.binary, args...) }

// Config holds the settings in which the proxies' configurations differ. The zero Config is lossless.
type Config struct {
	Sites        []int   // sites with a proxy, each the others' peer; nil: all
	Hostile      []int   // sites that are peers of these too, and speak for themselves
	Resume       string  // of the tunnel; "": 5m
	Carrier      string  // of the tunnel; "": the default
	Congestion   string  // TCP congestion control of the tunnel; "": the default
	RefusedRetry string  // how long refused dials are repeated; "": 30s
	OnDeath      string  // fate of new connections without a proxy; "": direct
	Cgroup       string  // folder of cgroups, below which each site's has its number: the proxies redirect their connections only; "": all of the site's
	Upgrades     bool    // another process can take each one's place
	Price        float64 // of 10^9 bytes that leave, in USD; 0: none
	Budget       string  // of each peer, as YAML: {gb_per_day: 50}; "": none
	State        string  // folder of state.dir, below which each site has its own; "": none
	References   string  // room for values that are sent again and again; "": the default
	Shadow       string  // candidates, as a YAML list; "": none
	Loss         Loss    // of the one job that spans all sites
}

// Loss says which values of a job may lose precision. The zero Loss is none: the proxies have no job and no policy.
type Loss struct {
	Gradients  string // codec of the summands of the job's sums; "": lossless
	Aggregates string // codec of the sums; "": lossless
	Sums       string // which of them may lose something, as configurations write it; "": gradients
	NoFeedback bool   // no error feedback: the codec Gradients keeps no residual

	// Protocol of a job that proves roles, so that the configuration says nothing of its sums and has rules for the
	// protocol only; "": another.
	Protocol string
	State    string // codec of the differences of weights that come back; "": lossless
}

// yaml is the part of the configuration that says so.
func (l Loss) yaml(ranks int) string {
	if l.Gradients == "" && l.State == "" {
		return ""
	}
	const networks = `networks: ["198.18.0.0/15", "2001:db8::/32"]`
	if l.Protocol != "" {
		return fmt.Sprintf(`jobs:
  - {name: job, %s}
policy:
  - {protocol: %[2]s, role: gradient, codec: %[3]q, feedback: %[4]t}
  - {protocol: %[2]s, role: state, codec: %[5]q}
`, networks, l.Protocol, cmp.Or(l.Gradients, "lossless"), !l.NoFeedback, cmp.Or(l.State, "lossless"))
	}
	aggregates, rules := "lossless", ""
	if l.Aggregates != "" {
		aggregates = "lossy"
		rules = fmt.Sprintf("  - {role: aggregate, codec: %q}\n", l.Aggregates)
	}
	return fmt.Sprintf(`jobs:
  - {name: job, %s, ranks: %d, sums: %s, aggregates: %s}
policy:
  - {role: gradient, codec: %q, feedback: %t}
%s`, networks, ranks, cmp.Or(l.Sums, "gradients"), aggregates, l.Gradients, !l.NoFeedback, rules)
}

// configuration is the YAML file of site i.
func (g *Gradproxy) configuration(w *WAN, i int, c Config) string {
	own := w.Sites[i]
	_, addr, _ := own.edge()
	resume, retry := cmp.Or(c.Resume, "5m"), cmp.Or(c.RefusedRetry, "30s")
	carriers := ", carrier: " + cmp.Or(c.Carrier, "tls") // a carrier that is left out would depend on the memory of this machine
	if c.Congestion != "" {
		carriers += ", congestion: " + c.Congestion
	}
	text := fmt.Sprintf(`site: %[1]s
tunnel: {listen: "%[2]s:%[3]d", cert: %[4]s/%[1]s.pem, key: %[4]s/%[1]s.key, ca: %[4]s/ca.pem, resume: %[5]s%[8]s}
intercept: {mode: %[9]s, ports: 1024-65535, on_death: %[10]s}
admin: "%[6]s"
drain: 5s
refused_retry: %[7]s
peers:
`, own.Site, addr, tunnelPort, g.dir, resume, adminAddress, retry, carriers, own.intercept(c.Cgroup, i), cmp.Or(c.OnDeath, "direct"))
	for _, j := range slices.Concat(c.Hostile, c.sites(w)) {
		if j == i {
			continue
		}
		peer := w.Sites[j]
		_, dial, _ := peer.edge()
		price := ""
		if c.Price > 0 {
			price = fmt.Sprintf(", price: {egress_per_gb: %v, currency: USD}", c.Price)
		}
		if c.Budget != "" {
			price += ", budget: " + c.Budget
		}
		text += fmt.Sprintf(`  - {name: %[1]s, dial: "%[2]s:%[3]d", id: "spiffe://%[4]s/%[1]s", networks: ["%[5]s", "%[6]s"], may_dial: ["%[7]s:1024-65535", "[%[8]s]/%[9]d:1024-65535"]%[10]s}
`, peer.Site, dial, tunnelPort, domain, peer.Network, peer.Network6, own.Network,
			own.Network6.Addr(), own.Network6.Bits(), price)
	}
	if c.Upgrades {
		text += fmt.Sprintf("upgrade: {socket: %s/%s.upgrade}\n", g.dir, own.Name())
	}
	if c.State != "" {
		text += fmt.Sprintf("state: {dir: %s/%s}\n", c.State, own.Site)
	}
	if c.Shadow != "" {
		text += fmt.Sprintf("shadow: %s\n", c.Shadow)
	}
	if c.References != "" {
		text += fmt.Sprintf("references: %s\n", c.References)
	}
	return text + c.Loss.yaml(len(w.Sites))
}

// intercept returns how the proxy of site i takes connections over. cgroups is the folder of the sites' cgroups; "":
// there are none.
func (s *Site) intercept(cgroups string, i int) string {
	switch {
	case s.Gateway != nil:
		return "tproxy"
	case cgroups != "":
		return fmt.Sprintf("cgroup, cgroup: %s/%d", cgroups, i)
	}
	return "redirect"
}

const (
	tunnelPort   = 7443
	adminAddress = "127.0.0.1:9090" // in the site's namespace
)

func (c Config) sites(w *WAN) []int {
	if c.Sites != nil {
		return c.Sites
	}
	all := make([]int, len(w.Sites))
	for i := range all {
		all[i] = i
	}
	return all
}

// Start starts a proxy at each site of c and waits until all are ready, their tunnels included, or ctx ends. They run
// until Stop or Kill.
func (g *Gradproxy) Start(ctx context.Context, w *WAN, c Config) (Proxies, error) {
	var all Proxies
	for _, i := range c.sites(w) {
		p, err := g.StartOne(w, i, c)
		if err != nil {
			return nil, errors.Join(err, all.Stop())
		}
		all = append(all, p)
	}
	for _, p := range all {
		if err := p.Ready(ctx); err != nil {
			return nil, errors.Join(err, all.Stop())
		}
	}
	return all, nil
}

// Replace has another process take the place of the i-th proxy, and waits until it is ready and the old one has ended.
func (g *Gradproxy) Replace(ctx context.Context, w *WAN, ps Proxies, i int, c Config) error {
	old := ps[i]
	p, err := g.StartOne(w, c.sites(w)[i], c)
	if err != nil {
		return err
	}
	ps[i] = p
	select {
	case <-old.done:
	case <-p.done:
		return fmt.Errorf("testbed: the proxy that was to take over at site %s ended: %w\n%s\nthe old one:\n%s", p.site.Site, errOr(p.err, "exit code 0"), p.log, old.log)
	case <-ctx.Done():
		return fmt.Errorf("testbed: nothing took over at site %s: %w\n%s\nthe old one:\n%s", p.site.Site, context.Cause(ctx), p.log, old.log)
	}
	if old.err != nil {
		return fmt.Errorf("testbed: the old proxy at site %s: %w\n%s", p.site.Site, old.err, old.log)
	}
	return p.Ready(ctx)
}

// Path returns the path of the program.
func (g *Gradproxy) Path() string { return g.binary }

// Reload has all proxies read another configuration, and waits until each has. It differs only in what takes no
// restart.
func (g *Gradproxy) Reload(ctx context.Context, w *WAN, ps Proxies, c Config) error {
	const read = "gradproxy_config_reloads_total"
	for k, p := range ps {
		before, err := p.Metrics(ctx)
		if err != nil {
			return err
		}
		if _, err := g.write(w, c.sites(w)[k], c); err != nil {
			return err
		}
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			return fmt.Errorf("testbed: the proxy at site %s: %w", p.site.Site, err)
		}
		for {
			after, err := p.Metrics(ctx)
			if err != nil {
				return err
			}
			if Sum(after, read, `result="failed"`) > Sum(before, read, `result="failed"`) {
				return fmt.Errorf("testbed: the proxy at site %s refuses the configuration:\n%s", p.site.Site, p.log)
			}
			if Sum(after, read, `result="ok"`) > Sum(before, read, `result="ok"`) {
				break
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// write writes the configuration of site i, and returns its path.
func (g *Gradproxy) write(w *WAN, i int, c Config) (file string, err error) {
	file = filepath.Join(g.dir, w.Sites[i].Name()+".yaml")
	if err := os.WriteFile(file, []byte(g.configuration(w, i, c)), 0o600); err != nil {
		return "", fmt.Errorf("testbed: %w", err)
	}
	return file, nil
}

// StartOne starts the proxy of site i only, and waits for nothing.
func (g *Gradproxy) StartOne(w *WAN, i int, c Config) (*Proxy, error) {
	file, err := g.write(w, i, c)
	if err != nil {
		return nil, err
	}
	ns, _, _ := w.Sites[i].edge()
	p, err := startProcess(ns.Command(g.binary, "run", "-c", file), nil)
	if err != nil {
		return nil, err
	}
	return &Proxy{site: w.Sites[i], process: p}, nil
}

// Package setup makes the first configuration of two sites: for each a folder with everything that its proxy needs,
// ready to be copied to /etc/gradproxy there, and beside them the authority of their certificates.
package setup

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// A Site is one of the two.
type Site struct {
	Name     string
	Address  string         // host, or host:port, at which the other site reaches its tunnel; "": it cannot be reached, and dials
	Networks []netip.Prefix // of its hosts
}

// A Plan is the answer to the four questions.
type Plan struct {
	Sites  [2]Site
	Loss   string // one of Losses
	Jobs   []Job  // none: one, of all hosts
	Domain string // trust domain of the certificates; needed unless the folder has an authority already
}

// A Job is one whose tensors are told apart from other jobs', by the networks of its hosts at the sites.
type Job struct {
	Name     string
	Networks []netip.Prefix // none: the networks of both sites
}

// Losses lists the values that may lose precision: none, gradients, or gradients and their sums.
var Losses = []string{"nothing", "gradients", "sums"}

const (
	tunnelPort = "7443"
	authority  = "authority" // folder of the certificates' authority

	// ConfigName is the name of each site's configuration file.
	ConfigName = "gradproxy.yaml"
)

// A File is one that Write has written.
type File struct {
	Path string `json:"path"`
	Site string `json:"site"` // "": it belongs to no site, and stays where it is
	Use  string `json:"use"`
}

// Write writes both sites' folders below dir. It writes over no file unless force is set. The domain of the plan must
// be the one of an authority that dir has.
func Write(dir string, p Plan, force bool) ([]File, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	ca := filepath.Join(dir, authority)
	for _, s := range p.Sites {
		for _, name := range []string{ConfigName, "ca.pem", s.Name + ".pem", s.Name + ".key"} {
			path := filepath.Join(dir, s.Name, name)
			if _, err := os.Lstat(path); err == nil && !force {
				return nil, fmt.Errorf("%s exists: remove it, name another folder with --output, or write over it with --force", path)
			}
		}
	}
	if _, err := pki.Write(pki.Options{Dir: ca, Domain: p.Domain, Sites: []string{p.Sites[0].Name, p.Sites[1].Name}, Force: force}); err != nil {
		return nil, err
	}
	trusted, err := os.ReadFile(filepath.Join(ca, "ca.pem"))
	if err != nil {
		return nil, err
	}
	files := []File{
		{filepath.Join(ca, "ca.key"), "", "the authority's key; keep it safe, and off the sites: gradproxy cert adds sites with it"},
		{filepath.Join(ca, "ca.pem"), "", "the authority's certificate, which both sites have too"},
	}
	for i, s := range p.Sites {
		folder := filepath.Join(dir, s.Name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		add := func(name, use string, mode os.FileMode, content []byte) error {
			path := filepath.Join(folder, name)
			files = append(files, File{path, s.Name, use})
			if content == nil { // the authority made it
				return os.Rename(filepath.Join(ca, name), path)
			}
			return os.WriteFile(path, content, mode)
		}
		if err := errors.Join(
			add(ConfigName, "its configuration", 0o644, []byte(p.configuration(i))),
			add("ca.pem", "the authority of both sites' certificates", 0o644, trusted),
			add(s.Name+".pem", "its certificate", 0o644, nil),
			add(s.Name+".key", "its key, for no other site", 0o600, nil),
		); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// check finds mistakes that the configuration's own check would find too late, or would blame on a file that the user
// has not written.
func (p *Plan) check() error {
	for _, part := range []func() error{p.CheckNames, p.CheckAddresses, p.CheckLoss, p.CheckNetworks, p.CheckJobs} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// CheckNames finds mistakes of the sites' names.
func (p *Plan) CheckNames() error {
	if p.Sites[0].Name == p.Sites[1].Name {
		return fmt.Errorf("both sites are called %q: give them two names", p.Sites[0].Name)
	}
	for _, s := range p.Sites {
		if s.Name == authority {
			return fmt.Errorf("a site is called %q: that is the folder of the certificates' authority, whose key no site may have", s.Name)
		}
	}
	return nil
}

// CheckAddresses finds mistakes of the sites' addresses.
func (p *Plan) CheckAddresses() error {
	if p.Sites[0].Address == "" && p.Sites[1].Address == "" {
		return errors.New("neither site can be reached by the other: one needs an address to which the other can connect")
	}
	return nil
}

// CheckLoss finds mistakes of Loss.
func (p *Plan) CheckLoss() error {
	if !slices.Contains(Losses, p.Loss) {
		return fmt.Errorf("%q may be lost: choose %s", p.Loss, strings.Join(Losses, ", "))
	}
	return nil
}

// CheckNetworks finds mistakes of the sites' networks.
func (p *Plan) CheckNetworks() error {
	for _, a := range p.Sites[0].Networks {
		for _, b := range p.Sites[1].Networks {
			if a.Overlaps(b) {
				return fmt.Errorf("networks %v of %s and %v of %s overlap: each address must be at one site", a, p.Sites[0].Name, b, p.Sites[1].Name)
			}
		}
	}
	return nil
}

// CheckJobs finds mistakes of the jobs' networks that would leave no connection to a job: one has a network at each
// site.
func (p *Plan) CheckJobs() error {
	for i, j := range p.Jobs {
		if slices.ContainsFunc(p.Jobs[:i], func(o Job) bool { return o.Name == j.Name }) {
			return fmt.Errorf("two jobs are called %q: give them two names", j.Name)
		}
		for _, before := range p.Jobs[:i] {
			outside := func(n netip.Prefix) bool {
				return !slices.ContainsFunc(before.Networks, func(b netip.Prefix) bool { return b.Bits() <= n.Bits() && b.Contains(n.Addr()) })
			}
			if len(before.Networks) == 0 || len(j.Networks) > 0 && !slices.ContainsFunc(j.Networks, outside) {
				remedy := "give it before " + before.Name
				if len(j.Networks) == 0 {
					remedy = "name its networks, and " + remedy
				}
				return fmt.Errorf("job %s would have no connection, since job %s before it takes them all: %s", j.Name, before.Name, remedy)
			}
		}
		if len(j.Networks) == 0 {
			continue
		}
		for _, s := range p.Sites {
			if !slices.ContainsFunc(j.Networks, func(n netip.Prefix) bool { return slices.ContainsFunc(s.Networks, n.Overlaps) }) {
				return fmt.Errorf("job %s has no host at %s: name a network within %s", j.Name, s.Name, list(s.Networks, "%v"))
			}
		}
	}
	return nil
}

// configuration is the file of site i.
func (p *Plan) configuration(i int) string {
	own, peer := p.Sites[i], p.Sites[1-i]
	var b strings.Builder
	fmt.Fprintf(&b, "# Site %s, as gradproxy init made it; docs/configuration.md has all keys. After a change: gradproxy check %s\nsite: %[1]s\n", own.Name, ConfigName)
	if listen := own.listen(); listen != "" {
		fmt.Fprintf(&b, "tunnel: {listen: %q}\n", listen)
	}
	dial := ""
	if peer.Address != "" {
		dial = fmt.Sprintf("dial: %q, ", withPort(peer.Address))
	}
	fmt.Fprintf(&b, "peers:\n  # networks: the hosts behind %[1]s. may_dial: the addresses here that %[1]s may reach.\n  - {name: %[1]s, %[2]snetworks: [%[3]s], may_dial: [%[4]s]}\n",
		peer.Name, dial, list(peer.Networks, "%v"), list(own.Networks, "%v:1024-65535"))
	fmt.Fprintf(&b, `# Rules of nf_tables take the connections that programs of this host make to these networks. On a gateway write: {mode: redirect, gateway: true}
intercept: {mode: redirect}
# By this socket an upgrade puts a new process in place of the old one, and no connection is lost.
upgrade: {socket: /run/gradproxy/%s.upgrade}
# Metrics and pages, without a password: keep them on loopback.
admin: "127.0.0.1:9090"
`, own.Name)
	b.WriteString(p.policy())
	return b.String()
}

// policy is the part about jobs and loss, alike at both sites.
func (p *Plan) policy() string {
	jobs := p.Jobs
	switch {
	case p.Loss == "nothing" && len(jobs) == 0:
		return "# Every byte that arrives is the byte that was sent. docs/loss.md says how to save more.\n"
	case len(jobs) == 0:
		jobs = []Job{{Name: "training"}}
	}
	aggregates := ""
	if p.Loss == "sums" {
		aggregates = ", aggregates: lossy"
	}
	var named, rules strings.Builder
	for _, j := range jobs {
		networks := j.Networks
		if len(networks) == 0 {
			networks = slices.Concat(p.Sites[0].Networks, p.Sites[1].Networks)
		}
		fmt.Fprintf(&named, "  - {name: %s, networks: [%s]%s}\n", j.Name, list(networks, "%v"), aggregates)
		fmt.Fprintf(&rules, "  - {job: %[1]s, role: gradient, max_bytes: 4KiB, codec: verbatim}\n  - {job: %[1]s, role: gradient, codec: int4}\n", j.Name)
		if p.Loss == "sums" {
			fmt.Fprintf(&rules, "  - {job: %s, role: aggregate, codec: int8}\n", j.Name)
		}
	}
	if p.Loss == "nothing" {
		return "# Every byte that arrives is the byte that was sent. docs/loss.md says how to save more.\njobs:\n" + named.String()
	}
	return "# Gradients lose something where the wire or the job's own process proves them, and the loss of one step is added to the next: docs/loss.md\njobs:\n" + named.String() +
		"policy:\n" + rules.String() + "state: {dir: /var/lib/gradproxy}\n"
}

// listen is the address of the site's tunnel, unless it is the default.
func (s *Site) listen() string {
	if s.Address == "" {
		return "off"
	}
	if _, port, _ := net.SplitHostPort(withPort(s.Address)); port != tunnelPort {
		return "[::]:" + port
	}
	return ""
}

// withPort returns an address with the tunnel's port, unless it has one.
func withPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), tunnelPort)
}

// list writes networks as a list of YAML.
func list(networks []netip.Prefix, format string) string {
	var all []string
	for _, n := range networks {
		text := n.String()
		if n.Addr().Is6() && format != "%v" {
			text = fmt.Sprintf("[%v]/%d", n.Addr(), n.Bits())
		}
		all = append(all, fmt.Sprintf("%q", strings.Replace(format, "%v", text, 1)))
	}
	return strings.Join(all, ", ")
}

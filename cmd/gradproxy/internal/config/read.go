package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/otlp"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/strict"
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy"
)

// maxFile bounds a file, in bytes: a configuration has a few kilobytes.
const maxFile = 1 << 20

// Known lists the names that a configuration may use.
type Known struct {
	Codec     func(text string) (codecs.Codec, error)
	Protocols []string
	// Exec says that the file is for gradproxy exec, which takes its command's connections, whatever intercept.mode
	// says.
	Exec bool
}

// Load reads and checks a file. Problems are all that was found, in the order of the lines; the Config may be used only
// if none of them is an error.
func Load(file string, known Known) (*Config, Problems) {
	text, err := readFile(file)
	if err != nil {
		return nil, Problems{{File: file, Message: err.Error()}}
	}
	return parse(file, text, known)
}

func readFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there is no such file: name the configuration with -c")
	case err == nil && info.IsDir():
		return nil, errors.New("it is a folder: name the file in it with -c")
	case err == nil && info.Size() > maxFile:
		return nil, fmt.Errorf("it has %d bytes, more than any configuration: name the right file with -c", info.Size())
	}
	text, err := strict.ReadFile(file, maxFile)
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return nil, fmt.Errorf("it cannot be read: %w", path.Err)
	}
	return text, err
}

// parse reads and checks text as the content of file, which it does not open.
func parse(file string, text []byte, known Known) (*Config, Problems) {
	d := &document{strict.Document{File: file, Begin: "site: NAME"}}
	c := defaults(file)
	if root := d.Parse(text); root != nil {
		d.config(c)(root, "")
		if known.Exec {
			c.Intercept.Mode, c.Intercept.Gateway, c.Intercept.Cgroup = ModeCgroup, false, ""
			c.Upgrade.Socket = "" // the proxy ends with the command
		}
		c.complete(filepath.Dir(file))
		c.check(&d.Problems, known)
	}
	slices.SortStableFunc(d.Problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return c, d.Problems
}

// complete fills in the defaults that depend on the site's name, and makes paths relative to the file's folder.
func (c *Config) complete(dir string) {
	for _, f := range []struct {
		path    *string
		missing string
	}{{&c.Tunnel.Cert, c.Site + ".pem"}, {&c.Tunnel.Key, c.Site + ".key"}, {&c.Tunnel.CA, "ca.pem"}} {
		*f.path = cmp.Or(*f.path, f.missing)
		if !filepath.IsAbs(*f.path) {
			*f.path = filepath.Join(dir, *f.path)
		}
	}
	for _, path := range []*string{&c.Tunnel.CRL, &c.State.Dir, &c.Upgrade.Socket} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
}

func (d *document) config(c *Config) reader {
	fields := map[string]reader{
		"site":          value(d, &c.Site, parseName),
		"tunnel":        d.tunnel(&c.Tunnel),
		"peers":         items(d, &c.Peers, d.peer),
		"intercept":     d.intercept(&c.Intercept),
		"forward":       items(d, &c.Forward, d.forward),
		"jobs":          items(d, &c.Jobs, d.job),
		"policy":        items(d, &c.Policy, d.rule),
		"shadow":        values(d, &c.Shadow, parseText),
		"state":         d.state(&c.State),
		"upgrade":       d.upgrade(&c.Upgrade),
		"admin":         value(d, &c.Admin, parseAdmin),
		"otlp":          value(d, &c.OTLP, otlp.ParseEndpoint),
		"memory":        value(d, &c.Memory, parseSize),
		"references":    value(d, &c.References, parseSize),
		"drain":         value(d, &c.Drain, parseDuration),
		"refused_retry": value(d, &c.RefusedRetry, parseDuration),
	}
	c.lines = map[string]int{}
	for key, read := range fields {
		fields[key] = func(n ast.Node, where string) {
			c.lines[key] = lineOf(n)
			read(n, where)
		}
	}
	return d.object(fields)
}

func (d *document) tunnel(t *Tunnel) reader {
	return d.at(&t.line, d.object(map[string]reader{
		"listen":     value(d, &t.Listen, parseListen),
		"cert":       value(d, &t.Cert, parseText),
		"key":        value(d, &t.Key, parseText),
		"ca":         value(d, &t.CA, parseText),
		"crl":        value(d, &t.CRL, parseText),
		"resume":     value(d, &t.Resume, parseDuration),
		"carrier":    value(d, &t.Carrier, parseText),
		"carriers":   value(d, &t.Carriers, parseCount),
		"congestion": value(d, &t.Congestion, parseText),
		"memory":     noted(&t.sets, value(d, &t.Memory, parseSize)),
		"pad":        value(d, &t.Pad, parseSize),
		"insecure":   value(d, &t.Insecure, parseBool),
	}))
}

func (d *document) peer(p *Peer) reader {
	return d.at(&p.line, d.object(map[string]reader{
		"name":     value(d, &p.Name, parseName),
		"dial":     value(d, &p.Dial, parseDial),
		"id":       value(d, &p.ID, parseID),
		"networks": values(d, &p.Networks, parseNetwork),
		"may_dial": values(d, &p.MayDial, proxy.ParseDialRule),
		"price":    d.price(&p.Price),
		"budget":   d.budget(&p.Budget),
	}))
}

func (d *document) budget(b *Budget) reader {
	return d.at(&b.line, d.object(map[string]reader{
		"gb_per_day": value(d, &b.GBPerDay, parseBudget),
		"then":       values(d, &b.Then, parseText),
	}))
}

func (d *document) price(p *Price) reader {
	return d.at(&p.line, d.object(map[string]reader{
		"egress_per_gb": value(d, &p.EgressPerGB, parsePrice),
		"currency":      value(d, &p.Currency, parseCurrency),
	}))
}

func (d *document) intercept(i *Intercept) reader {
	return d.at(&i.line, d.object(map[string]reader{
		"mode":     d.oneOf(func(k int) { i.Mode = Mode(k) }, Off, "redirect", "tproxy", "cgroup"),
		"ports":    value(d, &i.Ports, parsePorts),
		"on_death": noted(&i.dies, d.oneOf(func(k int) { i.Refuse, i.Hold = k < 2, k == 0 }, "hold", "refuse", "direct")),
		"on_first": d.oneOf(func(k int) { i.DirectFirst = k == 1 }, "hold", "direct"),
		"gateway":  value(d, &i.Gateway, parseBool),
		"cgroup":   value(d, &i.Cgroup, parseText),
		"probes":   value(d, &i.Probes, parseBool),
	}))
}

func (d *document) forward(f *Forward) reader {
	return d.at(&f.line, d.object(map[string]reader{
		"listen": value(d, &f.Listen, parseAddrPort),
		"target": value(d, &f.Target, parseAddrPort),
		"direct": value(d, &f.Direct, parseBool),
	}))
}

func (d *document) job(j *Job) reader {
	return d.at(&j.line, d.object(map[string]reader{
		"name":       value(d, &j.Name, parseName),
		"networks":   values(d, &j.Networks, parseNetwork),
		"ranks":      value(d, &j.Ranks, parseCount),
		"sums":       d.oneOf(func(k int) { j.Sums = parser.Sums(k) }, parser.SumsNames()...),
		"aggregates": d.oneOf(func(k int) { j.LossyAggregates = k == 1 }, "lossless", "lossy"),
		"budget":     d.budget(&j.Budget),
	}))
}

func (d *document) rule(r *Rule) reader {
	feedback := true
	return d.at(&r.line, func(n ast.Node, where string) {
		d.object(map[string]reader{
			"job":         value(d, &r.Job, parseName),
			"protocol":    value(d, &r.Protocol, parseText),
			"direction":   d.oneOf(func(k int) { r.Direction = directions[k] }, directions[:]...),
			"role":        values(d, &r.Roles, parseRole),
			"dtype":       values(d, &r.DTypes, parseDType),
			"min_bytes":   value(d, &r.MinBytes, parseSize),
			"max_bytes":   value(d, &r.MaxBytes, parseSize),
			"codec":       value(d, &r.Codec, parseText),
			"feedback":    value(d, &feedback, parseBool),
			"flush_every": value(d, &r.FlushEvery, parseCount),
		})(n, where)
		r.NoFeedback = !feedback
	})
}

func (d *document) state(s *State) reader {
	return d.at(&s.line, d.object(map[string]reader{
		"dir":    value(d, &s.Dir, parseText),
		"memory": noted(&s.sets, value(d, &s.Memory, parseSize)),
	}))
}

func (d *document) upgrade(u *Upgrade) reader {
	return d.at(&u.line, d.object(map[string]reader{
		"socket": value(d, &u.Socket, parseText),
		"within": value(d, &u.Within, parseDuration),
		"late":   d.oneOf(func(k int) { u.Reset = k == 1 }, "wait", "reset"),
	}))
}

// noted sets seen where read is called: the file has the key.
func noted(seen *bool, read reader) reader {
	return func(n ast.Node, where string) {
		*seen = true
		read(n, where)
	}
}

package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/strict"
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// directions of rules, as package policy names them.
var directions = [...]string{policy.FromClient.String(), policy.FromServer.String()}

// A checker compares the parts of a configuration with each other.
type checker struct {
	*Config
	known    Known
	unread   Problems // values that could not be read: they are not reported as missing
	problems *Problems
}

// check finds errors that no single value shows.
func (c *Config) check(problems *Problems, known Known) {
	k := &checker{c, known, slices.Clone(*problems), problems}
	k.site()
	k.tunnel()
	k.peers()
	k.interception()
	k.upgrade()
	k.jobs()
	k.policy()
	k.shadow()
	k.budgets()
	k.admin()
	k.ports()
}

func (k *checker) errorf(line int, where, format string, args ...any) {
	k.add(Problem{File: k.File, Line: line, Where: where, Message: fmt.Sprintf(format, args...)})
}

func (k *checker) warnf(line int, where, format string, args ...any) {
	k.add(Problem{File: k.File, Line: line, Where: where, Message: fmt.Sprintf(format, args...), Warning: true})
}

// add notes a problem, unless a value at its place could not be read.
func (k *checker) add(p Problem) {
	if !k.failed(p.Where) {
		*k.problems = append(*k.problems, p)
	}
}

// failed reports whether a value at a place, below it, or around it could not be read.
func (k *checker) failed(where string) bool {
	return slices.ContainsFunc(k.unread, func(u Problem) bool { return within(u.Where, where) || within(where, u.Where) })
}

// within reports whether a place is another, or lies in it.
func within(place, other string) bool {
	rest, ok := strings.CutPrefix(place, other)
	return ok && (rest == "" || rest[0] == '[' || rest[0] == '.')
}

func (k *checker) site() {
	if k.Site == "" {
		k.errorf(0, "site", "it is missing: name this site, such as site: paris")
	}
	if k.Memory < 1<<20 {
		k.errorf(k.lines["memory"], "memory", "%d bytes are too few: give at least 1MiB", k.Memory)
	}
	if k.References != 0 && (k.References < 1<<20 || k.References > 1<<40) {
		k.errorf(k.lines["references"], "references", "%d bytes are not possible: give 1MiB to 1024GiB, or 0 to share no values", k.References)
	}
	if k.State.Memory < 1<<20 {
		k.errorf(k.State.line, "state.memory", "%d bytes are too few: give at least 1MiB", k.State.Memory)
	}
}

// maxSocket is the maximum of bytes of a unix socket's path: sun_path of unix(7), less the zero and ".new".
const maxSocket = 107 - len(".new")

// upgradeMargin is how long a change of processes may take beside upgrade.within.
const upgradeMargin = 10 * time.Second

func (k *checker) upgrade() {
	u := &k.Upgrade
	switch {
	case len(u.Socket) > maxSocket:
		k.errorf(u.line, "upgrade.socket", "%s has %d bytes, and the path of a socket at most %d: name a shorter one", u.Socket, len(u.Socket), maxSocket)
	case u.Socket != "" && k.Intercept.Mode == ModeCgroup:
		k.errorf(u.line, "upgrade.socket", "connections of a cgroup belong to the process that has redirected them: leave it out, or use intercept.mode redirect")
	case u.Socket != "" && u.Within < time.Second:
		k.errorf(u.line, "upgrade.within", "%v is too short for connections to come to rest: give at least 1s", u.Within)
	case u.Socket != "" && u.Within+upgradeMargin >= k.Tunnel.Resume:
		k.errorf(u.line, "upgrade.within", "%v is too long: peers wait for connections at rest for tunnel.resume, %v, and a change of processes takes up to %v more; shorten it, or raise tunnel.resume", u.Within, k.Tunnel.Resume, upgradeMargin)
	}
}

func (k *checker) tunnel() {
	t := &k.Tunnel
	if t.Carriers < 1 || t.Carriers > 16 {
		k.errorf(t.line, "tunnel.carriers", "%d carriers are not possible: choose 1 to 16", t.Carriers)
	}
	switch t.Carrier {
	case "", tunnel.CarrierTLS:
	case tunnel.CarrierDTLS, tunnel.CarrierAuto:
		if t.Insecure {
			k.errorf(t.line, "tunnel.insecure", "it is for carrier tls: leave it or carrier %s out", t.Carrier)
		}
		if t.Carrier == tunnel.CarrierDTLS && t.Congestion != "" && t.Congestion != "auto" {
			k.warnf(t.line, "tunnel.congestion", "carrier dtls has a control of its own: %q is of no use", t.Congestion)
		}
	default:
		k.errorf(t.line, "tunnel.carrier", "%q is no carrier: choose tls, dtls or auto", t.Carrier)
	}
	if t.Resume < time.Second {
		k.errorf(t.line, "tunnel.resume", "%v is too short to resume anything: give at least 1s", t.Resume)
	}
	if t.Memory < 16<<20 {
		k.errorf(t.line, "tunnel.memory", "%d bytes are too few: give at least 16MiB", t.Memory)
	}
	if t.Pad != 0 && (t.Pad < 1<<10 || t.Pad > 256<<10) {
		k.errorf(t.line, "tunnel.pad", "%d bytes are not possible: give 1KiB to 256KiB, or 0 for no padding", t.Pad)
	}
	if t.Insecure {
		k.insecure()
	}
	if t.Congestion != "" && !slices.Contains(congestions, t.Congestion) {
		k.warnf(t.line, "tunnel.congestion", "%q is none of Linux's own: if the kernel has none of that name it uses its default; choose auto, bbr, cubic or default", t.Congestion)
	}
	if t.Listen == Off && !slices.ContainsFunc(k.Peers, func(p Peer) bool { return p.Dial != "" }) {
		k.errorf(t.line, "tunnel.listen", "it is off and no peer has dial: no tunnel can come up; give one of them an address")
	}
}

// congestions lists the values of tunnel.congestion: two of gradproxy's, and the controls in Linux's net/ipv4.
var congestions = []string{"auto", "default", "bbr", "bic", "cdg", "cubic", "dctcp", "highspeed", "htcp", "hybla", "illinois", "lp", "nv", "reno", "scalable",
	"vegas", "veno", "westwood", "yeah"}

// insecure refuses addresses on which the tunnel would refuse each carrier.
func (k *checker) insecure() {
	t := &k.Tunnel
	k.warnf(t.line, "tunnel.insecure", "everything crosses the tunnel in clear; it works on loopback only, for experiments")
	if l := listenOn("", 0, t.Listen); t.Listen != Off && (l.every || l.ip.IsValid() && !l.ip.IsLoopback()) {
		k.errorf(t.line, "tunnel.listen", "%s is open to the network, and insecure works on loopback only: listen on 127.0.0.1, or leave insecure out", t.Listen)
	}
	for i, p := range k.Peers {
		if a, err := netip.ParseAddrPort(p.Dial); err == nil && !a.Addr().Unmap().IsLoopback() {
			k.errorf(p.line, fmt.Sprintf("peers[%d].dial", i), "%s is not on loopback, and tunnel.insecure works there only: leave insecure out", p.Dial)
		}
	}
}

func (k *checker) peers() {
	if len(k.Peers) == 0 {
		k.errorf(k.lines["peers"], "peers", "there is none: name at least one other site, with the networks behind it")
	}
	for i, p := range k.Peers {
		where := fmt.Sprintf("peers[%d]", i)
		if p.Name == "" {
			k.errorf(p.line, where+".name", "it is missing: name the site, as in its certificate")
		} else if p.Name == k.Site {
			k.errorf(p.line, where+".name", "%s is this site itself: list only the others", p.Name)
		}
		if len(p.Networks) == 0 && !k.failed(where+".networks") {
			k.warnf(p.line, where+".networks", "there is none: nothing is sent to %s; it may still send here", p.called())
		}
		if len(p.MayDial) == 0 && !k.failed(where+".may_dial") {
			k.warnf(p.line, where+".may_dial", "there is none: every connection from %s is refused; allow destinations here, such as \"10.1.0.0/16:1024-65535\"", p.called())
		}
		k.mayDial(where, &p)
		k.price(where+".price", &p.Price)
		if a, err := netip.ParseAddrPort(p.Dial); err == nil && k.itself(a) != "" {
			k.errorf(p.line, where+".dial", "%s is this proxy itself, %s: give the address of %s, or leave dial out if it dials this site", p.Dial, k.itself(a), p.Name)
		}
		for j := range i {
			k.pair(where, &k.Peers[j], &k.Peers[i])
		}
	}
}

// price finds a price that lacks a part.
func (k *checker) price(where string, p *Price) {
	if p.line == 0 || k.failed(where) {
		return
	}
	if p.EgressPerGB == 0 && !k.failed(where+".egress_per_gb") {
		k.errorf(p.line, where+".egress_per_gb", "it is missing: give the price of a gigabyte to this peer, such as 0.09")
	}
	if p.Currency == "" && !k.failed(where+".currency") {
		k.errorf(p.line, where+".currency", "it is missing: name the currency of the price, such as USD")
	}
}

// called returns the peer's name as messages have it.
func (p *Peer) called() string { return cmp.Or(p.Name, "this peer") }

// mayDial finds destinations of a peer that lie behind a peer themselves.
func (k *checker) mayDial(where string, p *Peer) {
	for j, r := range p.MayDial {
		for i := range k.Peers {
			o := &k.Peers[i]
			if n := slices.IndexFunc(o.Networks, r.Network.Overlaps); n >= 0 {
				k.warnf(p.line, fmt.Sprintf("%s.may_dial[%d]", where, j), "%v reaches %v behind %s: such a server is dialled from here, in the clear and through no tunnel; name this site's networks only", r, o.Networks[n], o.Name)
				break
			}
		}
	}
}

// pair compares two peers.
func (k *checker) pair(where string, a, b *Peer) {
	if a.Name == b.Name && a.Name != "" {
		k.errorf(b.line, where+".name", "%s is named twice, also in line %d: each peer has one entry", b.Name, a.line)
	}
	if a.ID == b.ID && a.ID != "" {
		k.errorf(b.line, where+".id", "%s is also that of %s in line %d: each site has its own certificate", b.ID, a.Name, a.line)
	}
	for j, n := range b.Networks {
		for _, m := range a.Networks {
			if n.Overlaps(m) {
				k.errorf(b.line, fmt.Sprintf("%s.networks[%d]", where, j), "%v overlaps %v of %s in line %d: a destination lies behind one peer; split the larger network", n, m, a.Name, a.line)
			}
		}
	}
}

// behind reports whether a destination lies behind a peer.
func (k *checker) behind(a netip.Addr) bool {
	return slices.ContainsFunc(k.Networks(), func(n netip.Prefix) bool { return n.Contains(a) })
}

func (k *checker) interception() {
	i := &k.Intercept
	if i.Mode != ModeOff {
		if len(k.Networks()) == 0 {
			k.errorf(i.line, "peers", "none has networks, so that intercept.mode has nothing to redirect: give one a network")
		}
		for _, n := range k.Networks() {
			if a := n.Addr(); a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
				k.errorf(i.line, "intercept.mode", "connections to %v cannot be redirected: use forward, or give the peer other networks", n)
			}
		}
	}
	if i.Mode == ModeOff && (i.dies && i.Refuse || i.Gateway) {
		k.warnf(i.line, "intercept", "on_death and gateway mean nothing without mode: redirect")
	}
	if i.Mode == ModeTProxy && i.Gateway {
		k.warnf(i.line, "intercept.gateway", "it means nothing with mode: tproxy, which takes only connections of other hosts anyway")
	}
	if i.Mode == ModeCgroup {
		switch {
		case i.Cgroup == "" && !k.known.Exec:
			k.errorf(i.line, "intercept.cgroup", "it is missing: name the folder of the cgroup, such as /sys/fs/cgroup/training.slice")
		case i.Gateway:
			k.warnf(i.line, "intercept.gateway", "it means nothing with mode: cgroup, which takes connections of this host only")
		}
	} else if i.Cgroup != "" {
		k.warnf(i.line, "intercept.cgroup", "it means nothing without mode: cgroup")
	}
	for n, f := range k.Forward {
		where := fmt.Sprintf("forward[%d]", n)
		switch {
		case !f.Listen.IsValid():
			k.errorf(f.line, where+".listen", "it is missing: give the address to which the job connects, such as 127.0.0.1:9000")
		case !f.Target.IsValid():
			k.errorf(f.line, where+".target", "it is missing: give the address of the server behind the peer")
		case f.Target.Addr().Zone() != "" || f.Target.Addr().IsLinkLocalUnicast():
			k.errorf(f.line, where+".target", "%v is a link-local address, which is not dialled: give another of the server's", f.Target)
		case f.Direct && k.behind(f.Target.Addr()):
			k.errorf(f.line, where+".direct", "%v is behind a peer, and goes through its tunnel: leave direct out", f.Target)
		case f.Direct && k.itself(f.Target) != "":
			k.errorf(f.line, where+".target", "%v is this proxy itself, %s: connections would come back for ever; give the address of the server", f.Target, k.itself(f.Target))
		case !f.Direct && !k.behind(f.Target.Addr()) && !k.failed("peers"):
			k.errorf(f.line, where+".target", "%v is behind no peer: add its network to one, or write direct: true to pass bytes on from here as they are", f.Target)
		}
	}
	if i.Mode == ModeOff && len(k.Forward) == 0 && k.lines["intercept"] == 0 {
		k.warnf(0, "intercept", "nothing is intercepted here: this site only serves its peers; set intercept: {mode: redirect}, or forward")
	}
}

func (k *checker) jobs() {
	for i, j := range k.Jobs {
		where := fmt.Sprintf("jobs[%d]", i)
		if j.Name == "" {
			k.errorf(j.line, where+".name", "it is missing: rules and metrics call the job by it")
		}
		if len(j.Networks) == 0 {
			k.errorf(j.line, where+".networks", "there is none: name the networks of the job's hosts, at all sites")
		}
		if j.Ranks == 1 {
			k.errorf(j.line, where+".ranks", "a job of one rank has no connections: give the number of processes, or leave it out")
		}
		if j.LossyAggregates && j.Sums == parser.SumsNone {
			k.errorf(j.line, where+".aggregates", "lossy contradicts sums: none, by which sums lose nothing: leave one of both out")
		} else if j.LossyAggregates {
			k.warnf(j.line, where+".aggregates", "lossy: the replicas' weights will differ, with int8 by about 0.001 of their norm, with int4 by 0.01, with Adam by 0.05 to 0.2; docs/loss.md says when that does no harm")
		}
		if j.Sums == parser.SumsProved && k.Intercept.Mode == ModeTProxy && slices.ContainsFunc(k.Policy, func(r Rule) bool { return k.losesSumsOf(&r, &j) }) {
			k.warnf(j.line, where+".sums", "proved: with mode: tproxy the job's processes are on other hosts, where their collectives are not seen, so its rings lose nothing; run gradproxy on the job's own hosts, or set sums: gradients if they sum nothing else")
		}
		for m := range i {
			o := &k.Jobs[m]
			if o.Name == j.Name && j.Name != "" {
				k.errorf(j.line, where+".name", "%s is named twice, also in line %d", j.Name, o.line)
			} else if len(j.Networks) > 0 && covers(o.Networks, j.Networks) {
				k.warnf(j.line, where+".networks", "they lie inside the networks of %s in line %d, which comes first: put this job before it", o.Name, o.line)
			}
		}
	}
}

// covers reports whether each network of inner lies inside one of outer.
func covers(outer, inner []netip.Prefix) bool {
	return !slices.ContainsFunc(inner, func(n netip.Prefix) bool {
		return !slices.ContainsFunc(outer, func(o netip.Prefix) bool { return o.Bits() <= n.Bits() && o.Contains(n.Addr()) })
	})
}

func (k *checker) policy() {
	for i := range k.Policy {
		r, where := &k.Policy[i], fmt.Sprintf("policy[%d]", i)
		k.rule(i, where)
		for j := range i {
			if before := &k.Policy[j]; before.takes(r) {
				k.warnf(r.line, where, "it never matches: the rule in line %d takes all that it would", before.line)
				break
			}
		}
	}
}

func (k *checker) rule(i int, where string) {
	r := &k.Policy[i]
	if r.MaxBytes > 0 && r.MinBytes > r.MaxBytes {
		k.errorf(r.line, where+".min_bytes", "%d is more than max_bytes, %d: nothing has such a size", r.MinBytes, r.MaxBytes)
	}
	if r.Protocol != "" && !slices.Contains(k.known.Protocols, r.Protocol) {
		k.errorf(r.line, where+".protocol", "%q is not a protocol: there are %s", r.Protocol, strings.Join(k.known.Protocols, ", "))
	}
	if r.Job != "" && k.job(r.Job) == nil {
		k.errorf(r.line, where+".job", "there is no job %s: add it to jobs, or correct the name", r.Job)
	}
	if r.Codec == "" {
		k.errorf(r.line, where+".codec", "it is missing: name a codec, such as lossless, or verbatim for none")
		return
	}
	if r.Codec == policy.Verbatim {
		k.flush(r, where, nil)
		return
	}
	codec, err := k.known.Codec(r.Codec)
	if err == nil {
		err = policy.Check(codec)
	}
	if err != nil {
		k.errorf(r.line, where+".codec", "%s", strings.TrimPrefix(strict.OneLine(err.Error()), "codecs: bad codec text "))
		return
	}
	if !slices.ContainsFunc(r.dtypes(), taker(codec)) {
		k.errorf(r.line, where+".codec", "%s takes %s, and nothing that this rule matches is of such a type: use lossless, or name other roles or types", r.Codec, typesOf(codec))
		return
	}
	k.flush(r, where, codec)
	if codecs.Lossy(codec) {
		k.lossy(i, where, codec)
	}
}

func (k *checker) job(name string) *Job {
	i := slices.IndexFunc(k.Jobs, func(j Job) bool { return j.Name == name })
	if i < 0 {
		return nil
	}
	return &k.Jobs[i]
}

// dtypes lists the types of elements that r can match. Elements that are no floating-point numbers are proved to be no
// gradient, no aggregate and no state.
func (r *Rule) dtypes() []tensor.DType {
	list := slices.Clone(r.DTypes)
	if len(list) == 0 {
		list = append(tensor.DTypes(), tensor.NoDType)
	}
	if len(r.Roles) == 0 || slices.Contains(r.Roles, tensor.Exact) || slices.Contains(r.Roles, tensor.Unknown) {
		return list
	}
	return slices.DeleteFunc(list, func(d tensor.DType) bool { return d != tensor.NoDType && !d.Float() })
}

// taker returns a function that reports whether codec takes elements of a type.
func taker(codec codecs.Codec) func(tensor.DType) bool {
	return func(d tensor.DType) bool {
		_, err := codec.NewEncoder(d, 1)
		return !errors.Is(err, codecs.ErrUnsuited)
	}
}

// typesOf lists the types that codec takes.
func typesOf(codec codecs.Codec) string {
	var list []string
	for _, d := range tensor.DTypes() {
		if taker(codec)(d) {
			list = append(list, d.String())
		}
	}
	return strings.Join(list, ", ")
}

// takes reports whether r matches all that o matches.
func (r *Rule) takes(o *Rule) bool {
	return (r.Job == "" || r.Job == o.Job) &&
		(r.Protocol == "" || r.Protocol == o.Protocol) &&
		(r.Direction == "" || r.Direction == o.Direction) &&
		holds(r.Roles, o.Roles) && holds(r.DTypes, o.DTypes) &&
		r.MinBytes <= o.MinBytes && (r.MaxBytes == 0 || o.MaxBytes != 0 && o.MaxBytes <= r.MaxBytes)
}

// holds reports whether the list outer, in which none stands for all, has everything of inner.
func holds[T comparable](outer, inner []T) bool {
	if len(outer) == 0 {
		return true
	}
	return len(inner) > 0 && !slices.ContainsFunc(inner, func(v T) bool { return !slices.Contains(outer, v) })
}

func (k *checker) admin() {
	if k.Admin == Off || strings.HasPrefix(k.Admin, "unix:") {
		return
	}
	host, _, _ := net.SplitHostPort(k.Admin)
	if a, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !a.IsLoopback()) {
		k.warnf(k.lines["admin"], "admin", "%s is open to the network without authentication: use 127.0.0.1 or a unix: socket unless a firewall guards it", k.Admin)
	}
}

package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/intercept"
	"github.com/gradproxy/gradproxy/tensor"
)

func known() Known {
	return Known{Protocols: []string{"gloo", "pslite", "flower", "nvflare"}, Codec: all.New}
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func rules(texts ...string) []proxy.DialRule {
	var out []proxy.DialRule
	for _, t := range texts {
		r, err := proxy.ParseDialRule(t)
		if err != nil {
			panic(err)
		}
		out = append(out, r)
	}
	return out
}

// Every key there is, with a value unlike its default.
func TestWholeFile(t *testing.T) {
	got, problems := Load("testdata/paris.yaml", known())
	if len(problems.Errors()) > 0 || len(problems) != 1 { // that replicas will differ
		t.Fatalf("problems:\n%v", problems)
	}
	got.lines = nil
	want := &Config{
		File: "testdata/paris.yaml",
		Site: "paris",
		Tunnel: Tunnel{Listen: "[::]:7443", Cert: "testdata/pki/paris.pem", Key: "/etc/gradproxy/paris.key", CA: "testdata/ca.pem",
			Resume: 5 * time.Minute, Carriers: 4, Congestion: "bbr", Memory: 1 << 30, line: 3, sets: true},
		Peers: []Peer{
			{Name: "tokyo", Dial: "tokyo.example:7443", ID: "spiffe://lab/tokyo", Networks: prefixes("10.2.0.0/16", "2001:db8:2::/48"),
				MayDial: rules("10.1.0.0/16:1024-65535", "[2001:db8:1::]/48:29500"), Price: Price{EgressPerGB: 0.09, Currency: "USD", line: 10}, line: 5},
			{Name: "virginia", Networks: prefixes("10.3.0.0/16"), MayDial: rules("10.1.0.0/16:1024-65535"), line: 11},
		},
		Intercept: Intercept{Mode: ModeRedirect, Ports: intercept.Ports{First: 1024, Last: 65535}, Probes: true, Refuse: true, DirectFirst: true, Gateway: true, line: 12, dies: true},
		Forward:   []Forward{{netip.MustParseAddrPort("127.0.0.1:9000"), netip.MustParseAddrPort("10.2.0.5:9000"), false, 14}},
		Jobs:      []Job{{Name: "resnet", Networks: prefixes("10.0.0.0/8"), Ranks: 3, Sums: parser.SumsGradients, LossyAggregates: true, line: 16}},
		Policy: []Rule{
			{Job: "resnet", Roles: []tensor.Role{tensor.Gradient}, MinBytes: 1024, Codec: "int4", line: 18},
			{Job: "resnet", Roles: []tensor.Role{tensor.Aggregate}, Codec: "int4", FlushEvery: 1000, line: 19},
			{Job: "resnet", Roles: []tensor.Role{tensor.State}, Codec: "int8", FlushEvery: 50, line: 20},
			{Protocol: "gloo", Direction: "from_client", Roles: []tensor.Role{tensor.Unknown, tensor.Exact},
				DTypes: []tensor.DType{tensor.Float32, tensor.BFloat16}, MinBytes: 4096, MaxBytes: 1 << 30, Codec: "verbatim", line: 21},
		},
		State:        State{Dir: "testdata/state", Memory: 2 << 30, line: 22, sets: true},
		Upgrade:      Upgrade{Socket: "testdata/paris.upgrade", Within: 45 * time.Second, line: 28},
		Admin:        "unix:/run/gradproxy.sock",
		Memory:       512 << 20,
		References:   64 << 20,
		Drain:        90 * time.Second,
		RefusedRetry: 2 * time.Minute,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// A few lines are a whole configuration.
func TestSmallestFile(t *testing.T) {
	c, problems := parse("/etc/gradproxy/paris.yaml", []byte(`site: paris
peers: [{name: tokyo, dial: "tokyo.example:7443", networks: 10.2.0.0/16, may_dial: "10.1.0.0/16:1024-65535"}]
intercept: {mode: redirect}
`), known())
	if len(problems) > 0 {
		t.Fatalf("problems:\n%v", problems)
	}
	if c.Tunnel.Cert != "/etc/gradproxy/paris.pem" || c.Tunnel.Key != "/etc/gradproxy/paris.key" || c.Tunnel.CA != "/etc/gradproxy/ca.pem" {
		t.Errorf("files of the tunnel: %+v", c.Tunnel)
	}
	if c.Tunnel.Listen != "[::]:7443" || c.Admin != "127.0.0.1:9090" || !c.Intercept.Refuse || !c.Intercept.Hold || c.Drain != 30*time.Second {
		t.Errorf("defaults: %+v", c)
	}
}

func TestListenersMeetDefaults(t *testing.T) {
	_, problems := parse("f", []byte(`site: paris
peers: [{name: tokyo, networks: [10.2.0.0/16], may_dial: ["10.1.0.0/16:1-2"]}]
forward: [{listen: "10.1.0.1:7443", target: "10.2.0.5:1"}, {listen: "127.0.0.1:9090", target: "10.2.0.5:2"}]
`), known())
	want := `f:3: forward[0].listen: 10.1.0.1:7443 is taken by tunnel.listen, [::]:7443 by default: choose another port
f:3: forward[1].listen: 127.0.0.1:9090 is taken by admin, 127.0.0.1:9090 by default: choose another port`
	if got := problems.Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The good file of the tests below; a line of theirs replaces the one that begins like it, or is added.
const good = `site: paris
tunnel: {listen: "[::]:7443"}
peers:
  - {name: tokyo, dial: "tokyo.example:7443", networks: [10.2.0.0/16], may_dial: ["10.1.0.0/16:1024-65535"]}
  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1024-65535"]}
intercept: {mode: redirect}
forward: [{listen: "127.0.0.1:9000", target: "10.2.0.5:9000"}]
jobs: [{name: resnet, networks: [10.0.0.0/8], ranks: 3, sums: gradients}]
policy: [{role: gradient, codec: lossless}]
admin: "127.0.0.1:9090"
`

// A value that cannot be read is not reported as missing too, and a peer without a name gets no message with an empty
// name.
func TestPeersThatCannotBeRead(t *testing.T) {
	for _, peers := range []string{"peers: 5", "peers: [5]", "peers: [{networks: x, may_dial: y}]", "peers: [{dial: tokyo}]"} {
		_, problems := parse("f", []byte("site: paris\n"+peers+"\n"), known())
		for _, p := range problems {
			if text := p.Error(); strings.Contains(text, "  ") || strings.Contains(text, "to ;") || strings.Contains(text, "from is") {
				t.Errorf("%s: %s", peers, text)
			}
		}
		if w := problems.Warnings(); peers != "peers: [{dial: tokyo}]" && strings.Contains(fmt.Sprint(w), "there is none") {
			t.Errorf("%s: %v", peers, w)
		}
	}
}

// Each mistake gives exactly this line, and nothing else.
func TestMistakes(t *testing.T) {
	for _, x := range []struct{ line, want string }{
		{`site: Paris!`, `1: site: "Paris!" is not a name: use lower-case letters, digits, '-', '_' and '.'`},
		{`site: `, `1: site: there is no value: write one, or leave the key out`},
		{`sites: paris`, `11: sites: unknown key: did you mean site?`},
		{`colour: red`, `11: colour: unknown key: its keys are admin, drain, forward, intercept, jobs, memory, otlp, peers, policy, references, refused_retry, shadow, site, state, tunnel, upgrade`},
		{`tunnel: {lisen: "[::]:7443"}`, `2: tunnel.lisen: unknown key: did you mean listen?`},
		{`tunnel: 7443`, `2: tunnel: a mapping is needed: its keys are ca, carrier, carriers, cert, congestion, crl, insecure, key, listen, memory, pad, resume`},
		{`tunnel: {listen: 7443}`, `2: tunnel.listen: "7443" is not an address to listen on: write host:port, such as 0.0.0.0:7443 or "[::]:7443", or off`},
		{`tunnel: {resume: 10}`, `2: tunnel.resume: "10" is not a duration: write it with a unit, such as 500ms, 30s or 10m`},
		{`tunnel: {resume: 10ms}`, `2: tunnel.resume: 10ms is too short to resume anything: give at least 1s`},
		{`tunnel: {carriers: 17}`, `2: tunnel.carriers: 17 carriers are not possible: choose 1 to 16`},
		{`tunnel: {carriers: two}`, `2: tunnel.carriers: "two" is not a count: write a whole number`},
		{`tunnel: {memory: 1.5GiB}`, `2: tunnel.memory: "1.5GiB" is not a size: write a whole number of bytes, or with a unit, such as 64KiB or 1GiB`},
		{`tunnel: {memory: 1MiB}`, `2: tunnel.memory: 1048576 bytes are too few: give at least 16MiB`},
		{`tunnel: {insecure: maybe}`, `2: tunnel.insecure: "maybe" is neither true nor false`},
		{`tunnel: {listen: "127.0.0.1:7443", insecure: true}`, `2: tunnel.insecure: everything crosses the tunnel in clear; it works on loopback only, for experiments`},
		{`tunnel: {insecure: true}`, `2: tunnel.insecure: everything crosses the tunnel in clear; it works on loopback only, for experiments
f:2: tunnel.listen: [::]:7443 is open to the network, and insecure works on loopback only: listen on 127.0.0.1, or leave insecure out`},
		{`tunnel: {congestion: bbrr}`, `2: tunnel.congestion: "bbrr" is none of Linux's own: if the kernel has none of that name it uses its default; choose auto, bbr, cubic or default`},
		{`tunnel: {LISTEN: "[::]:7443"}`, `2: tunnel.LISTEN: unknown key: did you mean listen?`},
		{"\tlisten: 7443", `11: not YAML: the line begins with a tab: indent with spaces`},
		{`  - {name: virginia, networks: [10.3.0.0], may_dial: ["10.1.0.0/16:1-2"]}`, `5: peers[1].networks[0]: "10.3.0.0" is an address, not a network: write 10.3.0.0/32`},
		{`  - {name: virginia, networks: [10.3.0.0/33], may_dial: ["10.1.0.0/16:1-2"]}`, `5: peers[1].networks[0]: "10.3.0.0/33" is not a network: write it as 10.2.0.0/16 or 2001:db8::/48`},
		{`  - {name: virginia, networks: [10.3.0.1/16], may_dial: ["10.1.0.0/16:1-2"]}`, `5: peers[1].networks[0]: "10.3.0.1/16" has bits behind /16: write 10.3.0.0/16`},
		{`  - {name: virginia, networks: ["::ffff:10.3.0.0/112"], may_dial: ["10.1.0.0/16:1-2"]}`, `5: peers[1].networks[0]: "::ffff:10.3.0.0/112" is IPv4 in IPv6's clothes: write it as an IPv4 network`},
		{`  - {name: virginia, networks: [10.2.3.0/24], may_dial: ["10.1.0.0/16:1-2"]}`, `5: peers[1].networks[0]: 10.2.3.0/24 overlaps 10.2.0.0/16 of tokyo in line 4: a destination lies behind one peer; split the larger network`},
		{`  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16"]}`, `5: peers[1].may_dial[0]: bad destination "10.1.0.0/16": no port; write NETWORK:PORT or NETWORK:FIRST-LAST, such as 10.1.0.0/16:1024-65535`},
		{`  - {name: virginia, networks: [10.3.0.0/16]}`, `5: peers[1].may_dial: there is none: every connection from virginia is refused; allow destinations here, such as "10.1.0.0/16:1024-65535"`},
		{`  - {name: virginia, may_dial: ["10.1.0.0/16:1-2"]}`, `5: peers[1].networks: there is none: nothing is sent to virginia; it may still send here`},
		{`  - {name: tokyo, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"]}`, `5: peers[1].name: tokyo is named twice, also in line 4: each peer has one entry`},
		{`  - {name: paris, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"]}`, `5: peers[1].name: paris is this site itself: list only the others`},
		{`  - {networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"]}`, `5: peers[1].name: it is missing: name the site, as in its certificate`},
		{`  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.0.0.0/8:1-2"]}`, `5: peers[1].may_dial[0]: 10.0.0.0/8:1-2 reaches 10.2.0.0/16 behind tokyo: such a server is dialled from here, in the clear and through no tunnel; name this site's networks only`},
		{`  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"], price: {egress_per_gb: free, currency: USD}}`, `5: peers[1].price.egress_per_gb: "free" is not a price: write a number above 0, such as 0.09`},
		{`  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"], price: {egress_per_gb: 0, currency: USD}}`, `5: peers[1].price.egress_per_gb: "0" is not a price: write a number above 0, such as 0.09`},
		{`  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"], price: {egress_per_gb: 2e9, currency: USD}}`, `5: peers[1].price.egress_per_gb: "2e9" is more than 1e9: write the price of a GB (10⁹ bytes), such as 0.09`},
		{`  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"], price: {egress_per_gb: .inf, currency: USD}}`, `5: peers[1].price.egress_per_gb: ".inf" is not a price: write a number above 0, such as 0.09`},
		{`  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"], price: {egress_per_gb: NaN, currency: USD}}`, `5: peers[1].price.egress_per_gb: "NaN" is not a price: write a number above 0, such as 0.09`},
		{`  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"], price: {egress_per_gb: 0.09, currency: usd}}`, `5: peers[1].price.currency: "usd" is not a currency: write its code of three capital letters, such as USD`},
		{`  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"], price: {egress_per_gb: 0.09}}`, `5: peers[1].price.currency: it is missing: name the currency of the price, such as USD`},
		{`  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"], price: {egress_per_gb: 8.5e-2, currency: EUR}}`, ``},
		{`  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"], price: {currency: USD}}`, `5: peers[1].price.egress_per_gb: it is missing: give the price of a gigabyte to this peer, such as 0.09`},
		{`  - {name: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"], price: 0.09}`, `5: peers[1].price: a mapping is needed: its keys are currency, egress_per_gb`},
		{`  - 5`, `5: peers[1]: a mapping is needed: its keys are budget, dial, id, may_dial, name, networks, price`},
		{`  - {name: virginia, dial: "127.0.0.1:7443", networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"]}`, `5: peers[1].dial: 127.0.0.1:7443 is this proxy itself, tunnel.listen: give the address of virginia, or leave dial out if it dials this site`},
		{`  - {name: virginia, dial: ":7443", networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"]}`, `5: peers[1].dial: ":7443" is not an address to dial: write host:port, such as tokyo.example:7443`},
		{`  - {name: virginia, id: virginia, networks: [10.3.0.0/16], may_dial: ["10.1.0.0/16:1-2"]}`, `5: peers[1].id: "virginia" is not a SPIFFE id: write spiffe://DOMAIN/SITE, as gradproxy cert prints it`},
		{`intercept: {mode: socks}`, `6: intercept.mode: "socks" is none of off, redirect, tproxy, cgroup`},
		{`intercept: {mode: redirect, ports: 70000}`, `6: intercept.ports: "70000" is not a range of ports: write FIRST-LAST, such as 1024-65535, or one port`},
		{`intercept: {mode: redirect, ports: 2000-1000}`, `6: intercept.ports: "2000-1000" is not a range of ports: write FIRST-LAST, such as 1024-65535, or one port`},
		{`intercept: {mode: redirect, on_first: wait}`, `6: intercept.on_first: "wait" is none of hold, direct`},
		{`intercept: {mode: redirect, on_death: panic}`, `6: intercept.on_death: "panic" is none of hold, refuse, direct`},
		{`intercept: {mode: tproxy, gateway: true}`, `6: intercept.gateway: it means nothing with mode: tproxy, which takes only connections of other hosts anyway`},
		{`intercept: {mode: cgroup}`, `6: intercept.cgroup: it is missing: name the folder of the cgroup, such as /sys/fs/cgroup/training.slice`},
		{`intercept: {mode: cgroup, cgroup: /sys/fs/cgroup/x, gateway: true}`, `6: intercept.gateway: it means nothing with mode: cgroup, which takes connections of this host only`},
		{`intercept: {mode: redirect, cgroup: /sys/fs/cgroup/x}`, `6: intercept.cgroup: it means nothing without mode: cgroup`},
		{`intercept: {on_death: refuse}`, `6: intercept: on_death and gateway mean nothing without mode: redirect`},
		{`forward: [{listen: "127.0.0.1:9000", target: "tokyo:9000"}]`, `7: forward[0].target: "tokyo:9000" is not an address: write IP:port, such as 10.2.0.5:9000 (names are not looked up here)`},
		{`forward: [{listen: "127.0.0.1:9000", target: "10.9.0.5:9000"}]`, `7: forward[0].target: 10.9.0.5:9000 is behind no peer: add its network to one, or write direct: true to pass bytes on from here as they are`},
		{`forward: [{listen: "127.0.0.1:9000", target: "10.2.0.5:9000", direct: true}]`, `7: forward[0].direct: 10.2.0.5:9000 is behind a peer, and goes through its tunnel: leave direct out`},
		{`forward: [{listen: "127.0.0.1:9000", target: "127.0.0.1:9000", direct: true}]`, `7: forward[0].target: 127.0.0.1:9000 is this proxy itself, forward[0].listen: connections would come back for ever; give the address of the server`},
		{`forward: [{listen: "127.0.0.1:9000", target: "0.0.0.0:9000", direct: true}]`, `7: forward[0].target: 0.0.0.0:9000 is this proxy itself, forward[0].listen: connections would come back for ever; give the address of the server`},
		{`forward: [{listen: "0.0.0.0:9000", target: "127.0.0.2:9000", direct: true}]`, `7: forward[0].target: 127.0.0.2:9000 is this proxy itself, forward[0].listen: connections would come back for ever; give the address of the server`},
		{`forward: [{listen: "127.0.0.1:9000", target: "127.0.0.1:7443", direct: true}]`, `7: forward[0].target: 127.0.0.1:7443 is this proxy itself, tunnel.listen: connections would come back for ever; give the address of the server`},
		{`forward: [{listen: "127.0.0.1:9000", target: "127.0.0.2:9000", direct: true}]`, ``},
		{`forward: [{listen: "127.0.0.1:9000", target: "[fe80::1%eth0]:9000", direct: true}]`, `7: forward[0].target: [fe80::1%eth0]:9000 is a link-local address, which is not dialled: give another of the server's`},
		{`forward: [{listen: "0.0.0.0:9000", target: "10.9.0.5:9000", direct: true}]`, ``},
		{`forward: [{target: "10.2.0.5:9000"}]`, `7: forward[0].listen: it is missing: give the address to which the job connects, such as 127.0.0.1:9000`},
		{`forward: [{listen: "127.0.0.1:9000"}]`, `7: forward[0].target: it is missing: give the address of the server behind the peer`},
		{`forward: [{listen: "127.0.0.1:1", target: "10.2.0.5:1"}, {listen: "127.0.0.1:1", target: "10.2.0.5:2"}]`, `7: forward[1].listen: 127.0.0.1:1 is taken by forward[0].listen, 127.0.0.1:1 in line 7: choose another port`},
		{`admin: "127.0.0.1:07443"`, `10: admin: 127.0.0.1:07443 is taken by tunnel.listen, [::]:7443 in line 2: choose another port`},
		{`forward: [{listen: "127.0.0.1:7443", target: "10.2.0.5:1"}]`, `7: forward[0].listen: 127.0.0.1:7443 is taken by tunnel.listen, [::]:7443 in line 2: choose another port`},
		{`forward: [{listen: "[::1]:9090", target: "10.2.0.5:1"}, {listen: "127.0.0.2:9090", target: "10.2.0.5:2"}]`, ``},
		{`forward: [{listen: "0.0.0.0:1", target: "10.2.0.5:1"}, {listen: "[::1]:1", target: "10.2.0.5:2"}]`, `7: forward[1].listen: [::1]:1 is taken by forward[0].listen, 0.0.0.0:1 in line 7: choose another port`},
		{`forward: [{listen: "0.0.0.0:1", target: "10.2.0.5:1"}, {listen: "10.1.0.1:1", target: "10.2.0.5:2"}]`, `7: forward[1].listen: 10.1.0.1:1 is taken by forward[0].listen, 0.0.0.0:1 in line 7: choose another port`},
		{`admin: "localhost:7443"`, `10: admin: localhost:7443 is taken by tunnel.listen, [::]:7443 in line 2: choose another port`},
		{`admin: "localhost:9000"`, `10: admin: localhost:9000 is taken by forward[0].listen, 127.0.0.1:9000 in line 7: choose another port`},
		{`tunnel: {listen: "0.0.0.0:9090"}`, `10: admin: 127.0.0.1:9090 is taken by tunnel.listen, 0.0.0.0:9090 in line 2: choose another port`},
		{`tunnel: {listen: "10.1.0.1:9090"}`, ``},
		{`jobs: [{name: resnet, networks: [10.0.0.0/8], sums: none, aggregates: lossy}]`, `8: jobs[0].aggregates: lossy contradicts sums: none, by which sums lose nothing: leave one of both out`},
		{`jobs: [{name: resnet, networks: [10.0.0.0/8], sums: averages}]`, `8: jobs[0].sums: "averages" is none of proved, gradients, none`},
		{`jobs: [{name: resnet, networks: [10.0.0.0/8], ranks: 1}]`, `8: jobs[0].ranks: a job of one rank has no connections: give the number of processes, or leave it out`},
		{`jobs: [{name: resnet}]`, `8: jobs[0].networks: there is none: name the networks of the job's hosts, at all sites`},
		{`jobs: [{networks: [10.0.0.0/8]}]`, `8: jobs[0].name: it is missing: rules and metrics call the job by it`},
		{`jobs: [{name: a, networks: [10.0.0.0/8]}, {name: a, networks: [11.0.0.0/8]}]`, `8: jobs[1].name: a is named twice, also in line 8`},
		{`jobs: [{name: a, networks: [10.0.0.0/8]}, {name: b, networks: [10.1.0.0/16]}]`, `8: jobs[1].networks: they lie inside the networks of a in line 8, which comes first: put this job before it`},
		{`policy: [{role: gradients, codec: lossless}]`, `9: policy[0].role: "gradients" is not a role: there are unknown, exact, gradient, aggregate, state`},
		{`policy: [{dtype: float, codec: lossless}]`, `9: policy[0].dtype: "float" is not an element type: write it as float32, bfloat16, float16, float64 or int32`},
		{`policy: [{direction: up, codec: lossless}]`, `9: policy[0].direction: "up" is none of from_client, from_server`},
		{`policy: [{protocol: smtp, codec: lossless}]`, `9: policy[0].protocol: "smtp" is not a protocol: there are gloo, pslite, flower, nvflare`},
		{`policy: [{job: vgg, codec: lossless}]`, `9: policy[0].job: there is no job vgg: add it to jobs, or correct the name`},
		{`policy: [{min_bytes: 2KiB, max_bytes: 1KiB, codec: lossless}]`, `9: policy[0].min_bytes: 2048 is more than max_bytes, 1024: nothing has such a size`},
		{`policy: [{role: gradient}]`, `9: policy[0].codec: it is missing: name a codec, such as lossless, or verbatim for none`},
		{`policy: [{role: gradient, codec: rice}]`, `9: policy[0].codec: rice takes int32, uint32, int64, uint64, and nothing that this rule matches is of such a type: use lossless, or name other roles or types`},
		{`policy: [{role: [aggregate, state], codec: "bit-grain(l=3)"}]`, `9: policy[0].codec: bit-grain(l=3) takes int32, uint32, int64, uint64, and nothing that this rule matches is of such a type: use lossless, or name other roles or types`},
		{`policy: [{dtype: float32, codec: delta-binary}]`, `9: policy[0].codec: delta-binary takes int32, uint32, int64, uint64, and nothing that this rule matches is of such a type: use lossless, or name other roles or types`},
		{`policy: [{role: exact, dtype: [int8, unknown], codec: adaptive-prefix}]`, `9: policy[0].codec: adaptive-prefix takes int32, uint32, int64, uint64, and nothing that this rule matches is of such a type: use lossless, or name other roles or types`},
		{`policy: [{role: gradient, dtype: int64, codec: 3lc}]`, `9: policy[0].codec: 3lc takes float32, float64, float16, bfloat16, and nothing that this rule matches is of such a type: use lossless, or name other roles or types`},
		{`policy: [{role: exact, codec: rice}, {dtype: [float32, uint64], codec: rice}, {codec: rice}]`, ``},
		{`policy: [{role: gradient, codec: "topk(k=2)"}]`, `9: policy[0].codec: "topk(k=2)": k is 2; write a number from 5.960464477539063e-08 to 1`},
		{`policy: [{role: exact, codec: int4}]`, `9: policy[0].codec: int4 loses something, and exact may lose nothing: use lossless, or name other roles`},
		{`policy: [{role: gradient, codec: int4, flush_every: 1}]`, `9: policy[0].flush_every: 1 makes every value travel exactly: use codec: lossless, or a larger number`},
		{`policy: [{role: gradient, codec: int4, flush_every: -1}]`, `9: policy[0].flush_every: "-1" is not a count: write a whole number`},
		{`policy: [{codec: lossless, flush_every: 9}]`, `9: policy[0].flush_every: lossless loses nothing, so there is no residual: leave flush_every out`},
		{`policy: [{codec: verbatim, flush_every: 9}]`, `9: policy[0].flush_every: verbatim loses nothing, so there is no residual: leave flush_every out`},
		{`policy: [{role: gradient, codec: int4, feedback: false, flush_every: 9}]`, `9: policy[0].flush_every: without feedback there is no residual: leave one of both out`},
		{`policy: [{role: aggregate, codec: int4}]`, `9: policy[0].codec: int4 loses something of aggregates, which no job of this rule allows: set aggregates: lossy for the job, or use lossless`},
		{`policy: [{role: aggregate, codec: lossless, feedback: false}, {role: [state, aggregate], codec: verbatim}]`, ``},
		{`policy: [{codec: lossless}, {role: state, codec: verbatim}]`, `9: policy[1]: it never matches: the rule in line 9 takes all that it would`},
		{`admin: "9090"`, `10: admin: "9090" is not an address to listen on: write host:port, unix:/path or off`},
		{`admin: "0.0.0.0:9090"`, `10: admin: 0.0.0.0:9090 is open to the network without authentication: use 127.0.0.1 or a unix: socket unless a firewall guards it`},
		{`admin: unix:gradproxy.sock`, `10: admin: "unix:gradproxy.sock": write the socket's whole path, at most 107 bytes, such as unix:/run/gradproxy.sock`},
		{`memory: 10`, `11: memory: 10 bytes are too few: give at least 1MiB`},
		{`state: {folder: /var/lib/gradproxy}`, `11: state.folder: unknown key: its keys are dir, memory`},
		{`state: {dir: ""}`, `11: state.dir: it is empty: write a value, or leave the key out`},
		{`upgrade: {socket: s, within: 9m50s}`, `11: upgrade.within: 9m50s is too long: peers wait for connections at rest for tunnel.resume, 10m0s, and a change of processes takes up to 10s more; shorten it, or raise tunnel.resume`},
		{`upgrade: {socket: s, within: 10ms}`, `11: upgrade.within: 10ms is too short for connections to come to rest: give at least 1s`},
		{"intercept: {mode: cgroup, cgroup: /sys/fs/cgroup/job}\nupgrade: {socket: s}", `7: upgrade.socket: connections of a cgroup belong to the process that has redirected them: leave it out, or use intercept.mode redirect`},
		{`upgrade: {socket: /` + strings.Repeat("s", 103) + `}`, `11: upgrade.socket: /` + strings.Repeat("s", 103) + ` has 104 bytes, and the path of a socket at most 103: name a shorter one`},
		{`state: {memory: 1}`, `11: state.memory: 1 bytes are too few: give at least 1MiB`},
		{`drain: soon`, `11: drain: "soon" is not a duration: write it with a unit, such as 500ms, 30s or 10m`},
	} {
		_, problems := parse("f", []byte(with(x.line)), known())
		want := ""
		if x.want != "" {
			want = "f:" + x.want
		}
		if got := problems.Error(); got != want {
			t.Errorf("%s\n got %s\nwant %s", x.line, got, want)
		}
	}
}

// with returns the good file with one line changed, or added at the end.
func with(line string) string {
	lines := strings.SplitAfter(good, "\n")
	key, _, _ := strings.Cut(line, ":")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, key+":") })
	if strings.HasPrefix(line, "  - ") {
		at = 4
	}
	if at < 0 {
		return good + line + "\n"
	}
	lines[at] = line + "\n"
	return strings.Join(lines, "")
}

// All mistakes of a file are reported at once, in the order of its lines.
func TestAllMistakesAtOnce(t *testing.T) {
	_, problems := parse("bad.yaml", []byte(`site: paris
tunel: {}
peers:
  - {name: tokyo, networks: [10.2.0.0/33, 10.4.0.1/8], may_dial: [here], colour: red}
intercept: {mode: redirect, ports: all}
policy:
  - {codec: "lossles"}
`), known())
	want := []string{
		"bad.yaml:2: tunel: unknown key",
		"bad.yaml:4: peers[0].networks[0]: ",
		"bad.yaml:4: peers[0].networks[1]: ",
		"bad.yaml:4: peers[0].may_dial[0]: ",
		"bad.yaml:4: peers[0].colour: unknown key",
		"bad.yaml:5: intercept.ports: ",
		"bad.yaml:7: policy[0].codec: ",
	}
	got := strings.Split(problems.Errors().Error(), "\n")
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, w) }) {
			t.Errorf("no line begins with %q in\n%s", w, strings.Join(got, "\n"))
		}
	}
	if !slices.IsSortedFunc(problems, func(a, b Problem) int { return a.Line - b.Line }) {
		t.Errorf("not in the order of lines:\n%v", problems)
	}
}

// A file that is no YAML, or no mapping, is reported in one line with its place.
func TestNotYAML(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"site: paris\npeers: [\n", "f:2: not YAML: "},
		{"site: paris\nsite: tokyo\n", "f:2: not YAML: mapping key \"site\" already defined"},
		{"", "f: one YAML document is needed"},
		{"site: a\n---\nsite: b\n", "f: one YAML document is needed"},
		{"- a\n- b\n", "f:1: a mapping is needed: its keys are admin"},
		{"a: &x [*x]\nsite: paris\n", "f:1: a: unknown key"},
		{"site: &x *x\n", "f:1: "},
		{"site: paris\npeers: [*y]\n", "f:2: nothing is anchored as &y"},
		{"\x00\xff", "f"},
		{"\xff\xfes\x00i\x00t\x00e\x00:\x00", "f:1: the file is UTF-16: save it as UTF-8"},
		{"\xfe\xff\x00s\x00i\x00t\x00e\x00:", "f:1: the file is UTF-16: save it as UTF-8"},
	} {
		_, problems := parse("f", []byte(x.text), known())
		if len(problems.Errors()) == 0 || !slices.ContainsFunc(problems, func(p Problem) bool { return strings.HasPrefix(p.Error(), x.want) }) {
			t.Errorf("%q: %v, want %s", x.text, problems, x.want)
		}
		for _, p := range problems {
			if strings.Contains(p.Error(), "\n") {
				t.Errorf("%q: more than one line: %q", x.text, p.Error())
			}
		}
	}
}

// Anchors spare repetition.
func TestAnchors(t *testing.T) {
	c, problems := parse("f", []byte(`site: paris
peers:
  - {name: tokyo, networks: [10.2.0.0/16], may_dial: &here ["10.1.0.0/16:1024-65535"]}
  - {name: virginia, dial: "v:1", networks: [10.3.0.0/16], may_dial: *here}
intercept: {mode: redirect}
`), known())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if !reflect.DeepEqual(c.Peers[1].MayDial, rules("10.1.0.0/16:1024-65535")) {
		t.Errorf("may_dial = %v", c.Peers[1].MayDial)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "there is no such file",
		dir:                             "it is a folder",
		big:                             "more than any configuration",
	} {
		_, problems := Load(file, known())
		if len(problems) != 1 || !strings.HasPrefix(problems.Error(), file+": "+want) && !strings.Contains(problems.Error(), want) {
			t.Errorf("%s: %v", file, problems)
		}
	}
}

// Whatever stands in a file, reading it ends, with a usable configuration or with errors that have one line each.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	if b, err := os.ReadFile("testdata/paris.yaml"); err == nil {
		f.Add(b)
	}
	f.Add([]byte("a: &a [*a, *a]\nsite: *a"))
	f.Add([]byte("peers: [{name: &n [[[]]], networks: {}}]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, problems := parse("f", text, known())
		for _, p := range problems {
			if strings.Contains(p.Error(), "\n") {
				t.Errorf("more than one line: %q", p.Error())
			}
		}
	})
}

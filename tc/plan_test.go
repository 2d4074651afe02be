package tc

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

var (
	everything = Support{TBF: true, HTB: true, Netem: true, NetemSeed: true, FQ: true, Clsact: true, BPF: true, IFB: true}
	hop        = Hop{
		Sender: Device{"paris", "wan0"},
		In:     Device{"router", "paris0"},
		Out:    Device{"router", "tokyo0"},
	}
)

func TestKernelPlanReadsAsCommands(t *testing.T) {
	for _, c := range []struct {
		name string
		link Link
		want string
	}{
		{"perfect", Link{}, `
ip -n paris link set dev wan0 gso_max_segs 1
`},
		{"rate alone needs no netem", Link{Rate: 1_250_000, Queue: 50_000}, `
ip -n paris link set dev wan0 gso_max_segs 1
tc -n router qdisc add dev tokyo0 root handle 1: stab linklayer ethernet overhead -14 tbf rate 1250000bps burst 5000 limit 50000
`},
		{"delay alone", Link{Delay: 25 * time.Millisecond}, `
ip -n paris link set dev wan0 gso_max_segs 1
tc -n router qdisc add dev tokyo0 root handle 1: stab linklayer ethernet overhead -14 netem limit 178956 delay 25ms
`},
		{"all of it: the jitter's middle is the delay's end, and a rate keeps the order", Link{
			Rate: 12_500_000, Delay: 40 * time.Millisecond, Jitter: 3 * time.Millisecond, Loss: 0.015, Seed: 7,
		}, `
ip -n paris link set dev wan0 gso_max_segs 1
tc -n router qdisc add dev tokyo0 root handle 1: stab linklayer ethernet overhead -14 netem limit 178956 delay 41500us 1500us loss 1.5% seed 7 rate 4294967295bps
tc -n router qdisc add dev tokyo0 parent 1:1 handle 2: tbf rate 12500000bps burst 50000 limit 268435456
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := KernelPlan(c.link, hop, everything)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.String(); got != strings.TrimPrefix(c.want, "\n") {
				t.Errorf("got:\n%s\nwant:%s", got, c.want)
			}
		})
	}
}

func TestInverseRunsBackwards(t *testing.T) {
	p, err := KernelPlan(Link{Rate: 1_250_000, Delay: time.Millisecond}, hop, everything)
	if err != nil {
		t.Fatal(err)
	}
	const want = `tc -n router qdisc del dev tokyo0 parent 1:1 handle 2:
tc -n router qdisc del dev tokyo0 root handle 1:
ip -n paris link set dev wan0 gso_max_segs 65535
`
	if got := p.Inverse(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestRulesReadAsCommands(t *testing.T) {
	local := Device{Name: "eth0"}
	for _, c := range []struct {
		rule          Rule
		want, inverse string
	}{
		{HTB{Place{Device: local, Parent: Root, Handle: NewHandle(1, 0)}, 0x1f},
			"tc qdisc add dev eth0 root handle 1: htb default 0x1f",
			"tc qdisc del dev eth0 root handle 1:"},
		{HTBClass{local, NewHandle(1, 0), NewHandle(1, 0x1f), 1000, 2000, 3000},
			"tc class add dev eth0 parent 1: classid 1:1f htb rate 1000bps ceil 2000bps burst 3000 cburst 3000",
			"tc class del dev eth0 classid 1:1f"},
		{Match{local, NewHandle(1, 0), 4, netip.MustParsePrefix("10.2.0.0/16"), NewHandle(1, 2)},
			"tc filter add dev eth0 parent 1: pref 4 protocol ip u32 match ip dst 10.2.0.0/16 flowid 1:2",
			"tc filter del dev eth0 parent 1: pref 4"},
		{Match{local, NewHandle(1, 0), 4, netip.MustParsePrefix("2001:db8::/33"), NewHandle(1, 2)},
			"tc filter add dev eth0 parent 1: pref 4 protocol ipv6 u32 match ip6 dst 2001:db8::/33 flowid 1:2",
			"tc filter del dev eth0 parent 1: pref 4"},
		{Clsact{local}, "tc qdisc replace dev eth0 clsact", "tc qdisc del dev eth0 clsact"},
		{IFB{Device{"x", "ifb9"}}, "ip -n x link add ifb9 up type ifb", "ip -n x link del ifb9"},
		{Redirect{local, "ifb9"},
			"tc filter add dev eth0 ingress pref 1 protocol all u32 match u32 0 0 action mirred egress redirect dev ifb9",
			"tc filter del dev eth0 ingress pref 1 protocol all u32"},
		{FQ{Place{Device: local, Parent: Root, Handle: NewHandle(1, 0)}, 10, 20, 3 * time.Second},
			"tc qdisc add dev eth0 root handle 1: fq limit 10 flow_limit 20 nopacing horizon 3000ms horizon_drop",
			"tc qdisc del dev eth0 root handle 1:"},
		{Netem{Place: Place{Device: local, Parent: Root, Handle: NewHandle(1, 0)}, Delay: 1500 * time.Nanosecond, Limit: 9},
			"tc qdisc add dev eth0 root handle 1: netem limit 9 delay 1500ns",
			"tc qdisc del dev eth0 root handle 1:"},
	} {
		if got := c.rule.String(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if got := c.rule.Inverse(); got != c.inverse {
			t.Errorf("got  %s\nwant %s", got, c.inverse)
		}
	}
}

func TestBPFPlanReadsAsCommands(t *testing.T) {
	for _, c := range []struct {
		name string
		link Link
		want string
	}{
		{"loss and marks need no fq", Link{Loss: 0.01, Marks: 0.25, Seed: 3}, `
ip -n paris link set dev wan0 gso_max_segs 1
tc -n router qdisc replace dev paris0 clsact
tc -n router filter add dev paris0 ingress pref 1 protocol all bpf direct-action object-file shape_bpfel.o section tc/loss # map config: loss 0.01, marks 0.25, seed 3
`},
		{"all of it", Link{Rate: 1_250_000, Delay: 20 * time.Millisecond, Jitter: time.Millisecond, Queue: 60_000, Seed: 3}, `
ip -n paris link set dev wan0 gso_max_segs 1
tc -n router qdisc replace dev paris0 clsact
tc -n router filter add dev paris0 ingress pref 1 protocol all bpf direct-action object-file shape_bpfel.o section tc/loss # map config: loss 0, marks 0, seed 3
tc -n router qdisc add dev tokyo0 root handle 1: fq limit 178956 flow_limit 178956 nopacing horizon 3600000ms horizon_drop
tc -n router qdisc replace dev tokyo0 clsact
tc -n router filter add dev tokyo0 egress pref 1 protocol all bpf direct-action object-file shape_bpfel.o section tc/pace # map config: rate 1250000, delay 20000000, jitter 1000000, queue 60000, seed 3
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := BPFPlan(c.link, hop, everything)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.String(); got != strings.TrimPrefix(c.want, "\n") {
				t.Errorf("got:\n%s\nwant:%s", got, c.want)
			}
		})
	}
}

func TestBPFPlanSaysWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		link Link
		has  Support
		want string
	}{
		{Link{Rate: 1}, Support{BPF: true}, "loss and marks only"},
		{Link{Delay: 1}, Support{BPF: true}, "loss and marks only"},
		{Link{Jitter: 1}, Support{BPF: true}, "loss and marks only"},
		{Link{Loss: 0.1}, Support{FQ: true}, "no clsact"},
	} {
		_, err := BPFPlan(c.link, hop, c.has)
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v with %+v: error %v, want one of %q", c.link, c.has, err, c.want)
		}
	}
}

// A kernel that lacks something is no reason to emulate another link than the one asked for.
func TestKernelPlanSaysWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		link Link
		has  Support
		want string
	}{
		{Link{Delay: 1}, Support{TBF: true}, "kernel has no netem"},
		{Link{Loss: 0.1}, Support{TBF: true}, "kernel has no netem"},
		{Link{Rate: 1}, Support{Netem: true}, "kernel has no tbf"},
		{Link{Marks: 0.1}, everything, "eBPF back end"},
	} {
		_, err := KernelPlan(c.link, hop, c.has)
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v with %+v: error %v, want one of %q", c.link, c.has, err, c.want)
		}
	}
}

func TestValidateNamesEachField(t *testing.T) {
	err := Link{Rate: -1, Delay: -1, Jitter: -1, Loss: 1.5, Marks: -0.5, Queue: -1}.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, field := range []string{"rate of -1", "delay of -1ns", "jitter of -1ns", "loss of 1.5", "marks of -0.5", "queue of -1"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%v: nothing of %s", err, field)
		}
	}
	if err := (Link{Loss: 1, Marks: 1}).Validate(); err != nil {
		t.Error(err)
	}
}

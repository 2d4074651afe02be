package wan

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/tc"
)

// everything is a kernel that has all.
var everything = tc.Support{TBF: true, HTB: true, Netem: true, NetemSeed: true, FQ: true, Clsact: true, IFB: true, BPF: true}

const asymmetric = `name: pair
sites: [{name: a}, {name: b}]
links: [{from: a, to: b, rtt: 30ms, rate: 20Mbit/s, loss: 1%, back: {jitter: 2ms, trace: [{at: 1s, rate: 5Mbit/s}]}}]
`

// The orders to the kernel, as commands that a person would type.
func TestPlanOfTheKernel(t *testing.T) {
	topology, problems := parse("f", []byte(asymmetric), files)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, b := range []BackEnd{Kernel, EBPF} {
		p, err := kernelPlan(topology, b, "a test", everything)
		if err != nil {
			t.Fatal(err)
		}
		// How much buckets and queues of packets hold is package tc's to choose.
		text := regexp.MustCompile(`(burst|limit|flow_limit) \d+`).ReplaceAllString(p.String(), "$1 N")
		golden(t, "pair-"+string(b)+".txt", text)
	}
}

// An error names the feature that a kernel lacks, and the back end that has it.
func TestKernelRefuses(t *testing.T) {
	topology, _ := parse("f", []byte(asymmetric), files)
	if _, err := kernelPlan(topology, Kernel, "", tc.Support{TBF: true}); !errors.Is(err, errors.ErrUnsupported) || !strings.HasPrefix(err.Error(), "link a-b: ") {
		t.Errorf("without netem: %v", err)
	}
	hospitals, _ := LoadReady("hospitals")
	if _, err := kernelPlan(hospitals, Kernel, "", everything); err == nil || err.Error() != "link north-hub: a shared bottleneck: only the back end user has it" {
		t.Errorf("a shared bottleneck: %v", err)
	}
	if why := lacks(hospitals, everything); why != "there is a shared bottleneck" {
		t.Errorf("why not: %s", why)
	}
	if why := lacks(topology, tc.Support{TBF: true}); why != "this kernel has neither netem nor fq" {
		t.Errorf("why not: %s", why)
	}
	if p, err := Choose(&Topology{Seeded: true}, ""); err != nil || p.BackEnd != User || p.Why != "it keeps the seed" {
		t.Errorf("with a seed: %+v, %v", p, err)
	}
	if _, err := Choose(topology, "magic"); err == nil {
		t.Error("there is a back end magic")
	}
}

// Links that the kernel plays carry both families, also through a site between, count bytes, and go without a trace.
func TestKernelLinksCarry(t *testing.T) {
	for _, x := range []struct {
		backEnd BackEnd
		way     string
	}{{Kernel, "rate: 50Mbit/s"}, {EBPF, "loss: 1%"}} {
		t.Run(string(x.backEnd), func(t *testing.T) {
			require.Root(t)
			topology, problems := parse("f", []byte("name: k\nsites: [{name: hub}, {name: a}, {name: b}]\nlinks: [{from: a, to: hub, "+x.way+"}, {from: hub, to: b}]\n"), files)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			topology.Name = fmt.Sprintf("t%d-%s", os.Getpid(), x.backEnd)
			p, err := Choose(topology, x.backEnd)
			require.Named(t, "kernel-links", !errors.Is(err, errors.ErrUnsupported), fmt.Sprint("a kernel with sch_tbf and programs at clsact; ", err))
			if err != nil {
				t.Fatal(err)
			}
			n, err := Up(context.Background(), p)
			if err != nil {
				t.Fatal(err)
			}
			const bytes = 100_000
			for i, addr := range p.Sites[2].Addresses {
				carry(t, n, 1, 2, addr, bytes)
				r, err := n.Report()
				if err != nil {
					t.Fatal(err)
				}
				if got := r.Links[0].Bytes; got < uint64(i+1)*bytes {
					t.Errorf("%s -> %s has carried %d bytes, want %d at least", r.Links[0].From, r.Links[0].To, got, (i+1)*bytes)
				}
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
			for _, name := range p.namespaces() {
				if _, err := os.Stat("/run/netns/" + name); err == nil {
					t.Errorf("the namespace %s is left", name)
				}
			}
		})
	}
}

package tc

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/netns"
)

// newNamespace makes a network namespace of a name of its own, which is gone after the test.
func newNamespace(t *testing.T, role string) string {
	t.Helper()
	require.Root(t)
	require.Command(t, "ip")
	require.Command(t, "tc")
	name := fmt.Sprintf("gptc-%d-%s", os.Getpid(), role)
	netns.Named(t, name)
	return name
}

// run runs a command line and returns its output.
func run(t *testing.T, line string) string {
	t.Helper()
	return runBatch(t, line, "")
}

// runBatch is run with something to read.
func runBatch(t *testing.T, line, input string) string {
	t.Helper()
	words := strings.Fields(line)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// pair makes a pair of devices in the namespace.
func pair(t *testing.T, namespace string) (a, b Device) {
	t.Helper()
	run(t, "ip -n "+namespace+" link add v0 up type veth peer name v1")
	run(t, "ip -n "+namespace+" link set v1 up")
	return Device{namespace, "v0"}, Device{namespace, "v1"}
}

// state returns the kernel's listing of the disciplines, classes and filters of a namespace's v0 and v1, and of the
// devices.
func state(t *testing.T, namespace string) string {
	t.Helper()
	var tc, ip strings.Builder
	for _, d := range []string{"v0", "v1"} {
		for _, what := range []string{"qdisc show dev %s", "class show dev %s", "filter show dev %s", "filter show dev %s ingress", "filter show dev %s egress"} {
			fmt.Fprintf(&tc, what+"\n", d)
		}
		fmt.Fprintf(&ip, "link show dev %s\n", d)
	}
	disciplines := runBatch(t, "tc -d -n "+namespace+" -batch -", tc.String())
	return packetsCounted.ReplaceAllString(disciplines, "") + runBatch(t, "ip -d -n "+namespace+" -batch -", ip.String())
}

// packetsCounted is a counter in the kernel's listing of an htb, counters or not.
var packetsCounted = regexp.MustCompile(`direct_packets_stat \d+ `)

// plans are all that the rules of this package can make on v0 and v1 of a namespace, as far as the kernel has it.
func plans(t *testing.T, namespace string) map[string]Plan {
	t.Helper()
	has, err := Supported()
	if err != nil {
		t.Fatal(err)
	}
	v0, v1 := Device{namespace, "v0"}, Device{namespace, "v1"}
	h := Hop{Sender: v1, In: v1, Out: v0}
	root := Place{Device: v0, Parent: Root, Handle: NewHandle(1, 0), Overhead: -EthernetHeader}
	m := map[string]Plan{}
	link := func(name string, l Link) {
		p, err := KernelPlan(l, h, has)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
		if err == nil {
			m[name] = p
		}
	}
	link("rate", Link{Rate: 12_500_000, Queue: 100_000})
	link("rate above 4 GB/s", Link{Rate: 5_000_000_000, Queue: 100_000})
	link("delay", Link{Delay: 1500 * time.Microsecond})
	link("all", Link{Rate: 1_250_000, Delay: 20 * time.Millisecond, Jitter: time.Millisecond, Loss: 0.01, Queue: 60_000})
	if has.HTB {
		m["htb"] = Plan{
			HTB{root, 2},
			HTBClass{v0, NewHandle(1, 0), NewHandle(1, 1), 10_000_000, 10_000_000, 30_000},
			HTBClass{v0, NewHandle(1, 1), NewHandle(1, 2), 1_000_000, 10_000_000, 3000},
			HTBClass{v0, NewHandle(1, 1), NewHandle(1, 3), 9_000_000, 10_000_000, 3000},
			TBF{Place{Device: v0, Parent: NewHandle(1, 3), Handle: NewHandle(3, 0)}, 5_000_000, 10_000, 50_000},
			Match{v0, NewHandle(1, 0), 1, netip.MustParsePrefix("10.2.0.0/15"), NewHandle(1, 3)},
			Match{v0, NewHandle(1, 0), 2, netip.MustParsePrefix("2001:db8::/33"), NewHandle(1, 3)},
		}
	}
	if has.IFB {
		ifb := Device{namespace, "ifb"}
		m["ifb"] = Plan{IFB{ifb}, Clsact{v0}, Redirect{v0, "ifb"}, TBF{Place{Device: ifb, Parent: Root, Handle: NewHandle(1, 0)}, 5_000_000, 10_000, 50_000}}
	}
	if has.FQ {
		m["fq"] = Plan{FQ{root, 1000, 500, 2 * time.Second}}
	}
	return m
}

// The commands that a plan prints are no decoration: typed in, they leave the kernel in the same state.
func TestApplyDoesWhatThePlanPrints(t *testing.T) {
	applied, typed := newNamespace(t, "applied"), newNamespace(t, "typed")
	pair(t, applied)
	pair(t, typed)
	byHand := plans(t, typed)
	for name, p := range plans(t, applied) {
		t.Run(name, func(t *testing.T) {
			before := state(t, applied)

			a, err := p.Apply()
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(byHand[name].String()) {
				run(t, line)
			}
			got, want := state(t, applied), state(t, typed)
			if got == before {
				t.Errorf("%schanges nothing", p)
			}
			if !sameLines(got, want) {
				t.Errorf("applied:\n%s\ntyped:\n%s", got, want)
			}

			if err := a.Undo(); err != nil {
				t.Error(err)
			}
			if after := state(t, applied); after != before {
				t.Errorf("after Undo:\n%s\nbefore Apply:\n%s", after, before)
			}
			for line := range strings.Lines(byHand[name].Inverse()) {
				run(t, line)
			}
			if after := state(t, typed); !sameLines(after, before) {
				t.Errorf("after the inverse commands:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// sameLines compares two states but for parts that differ between any two devices.
func sameLines(a, b string) bool {
	strip := func(s string) string {
		var kept []string
		for line := range strings.Lines(s) {
			if !strings.Contains(line, "link/ether") { // the address
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	return strip(a) == strip(b)
}

func TestFailureTakesBackWhatWasApplied(t *testing.T) {
	ns := newNamespace(t, "fails")
	v0, v1 := pair(t, ns)
	before := state(t, ns)
	p := Plan{
		Segments{v1, 1},
		TBF{Place{Device: v0, Parent: Root, Handle: NewHandle(1, 0)}, 1_000_000, 3000, 30_000},
		Clsact{v0},
		Clsact{Device{ns, "nowhere"}},
	}
	_, err := p.Apply()
	if err == nil || !strings.Contains(err.Error(), "rule 4 of 4 (tc -n "+ns+" qdisc replace dev nowhere clsact)") {
		t.Errorf("error %v: want one that names rule 4", err)
	}
	if after := state(t, ns); after != before {
		t.Errorf("after the failure:\n%s\nbefore:\n%s", after, before)
	}
}

func TestApplyTakesNobodysPlace(t *testing.T) {
	ns := newNamespace(t, "taken")
	v0, _ := pair(t, ns)
	run(t, "tc -n "+ns+" qdisc add dev v0 root handle 7: tbf rate 1mbit burst 3000 limit 3000")
	before := state(t, ns)
	p := Plan{TBF{Place{Device: v0, Parent: Root, Handle: NewHandle(1, 0)}, 1_000_000, 3000, 30_000}}
	if _, err := p.Apply(); err == nil || !strings.Contains(err.Error(), "tc qdisc del") {
		t.Errorf("error %v: want one that says how to make room", err)
	}
	if err := p.Undo(); err != nil {
		t.Error(err)
	}
	if after := state(t, ns); after != before {
		t.Errorf("after Undo:\n%s\nbefore:\n%s", after, before)
	}
}

// Undo has nothing to complain of where all is gone already, with device or namespace.
func TestUndoIsIdempotent(t *testing.T) {
	ns := newNamespace(t, "twice")
	v0, v1 := pair(t, ns)
	p := Plan{Segments{v1, 1}, TBF{Place{Device: v0, Parent: Root, Handle: NewHandle(1, 0)}, 1_000_000, 3000, 30_000}, Clsact{v0}}
	a, err := p.Apply()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.Undo(); err != nil {
			t.Error(err)
		}
		if err := p.Undo(); err != nil {
			t.Error(err)
		}
	}
	run(t, "ip -n "+ns+" link del v0")
	if err := p.Undo(); err != nil {
		t.Errorf("without the device: %v", err)
	}
	if err := (Plan{Clsact{Device{ns + "-never", "v0"}}}).Undo(); err != nil {
		t.Errorf("without the namespace: %v", err)
	}
}

func TestChangeKeepsTheDiscipline(t *testing.T) {
	ns := newNamespace(t, "change")
	v0, v1 := pair(t, ns)
	h := Hop{Sender: v1, In: v1, Out: v0}
	slow, err1 := KernelPlan(Link{Rate: 1_000_000, Queue: 30_000}, h, everything)
	fast, err2 := KernelPlan(Link{Rate: 2_000_000, Queue: 60_000}, h, everything)
	none, err3 := KernelPlan(Link{}, h, everything)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	a, err := slow.Apply()
	if err != nil {
		t.Fatal(err)
	}
	// A discipline that is replaced forgets its counts.
	run(t, "ip -n "+ns+" addr add 198.18.0.1/24 dev v0")
	run(t, "ip -n "+ns+" neigh add 198.18.0.2 lladdr 02:00:00:00:00:01 dev v0")
	counted := func() string { return run(t, "tc -s -n "+ns+" qdisc show dev v0") }
	for end := time.Now().Add(time.Minute); strings.Contains(counted(), "Sent 0 bytes"); {
		if time.Now().After(end) {
			t.Fatal("nothing was sent")
		}
		// Packets that are sent before the device has its carrier are lost.
		inside(t, ns, func() error {
			conn, err := net.Dial("udp", "198.18.0.2:9")
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte("counted"))
			return err
		})
	}
	if err := a.Change(fast); err != nil {
		t.Fatal(err)
	}
	if got := counted(); !strings.Contains(got, "rate 16Mbit") || strings.Contains(got, "Sent 0 bytes") {
		t.Errorf("after Change: %s\nwant 16 Mbit/s and the count of before", got)
	}
	if err := a.Change(none); err != nil {
		t.Fatal(err)
	}
	if got := counted(); strings.Contains(got, "tbf") {
		t.Errorf("after a Change to no rate: %s", got)
	}
	if err := a.Undo(); err != nil {
		t.Error(err)
	}
}

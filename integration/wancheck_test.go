//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/uml"
)

// The topology that all back ends play: a link of each kind, asymmetric, at rates that a guest's one processor can carry.
const checkTopology = `name: check
sites: [{name: a}, {name: b}, {name: c}]
links:
  - {from: a, to: b, rtt: 20ms, rate: 20Mbit/s, back: {rate: 5Mbit/s}}
  - {from: b, to: c, rtt: 80ms, jitter: 4ms, loss: 1%, rate: 10Mbit/s, back: {loss: 0%, jitter: 0s}}
`

// A checkedWay is a direction in what `gradproxy wan check --json` prints.
type checkedWay struct {
	From, To        string
	Asked, Achieved struct {
		Rate float64 `json:"rate_bps"`
		RTT  float64 `json:"rtt_ms"`
		Loss float64
	}
	OK  bool
	Off string
}

// Every back end achieves what is asked, and they agree with each other: user on this machine's kernel, the others under one
// that has netem and fq.
func TestWANBackEndsAgree(t *testing.T) {
	require.Root(t)
	require.Command(t, "go")
	dir := t.TempDir()
	binary, topology := filepath.Join(dir, "gradproxy"), filepath.Join(dir, "check.yaml")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/gradproxy").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(topology, []byte(checkTopology), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary, "wan", "check", topology, "--back-end", "user", "--json", "--state-dir", dir).Output()
	if err != nil && len(out) == 0 {
		t.Fatalf("wan check: %v", err)
	}
	user := checked(t, string(out))
	compareWays(t, "user", user, user)
	for _, backEnd := range []string{"kernel", "ebpf"} {
		t.Run(backEnd, func(t *testing.T) {
			urgent(t)
			// Namespaces have files under /etc, which a guest cannot write to as it is.
			const script = `mount -t tmpfs none /etc && "$0" wan check "$1" --back-end "$2" --json 2>/run/err; cat /run/err`
			out := uml.Guest{Modules: []string{"ipv6"}}.Run(t, "sh", "-c", script, binary, topology, backEnd)
			compareWays(t, backEnd, checked(t, out), user)
		})
	}
}

// urgent lets the processes that the test starts from here on keep their time on a busy machine.
func urgent(t *testing.T) {
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0); err != nil {
		t.Logf("the guest is not urgent: %v", err)
	}
}

// checked reads what wan check prints.
func checked(t *testing.T, out string) []checkedWay {
	t.Helper()
	var c struct{ Links []checkedWay }
	_, object, _ := strings.Cut(out, "{")
	if err := json.NewDecoder(strings.NewReader("{" + object)).Decode(&c); err != nil || len(c.Links) != 4 {
		t.Fatalf("%v, %d directions, want 4:\n%s", err, len(c.Links), out)
	}
	return c.Links
}

// compareWays fails where a direction is not as asked, or differs from what another back end achieves.
func compareWays(t *testing.T, backEnd string, got, other []checkedWay) {
	t.Helper()
	for i, w := range got {
		t.Logf("%-6s %s -> %s: %+v asked, %+v achieved", backEnd, w.From, w.To, w.Asked, w.Achieved)
		if !w.OK {
			t.Errorf("%s: %s -> %s is not as asked: %s", backEnd, w.From, w.To, w.Off)
		} else if off := apart(w, other[i]); off != "" {
			t.Errorf("%s: %s -> %s is not as with user: %s", backEnd, w.From, w.To, off)
		}
	}
}

// apart says in what two back ends differ by more than both may be off together; losses by more than chance explains.
func apart(a, b checkedWay) string {
	const probes = 2000
	spread := 2.576 * math.Sqrt(2*a.Asked.Loss*(1-a.Asked.Loss)/probes)
	switch {
	case math.Abs(a.Achieved.Rate-b.Achieved.Rate) > 0.04*a.Asked.Rate:
		return fmt.Sprintf("rate %.0f and %.0f", a.Achieved.Rate, b.Achieved.Rate)
	case math.Abs(a.Achieved.RTT-b.Achieved.RTT) > 2*(0.5+0.01*a.Asked.RTT):
		return fmt.Sprintf("rtt %.2f and %.2f ms", a.Achieved.RTT, b.Achieved.RTT)
	case math.Abs(a.Achieved.Loss-b.Achieved.Loss) > spread:
		return fmt.Sprintf("loss %v and %v", a.Achieved.Loss, b.Achieved.Loss)
	}
	return ""
}

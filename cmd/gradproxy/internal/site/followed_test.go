package site

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/integration/require"
)

// A job whose peer has used its budget of the day moves its gradients to the codec that the budget lists, with no rule,
// and the log and the metrics say so. The peer of a site whose budget lists no codec goes on without loss.
func TestBudgetIsFollowed(t *testing.T) {
	if require.Race {
		t.Skip("needs a build without the race detector: its job must send many bytes")
	}
	t.Parallel()
	for _, c := range []struct {
		name string
		then []string
	}{{"listed", []string{"int8"}}, {"nothing listed", nil}} {
		t.Run(c.name, func(t *testing.T) {
			lab := newLab(t)
			listener, err := net.Listen("tcp", "127.0.2.9:0")
			must(t, err)
			defer listener.Close()
			entry := free(t)
			var sites []*running
			for n := range 2 {
				more := "jobs: [{name: resnet, networks: [127.0.0.0/8], ranks: 2, sums: gradients}]\n"
				if n == 0 {
					more += fmt.Sprintf("forward: [{listen: %q, target: %q}]\n", entry, listener.Addr())
				}
				read := lab.load(n, more)
				if n == 0 {
					read.Peers[0].Budget = config.Budget{GBPerDay: 0.004, Then: c.then}
				}
				sites = append(sites, lab.run(read))
			}
			sites[0].until(t, "/readyz?exclude=peer/virginia", 200, "peer/tokyo")
			defer trainPair(t.Context(), t, listener, entry)()

			for deadline := time.Now().Add(time.Minute); sum(sites[0], "gradproxy_budget_used_bytes", `peer="tokyo"`) < 2*4e6; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the budget is not used up in a minute")
				}
			}
			const lossy = `codec="int8"`
			if c.then == nil {
				for before := sum(sites[0], "gradproxy_raw_bytes_total"); sum(sites[0], "gradproxy_raw_bytes_total") < before+50e6; {
					time.Sleep(50 * time.Millisecond)
				}
				if n := sum(sites[0], "gradproxy_raw_bytes_total", lossy); n != 0 {
					t.Errorf("%.0f bytes are coded with loss, and no codec is listed", n)
				}
				return
			}
			for deadline := time.Now().Add(time.Minute); sum(sites[0], "gradproxy_raw_bytes_total", lossy, `role="gradient"`) < 1e6; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("gradients do not move:\n%s", sites[0].log.String())
				}
			}
			if n := sum(sites[0], "gradproxy_budget_stage", `peer="tokyo"`); n != 1 {
				t.Errorf("stage %v, want 1", n)
			}
			if log := sites[0].log.String(); !strings.Contains(log, "tensors move to the next codec of budget.then") {
				t.Errorf("the log does not say that tensors move:\n%s", log)
			}
			for _, s := range sites { // the far site has no budget
				if n := sum(s, "gradproxy_raw_bytes_total", lossy, `role="aggregate"`); n != 0 {
					t.Errorf("%.0f bytes of sums are coded with loss", n)
				}
			}
			if n := sum(sites[1], "gradproxy_raw_bytes_total", lossy); n != 0 {
				t.Errorf("%.0f bytes of the far site are coded with loss", n)
			}
		})
	}
}

// sum adds up a site's samples of a metric whose labels contain all of labels.
func sum(r *running, metric string, labels ...string) (total float64) {
	_, text := r.get("/metrics")
	for _, m := range regexp.MustCompile(`(?m)^`+metric+`\{(.*)\} (\S+)$`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(m[2], 64)
		for _, label := range labels {
			if err != nil || !strings.Contains(m[1], label) {
				n = 0
			}
		}
		total += n
	}
	return total
}

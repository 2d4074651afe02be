package demo

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/codecs/all"
)

// small is a demo that is over soon, under the race detector too.
func small() Options {
	return Options{Link: Link{Rate: 1e9, RTT: time.Millisecond}, Wires: []string{"gloo"}, Steps: 4, Model: []int{32}, Seed: 1}
}

// Proxies that change nothing end with the weights of the direct run.
func TestRunsAreComparedWithTheDirectOne(t *testing.T) {
	o := small()
	o.Codes = []string{Lossless}
	o.Through = func(_ context.Context, r Run, between Between) (Path, error) {
		if r.Near == nil || r.Far == nil {
			t.Error("proxies do not see the collectives of the ranks")
		}
		r.Near, r.Far = nil, nil
		if want := (Run{Wire: "gloo", Name: Lossless}); r != want {
			t.Errorf("proxies are asked for %+v, want %+v", r, want)
		}
		return &relay{between: between}, nil
	}
	report, err := Do(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Runs) != 2 || report.Link != (LinkReport{1e9, 1}) {
		t.Fatalf("report: %+v", report)
	}
	for i, name := range []string{Direct, Lossless} {
		r := report.Runs[i]
		if r.Wire != "gloo" || r.Name != name || !r.ReplicasIdentical || r.ReplicaDistance != 0 || !r.SameAsDirect {
			t.Errorf("run %d: %+v", i, r)
		}
		// 64-32-10 is 2,410 parameters: at n = 2 each all-reduce sends 9,640 bytes each way.
		if minimum := int64(2 * 4 * 9640); r.AppBytes < minimum || r.WANBytes < r.AppBytes || r.WANBytes > 2*minimum {
			t.Errorf("%s: %d bytes of the app, %d on the link, want at least %d", name, r.AppBytes, r.WANBytes, minimum)
		}
		if r.Ratio < 0.99 || r.Ratio > 1.01 || r.Seconds <= 0 || r.FinalLoss <= 0 || r.Accuracy <= 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Through a parameter server both workers end with the same weights, and with the same in each run. Their pushes cross
// the link there, their pulls cross it back.
func TestParameterServer(t *testing.T) {
	o := small()
	o.Wires, o.Codes = []string{"pslite"}, []string{Lossless}
	o.Through = func(_ context.Context, r Run, between Between) (Path, error) {
		if want := (Run{Wire: "pslite", Name: Lossless}); r != want {
			t.Errorf("proxies are asked for %+v, want %+v", r, want)
		}
		return &relay{between: between, plain: true}, nil
	}
	report, err := Do(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// 64-32-10 is 9,640 bytes; two workers push and pull that at each of 4 steps, and one pushes and both pull it
	// before.
	const minimum = (4*4 + 3) * 9640
	direct, half := report.Runs[0], report.Runs[1]
	for _, r := range report.Runs {
		if r.Wire != "pslite" || !r.ReplicasIdentical || r.ReplicaDistance != 0 || !r.SameAsDirect || r.Accuracy <= 0 {
			t.Errorf("%+v", r)
		}
		if r.AppBytes < minimum || r.AppBytes > 2*minimum {
			t.Errorf("%s: the nodes have sent %d bytes, want at least %d", r.Name, r.AppBytes, minimum)
		}
	}
	if direct.WANBytes < minimum || direct.WANBytes > 2*minimum {
		t.Errorf("%d bytes on the link, want at least %d", direct.WANBytes, minimum)
	}
	if half.WANBytes < minimum*9/19 || half.WANBytes > direct.WANBytes*2/3 {
		t.Errorf("%d bytes on the link, of %d both ways, though answers do not pass it", half.WANBytes, direct.WANBytes)
	}
}

// One codec is for all that may lose something with replicas that stay alike, which two are for differs by wire.
func TestCodesOfRuns(t *testing.T) {
	for _, c := range []struct {
		wire, code string
		want       Run
		promise    promise
	}{
		{"gloo", "lossless", Run{}, sameWeights},
		{"gloo", "int8", Run{Gradients: "int8"}, sameReplicas},
		{"gloo", "int8+int4", Run{Gradients: "int8", Aggregates: "int4"}, likeReplicas},
		{"pslite", "lossless", Run{}, sameWeights},
		{"pslite", "int8", Run{Gradients: "int8", State: "int8"}, sameReplicas},
		{"pslite", "int8+int4", Run{Gradients: "int8", State: "int4"}, sameReplicas},
		{"pslite", "lossless+int4", Run{Gradients: "lossless", State: "int4"}, sameReplicas},
		{"pslite", "lossless+lossless", Run{Gradients: "lossless", State: "lossless"}, sameWeights},
	} {
		c.want.Wire, c.want.Name = c.wire, c.code
		if got := newRun(c.wire, c.code); got != c.want || got.promise() != c.promise {
			t.Errorf("%s, %s: %+v promises %d, want %+v, %d", c.wire, c.code, got, got.promise(), c.want, c.promise)
		}
	}
	for _, wire := range DefaultWires() {
		everything := Options{All: true, Wires: []string{wire}}.runs()
		for _, r := range (Options{Wires: []string{wire}}).runs() {
			if !slices.Contains(everything, r) {
				t.Errorf("%+v is missing where all runs are asked for", r)
			}
		}
	}
}

// A demo that shows everything has one run at least of every codec that may lose something, and the default demo no
// more than it had.
func TestAllShowsEveryMethod(t *testing.T) {
	shown := map[string]bool{}
	for _, code := range AllCodes("gloo") {
		g, _, _ := all.Pair(code)
		c, err := all.New(g)
		if err != nil {
			t.Errorf("%s: %v", code, err)
			continue
		}
		name, _, _ := strings.Cut(c.String(), "(")
		shown[name] = true
	}
	for _, name := range all.Names() {
		if lossy(name) && !shown[name] {
			t.Errorf("%s is not shown: add it to methods", name)
		}
	}
	for _, r := range (Options{All: true}).withDefaults().runs() {
		unbiased := slices.Contains([]string{"stochastic3", "terngrad", "qsgd"}, r.Name) || strings.HasPrefix(r.Name, "gspar(") || strings.HasPrefix(r.Name, "unisp(")
		if r.NoFeedback != unbiased {
			t.Errorf("%+v: unbiased methods, and no others, go without feedback", r)
		}
	}
	var names []string
	for _, r := range (Options{}).withDefaults().runs() {
		names = append(names, r.Wire+" "+r.Name)
	}
	if want := []string{"gloo direct", "gloo lossless", "gloo int4", "gloo int4+int4", "pslite direct", "pslite int4"}; !slices.Equal(names, want) {
		t.Errorf("the default runs are %q, want %q", names, want)
	}
}

// A path that changes a message of an all-reduce on its way to rank 1: in the first phase it changes the sum that both
// ranks get, in the second the copy of it that rank 1 gets. The demo tells the two apart.
func TestDifferencesAreSeen(t *testing.T) {
	const secondStep = 4 // messages of an all-reduce from rank 0: two in each phase
	for _, c := range []struct {
		message   int
		identical bool
		verdict   string
	}{
		{secondStep, true, "differ by 0 of their norm"},
		{secondStep + 2, false, "differ by 0."},
	} {
		o := small()
		o.Codes = []string{"3lc(s=1.75)+int4"}
		o.Through = func(_ context.Context, r Run, between Between) (Path, error) {
			if r.Gradients != "3lc(s=1.75)" || r.Aggregates != "int4" {
				t.Errorf("proxies are asked for %+v", r)
			}
			return &relay{between: between, negate: c.message + 1}, nil
		}
		var out bytes.Buffer
		report, err := Do(t.Context(), o, &out)
		if err != nil {
			t.Fatal(err)
		}
		r := report.Runs[1]
		if r.ReplicasIdentical != c.identical || r.SameAsDirect || (r.ReplicaDistance == 0) != c.identical || r.ReplicaDistance > 1 {
			t.Errorf("message %d was changed, and the demo sees %+v", c.message, r)
		}
		if said := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(said, c.verdict) {
			t.Errorf("message %d: %q is missing in\n%s", c.message, c.verdict, &out)
		}
	}
}

// A promise that is not kept is an error, after all runs are done: here the same changed messages pass through proxies
// that may lose nothing, and through such as may lose something only before sums are shared.
func TestBrokenPromisesAreErrors(t *testing.T) {
	const firstPhase, secondPhase = 5, 7 // messages of the second step
	for _, c := range []struct {
		code   string
		negate int
		want   string
	}{
		{Lossless, firstPhase, "gloo, lossless: the weights differ from the weights of the direct run"},
		{"int8", firstPhase, ""},
		{"int8", secondPhase, "gloo, int8: the ranks' weights differ"},
		{"int8+lossless", secondPhase, "gloo, int8+lossless: the ranks' weights differ"},
		{"lossless+int8", secondPhase, ""},
		{"lossless+int8", -secondPhase, "gloo, lossless+int8: the ranks' weights differ by "},
	} {
		o := small()
		if c.negate < 0 { // from then on, so that more steps bring the replicas farther apart
			o.Steps = 12
		}
		o.Codes = []string{c.code}
		o.Through = func(_ context.Context, _ Run, between Between) (Path, error) {
			return &relay{between: between, negate: c.negate}, nil
		}
		var out bytes.Buffer
		report, err := Do(t.Context(), o, &out)
		if len(report.Runs) != 2 {
			t.Errorf("%s: %d results, want both", c.code, len(report.Runs))
		}
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.code, err)
			}
			continue
		}
		if !errors.Is(err, ErrBroken) || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", c.code, err, c.want)
		}
		if !strings.Contains(out.String(), "ARE NOT") && !strings.Contains(out.String(), "IS NOT") {
			t.Errorf("%s: nothing is said of it in\n%s", c.code, &out)
		}
	}
}

// Replicas that differ are broken from maxDistance on, and where their distance is no number.
func TestReplicasMustStayClose(t *testing.T) {
	run := Run{Wire: "gloo", Name: "int8+int4", Gradients: "int8", Aggregates: "int4"}
	for distance, holds := range map[float64]bool{0: true, 0.0199: true, maxDistance: false, 1: false, math.Inf(1): false, math.NaN(): false} {
		if err := run.kept(Result{ReplicaDistance: distance}); (err == nil) != holds || err != nil && !errors.Is(err, ErrBroken) {
			t.Errorf("a distance of %v: %v, want it to hold: %v", distance, err, holds)
		}
	}
}

func TestFailuresNameTheRun(t *testing.T) {
	o := small()
	o.Codes = []string{Lossless}
	for name, c := range map[string]struct {
		through func(context.Context, Run, Between) (Path, error)
		want    string
	}{
		"no proxies": {nil, "gloo, lossless: no proxies"},
		"start": {func(context.Context, Run, Between) (Path, error) {
			return nil, errors.New("no certificate")
		}, "gloo, lossless: no certificate"},
		"lost": {func(_ context.Context, _ Run, between Between) (Path, error) {
			return &relay{between: between, cut: 3}, nil
		}, "gloo, lossless: rank "},
	} {
		o.Through = c.through
		report, err := Do(t.Context(), o, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if len(report.Runs) != 1 {
			t.Errorf("%s: %d results, want the direct run's", name, len(report.Runs))
		}
	}
}

// A cancelled demo ends, even while its ranks are waiting.
func TestCancelledDemoEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := small()
	o.Codes = []string{Lossless}
	o.Through = func(_ context.Context, _ Run, between Between) (Path, error) {
		return &relay{between: between, stuck: cancel}, nil
	}
	if _, err := Do(ctx, o, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestReportHasStableNames(t *testing.T) {
	got, err := json.Marshal(Report{Runs: []Result{{Wire: "gloo", Name: "direct", ReplicasIdentical: true}}, Link: LinkReport{50e6, 60}})
	want := `{"runs":[{"wire":"gloo","name":"direct","seconds":0,"app_bytes":0,"wan_bytes":0,"ratio":0,"final_loss":0,"accuracy":0,` +
		`"replicas_identical":true,"replica_distance":0,"same_as_direct":false}],"link":{"rate_bps":50000000,"rtt_ms":60}}`
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

func TestValidateListsEveryError(t *testing.T) {
	err := Options{
		Link: Link{Rate: -1, RTT: -1, Loss: 1}, Wires: []string{"mpi"}, Codes: []string{"direct", "a", "int4", "int4", "+b", "a+", "int4+topk(block=1)"}, Steps: 1,
	}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"rate of -1", "round-trip time of -1ns", "loss of 1", `wire "mpi"`, `"direct": it is always there`, `"a": `, `"int4" is named twice`, `"+b"`, `"a+"`, "topk(block=1) cuts tensors into blocks of 4 bytes", "1 steps"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	if err := (Options{Wires: []string{"gloo", "gloo"}}).Validate(); err == nil {
		t.Error("the same wire twice: no error")
	}
	if err := (Options{Wires: []string{"nvflare", "flower"}, Codes: []string{"int8+lossless"}}).Validate(); err == nil {
		t.Error("two codecs on flower, where models travel both ways, are taken")
	}
	if err := (Options{}).Validate(); err != nil {
		t.Errorf("the zero Options: %v", err)
	}
}

// A relay stands for two proxies. Of the messages of all-reduces that pass from the far site to the near one it negates
// the floats of one, or closes everything before one, counted from 1; 0: none. If stuck is set, it calls that on the
// first connection and carries nothing.
type relay struct {
	between     Between
	negate, cut int
	stuck       func()
	plain       bool // every byte passes, on any wire

	mu    sync.Mutex
	close []io.Closer
}

func (r *relay) Forward(target netip.AddrPort) (netip.AddrPort, error) {
	across, err := r.between(target)
	if err != nil {
		return across, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return across, err
	}
	r.keep(l)
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			if r.keep(near); r.stuck != nil {
				r.stuck()
				continue
			}
			far, err := net.Dial("tcp", across.String())
			if err != nil {
				near.Close()
				return
			}
			r.keep(far)
			go func() { io.Copy(far, near); far.Close() }()
			go func() {
				if r.plain {
					io.Copy(near, far)
				} else {
					r.back(near, far)
				}
				near.Close()
				far.Close()
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort(), nil
}

// Backward returns the target itself: answers do not pass the link.
func (r *relay) Backward(target netip.AddrPort) (netip.AddrPort, error) { return target, nil }

// back carries op by op, each a preamble of 48 bytes and perhaps a payload (see package ring).
func (r *relay) back(near, far net.Conn) {
	const preamble, payload, allReduce = 48, 1, 4
	head := make([]byte, preamble)
	for messages := 0; ; {
		if _, err := io.ReadFull(far, head); err != nil {
			return
		}
		body := make([]byte, binary.LittleEndian.Uint64(head)-preamble)
		if _, err := io.ReadFull(far, body); err != nil {
			return
		}
		if head[8] == payload && head[23] == allReduce {
			messages++
			if messages == r.cut {
				return
			}
			if messages == r.negate || r.negate < 0 && messages >= -r.negate && messages%2 == 1 {
				for i := 3; i < len(body); i += 4 {
					body[i] ^= 0x80
				}
			}
		}
		near.Write(append(head, body...))
	}
}

func (r *relay) keep(c io.Closer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.close = append(r.close, c)
}

func (r *relay) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.close {
		c.Close()
	}
	return nil
}

package config

import (
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/all"
)

// A rule by which aggregates may lose something is reported each time, and so is a codec too coarse for them. Neither
// is an error.
func TestLossyAggregates(t *testing.T) {
	const (
		lossy  = `jobs: [{name: a, networks: [10.1.0.0/16], sums: gradients, aggregates: lossy}, {name: b, networks: [10.2.0.0/16], sums: gradients}]`
		differ = `8: jobs[0].aggregates: lossy: the replicas' weights will differ`
	)
	for _, x := range []struct {
		policy         string
		errors, warned string // how the line of policy[N] begins; "": there is none
	}{
		{`[]`, ``, ``},
		{`[{role: gradient, codec: 3lc}]`, ``, ``},
		{`[{role: gradient, codec: 3lc, feedback: false}]`, ``, ``},
		{`[{role: gradient, codec: "3lc(s=1.25)"}]`, ``, ``},
		{`[{role: gradient, codec: "3lc(s=auto)"}]`, ``, ``},
		{`[{role: gradient, codec: "3lc(s=1.75)"}]`, ``, `[0].codec: 3lc(s=1.75) lags a dozen gradients behind`},
		{`[{role: [gradient, state], codec: "3lc(block=4096,s=1.9)"}]`, ``, `[0].codec: 3lc(block=4096,s=1.9) lags a dozen`},
		{`[{role: gradient, codec: "3lc(block=15)"}]`, `[0].codec: 3lc(block=15) cuts tensors into blocks of 240 bytes`, ``},
		{`[{role: [gradient, state], codec: 3lc}]`, ``, ``},
		{`[{role: aggregate, codec: int8}]`, ``, ``},
		{`[{role: aggregate, codec: int4}]`, ``, ``},
		{`[{role: aggregate, codec: "int4(block=512)"}]`, ``, ``},
		{`[{role: aggregate, codec: "int4(block=65536)"}]`, ``, `[0].codec: int4(block=65536) is coarse for aggregates, of each value it leaves 1`},
		{`[{role: aggregate, codec: 3lc}]`, ``, `[0].codec: 3lc is coarse for aggregates, of each value it leaves 97 %`},
		{`[{role: aggregate, codec: "3lc(s=1.75)"}]`, ``, `[0].codec: 3lc(s=1.75) is coarse for aggregates, of each value it leaves 100 %`},
		{`[{role: [gradient, aggregate], codec: 3lc}]`, ``, `[0].codec: 3lc is coarse`},
		{`[{role: aggregate, codec: int4, feedback: false}]`, `[0].feedback: aggregates cannot do without`, ``},
		// A codec that is right only on average is for gradients.
		{`[{role: gradient, codec: qsgd}]`, ``, ``},
		{`[{role: aggregate, codec: qsgd}]`, `[0].codec: qsgd is right on average only`, ``},
		{`[{role: [gradient, state], codec: "gspar(kappa=0.1)"}]`, `[0].codec: gspar(kappa=0.1) is right on average only`, ``},
		{`[{role: gradient, codec: terngrad, flush_every: 9}]`, `[0].flush_every: terngrad has no feedback`, ``},
		// A rule that names no role takes aggregates too,
		{`[{codec: qsgd}]`, `[0].codec: qsgd is right on average only`, ``},
		{`[{codec: 3lc}]`, ``, `[0].codec: 3lc is coarse`},
		{`[{codec: int8, feedback: false}]`, `[0].feedback: aggregates cannot do without`, ``},
		// unless another has taken them, or its job's travel exactly.
		{`[{role: aggregate, codec: int4}, {codec: 3lc, feedback: false}]`, ``, ``},
		{`[{role: aggregate, min_bytes: 1MiB, codec: int4}, {codec: 3lc}]`, ``, `[1].codec: 3lc is coarse`},
		{`[{job: b, codec: 3lc, feedback: false}]`, ``, ``},
		{`[{job: b, role: aggregate, codec: int4}]`, `[0].codec: int4 loses something of aggregates, which no job`, ``},
	} {
		text := strings.NewReplacer(
			"jobs: [{name: resnet, networks: [10.0.0.0/8], ranks: 3, sums: gradients}]", lossy,
			"policy: [{role: gradient, codec: lossless}]", "policy: "+x.policy).Replace(good)
		_, problems := parse("f", []byte(text), known())
		begins(t, x.policy+": errors", problems.Errors(), x.errors)
		if w := problems.Warnings(); len(w) == 0 || !strings.HasPrefix(w[0].Error(), "f:"+differ) {
			t.Errorf("%s: %v, want a first warning that begins with %q", x.policy, w, differ)
		} else {
			begins(t, x.policy+": warnings", w[1:], x.warned)
		}
	}
}

// begins checks that there is one problem, whose line begins like that after "f:9: policy", or none.
func begins(t *testing.T, what string, got Problems, want string) {
	t.Helper()
	if want == "" && len(got) == 0 || want != "" && len(got) == 1 && strings.HasPrefix(got[0].Error(), "f:9: policy"+want) {
		return
	}
	t.Errorf("%s: %v, want %q", what, got, want)
}

// The loss is measured, and is that of the codec's bound: 1/255 of the largest of 1,024 normal values, uniformly
// distributed, for int8; 3LC sends little.
func TestLoss(t *testing.T) {
	for text, want := range map[string][2]float64{
		"lossless": {0, 0}, "int8": {0.006, 0.009}, "int4": {0.1, 0.14}, "3lc": {0.8, 1}, "3lc(s=1.9)": {0.9, 1},
	} {
		c, err := all.New(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := loss(c); got < want[0] || got > want[1] {
			t.Errorf("%s loses %v, want %v", text, got, want)
		}
	}
}

// Loss in rings that nothing on this host can prove is reported; where the user's word is enough, or no loss is asked
// for, it is not.
func TestSumsThatNobodySees(t *testing.T) {
	const none, warning = "", "f:8: jobs[0].sums: proved: with mode: tproxy the job's processes are on other hosts"
	for _, x := range []struct{ mode, sums, policy, want string }{
		{"tproxy", "", "[{role: gradient, codec: 3lc}]", warning},
		{"tproxy", ", sums: proved", "[{codec: int8}]", warning},
		{"tproxy", ", sums: gradients", "[{role: gradient, codec: 3lc}]", none},
		{"tproxy", ", sums: none", "[{role: gradient, codec: 3lc}]", none},
		{"redirect", "", "[{role: gradient, codec: 3lc}]", none},
		{"tproxy", "", "[{protocol: pslite, role: gradient, codec: 3lc}]", none},
		{"tproxy", "", "[{role: state, codec: 3lc}, {role: gradient, codec: lossless}]", none},
	} {
		text := strings.NewReplacer("mode: redirect", "mode: "+x.mode, ", sums: gradients}]", x.sums+"}]",
			"policy: [{role: gradient, codec: lossless}]", "policy: "+x.policy).Replace(good)
		_, problems := parse("f", []byte(text), known())
		if len(problems) == 0 && x.want == none || len(problems) == 1 && x.want != none && strings.HasPrefix(problems[0].Error(), x.want) {
			continue
		}
		t.Errorf("%+v: %v", x, problems)
	}
}

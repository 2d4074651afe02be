package admin

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/tensor"
)

// Each reason has a sentence of its own, in full.
func TestEachReasonHasASentence(t *testing.T) {
	seen := map[string]string{}
	for why := tensor.OK; why.Valid(); why++ {
		got := Explain(&proxy.TensorInfo{Reason: why.String(), Codec: "int4", Role: "gradient", Protocol: "gloo"}, func(string) bool { return true })
		if !strings.HasSuffix(got.Why, ".") || strings.HasPrefix(got.Why, "The reason is") || seen[got.Why] != "" {
			t.Errorf("%v: %q, as %q", why, got.Why, seen[got.Why])
		}
		seen[got.Why] = why.String()
	}
}

// A name that a peer has made up stays one YAML string.
func TestAdviceQuotesNames(t *testing.T) {
	got := Explain(&proxy.TensorInfo{Reason: "no rule", Role: "gradient", Job: "x}\n- {evil: true"}, func(string) bool { return false })
	if strings.Count(got.YAML, "\n") != 2 || !strings.Contains(got.YAML, `job: "x}\n- {evil: true"`) {
		t.Errorf("%s", got.YAML)
	}
}

// Advice names the hosts that the tensor has, a rule where none may be there, and no codec that the tensor has already.
func TestAdviceFitsTheTensor(t *testing.T) {
	for _, x := range []struct {
		t     proxy.TensorInfo
		holds []string
	}{
		{proxy.TensorInfo{Reason: "no rule", Role: "unknown", Protocol: "gloo", From: "10.1.0.7", To: "2001:db8::7"},
			[]string{`networks: ["10.1.0.7/32", "2001:db8::7/128"], sums: gradients}`, "role: gradient, codec: \"int4\"}", "# merge into jobs", "# merge into policy"}},
		{proxy.TensorInfo{Reason: "ranks unknown", From: "10.1.0.7:39406", To: "[2001:db8::7]:44137"}, []string{`networks: ["10.1.0.7/32", "2001:db8::7/128"], ranks: 4}`}},
		{proxy.TensorInfo{Reason: "ranks unknown", From: "rank 0 of 2", To: "rank 1 of 2", Hosts: [2]netip.Addr{netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("10.2.0.7")}},
			[]string{`networks: ["10.1.0.7/32", "10.2.0.7/32"], ranks: 4}`}},
		{proxy.TensorInfo{Reason: "ranks unknown", From: "worker 1", To: "10.1.0.7"}, []string{"networks: [10.0.0.0/8], ranks: 4}"}},
		{proxy.TensorInfo{Reason: "ranks unknown", Job: "train"}, []string{"- {name: train, ranks: 4}", "add the last key"}},
		{proxy.TensorInfo{Reason: "guarded", Role: "gradient", Codec: "int8"}, []string{`codec: "lossless"`}},
		{proxy.TensorInfo{Reason: "guarded", Role: "gradient", Codec: "3lc"}, []string{`codec: "int8"`}},
		{proxy.TensorInfo{Reason: "implausible", Role: "gradient", Codec: "3lc"}, []string{`codec: "lossless"`}}, // the check does not ask for the codec
		{proxy.TensorInfo{Reason: "no memory", Role: "gradient"}, []string{"# merge into state"}},
	} {
		got := Explain(&x.t, func(string) bool { return false })
		for _, part := range x.holds {
			if !strings.Contains(got.YAML, part) {
				t.Errorf("%s, %s: no %q in\n%s", x.t.Reason, x.t.Codec, part, got.YAML)
			}
		}
	}
	if got := Explain(&proxy.TensorInfo{Reason: "no rule", Role: "unknown", Protocol: "gloo"}, func(string) bool { return false }); !strings.HasPrefix(got.Change, "Where no rule") {
		t.Errorf("%s", got.Change)
	}
}

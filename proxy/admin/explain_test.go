package admin

import (
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

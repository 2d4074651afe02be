package config

import (
	"fmt"
	"strings"
	"testing"
)

// rest is a configuration without the parts that a test adds.
const rest = "site: paris\ntunnel: {insecure: true, listen: \"127.0.0.1:7443\"}\npeers: [{name: tokyo, id: \"spiffe://lab/tokyo\", networks: [10.2.0.0/16]}]\n"

// Candidates are codecs, each once, not too many, and of use to somebody.
func TestShadow(t *testing.T) {
	for text, want := range map[string]string{
		`shadow: ["3lc(s=1.75)", int8, lossless]`: "",
		`shadow: int8`:       "",
		`shadow: [verbatim]`: "shadow[0]: verbatim is no codec",
		`jobs: [{name: a, networks: [10.0.0.0/8], budget: {then: [int8]}}]`:                                                                  "jobs[0].budget.gb_per_day: it is missing: write the gigabytes of a day",
		`jobs: [{name: a, networks: [10.0.0.0/8], budget: {gb_per_day: 5, then: [int8, int8]}}]`:                                             "jobs[0].budget.then[1]: int8 is there twice",
		`jobs: [{name: a, networks: [10.0.0.0/8], budget: {gb_per_day: -5}}]`:                                                                `jobs[0].budget.gb_per_day: "-5" is no budget: write the gigabytes of a day`,
		`jobs: [{name: a, networks: [10.0.0.0/8], budget: {gb_per_day: 0}}]`:                                                                 `jobs[0].budget.gb_per_day: "0" is no budget: write the gigabytes of a day`,
		`jobs: [{name: a, networks: [10.0.0.0/8], budget: {gb_per_day: 5e10}}]`:                                                              `jobs[0].budget.gb_per_day: "5e10" is more than 1e9: write the gigabytes (10⁹ bytes) of a day`,
		`jobs: [{name: a, networks: [10.0.0.0/8], budget: {gb_per_day: 5, then: [rice]}}]`:                                                   "jobs[0].budget.then[0]: rice takes int32, uint32, int64, uint64, and tensors that may lose something are floating-point numbers",
		`shadow: [int8, delta-binary]`:                                                                                                       "shadow[1]: delta-binary takes int32, uint32, int64, uint64",
		`jobs: [{name: a, networks: [10.0.0.0/8], budget: {gb_per_day: 5, then: [zip]}}]`:                                                    "jobs[0].budget.then[0]: ",
		"jobs: [{name: a, networks: [10.0.0.0/8], budget: {gb_per_day: 5, then: [int8, \"3lc\"]}}]\npolicy: [{role: gradient, codec: int4}]": "jobs[0].budget.then: int4 of policy[0] is not in the list",
		"jobs: [{name: a, networks: [10.0.0.0/8], budget: {gb_per_day: 5, then: [int8, int4]}}]\npolicy: [{role: gradient, codec: int4}]":    "",
		`shadow: [int8, int8]`: "shadow[1]: int8 is there twice",
		`shadow: [int9]`:       "shadow[0]: ",
		`shadow: [int8, int4, 3lc, fp16, bf16, onebit, dgc, topk, drive]`: "shadow: 9 candidates are too many",
		"admin: off\nshadow: [int8]":                                      "shadow: admin is off, so nobody can see the results",
	} {
		c, problems := parse("f", []byte(rest+text+"\n"), known())
		if got := fmt.Sprint(problems); want == "" && (len(problems.Errors()) > 0 || strings.Contains(got, "is not in the list")) || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q", text, got, want)
		}
		if want == "" && strings.HasPrefix(text, "shadow") && (len(c.Shadow) == 0 || !c.MayLose()) {
			t.Errorf("%s: %q", text, c.Shadow)
		}
	}
}

// Whatever lets a tensor lose something, or names a candidate that does, has the proxy look for proofs of roles.
func TestMayLose(t *testing.T) {
	const job = "jobs: [{name: a, networks: [10.0.0.0/8]"
	for text, want := range map[string]bool{
		"":                                  false,
		job + "}]":                          false,
		job + ", sums: gradients}]":         false,
		job + ", aggregates: lossy}]":       true,
		job + ", budget: {gb_per_day: 5}}]": false,
		job + ", budget: {gb_per_day: 5, then: [int8]}}]": true,
		"policy: [{role: gradient, codec: int8}]":         true,
		"shadow: [int8]": true,
	} {
		c, problems := parse("f", []byte(rest+text+"\n"), known())
		if len(problems.Errors()) > 0 {
			t.Errorf("%s: %v", text, problems)
		} else if got := c.MayLose(); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

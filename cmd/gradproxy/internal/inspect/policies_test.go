package inspect

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
)

// costs returns the costs of policies by their texts, and checks the properties that all costs have in common.
func costs(t *testing.T, r *Report) map[string]Cost {
	t.Helper()
	raw, lossless := 0, 0
	for _, c := range r.Connections {
		raw += c.FromClient.Bytes + c.FromServer.Bytes
		lossless += c.FromClient.Lossless + c.FromServer.Lossless
	}
	if len(r.Policies) == 0 || r.Policies[0].Codec != Lossless || r.Policies[0].Bytes != lossless {
		t.Fatalf("%+v: lossless is not first, or has not the %d bytes of all connections", r.Policies, lossless)
	}
	all := map[string]Cost{}
	for _, c := range r.Policies {
		o := &c.Roles
		var sum RoleCost
		for _, part := range []RoleCost{o.Gradient, o.Aggregate, o.State, o.Exact, o.Unknown, o.Opaque} {
			sum.RawBytes += part.RawBytes
			sum.Bytes += part.Bytes
		}
		if sum.RawBytes != raw || c.RawBytes != raw || sum.Bytes != c.Bytes || c.Ratio != float64(raw)/float64(c.Bytes) {
			t.Errorf("%s: %+v, whose parts are %+v; the connections have %d bytes", c.Codec, c, sum, raw)
		}
		all[c.Codec] = c
	}
	return all
}

// Of 9 steps of a simulated job 7 have roles, and the last 4 of these come after the tensors have earned trust. So that
// part of a role's bytes may shrink, and to the size that the codec promises.
func TestPoliciesOfASimulatedJob(t *testing.T) {
	r, err := Read(bytes.NewReader(twoRanks()), Config{Sums: parser.SumsGradients,
		Policies: []string{Lossless, "3lc(s=1.75)", "int8", "int8+int8", "int4+int4", "verbatim+verbatim"}})
	if err != nil {
		t.Fatal(err)
	}
	all := costs(t, r)
	exact := all[Lossless].Roles
	raw := exact.Gradient.RawBytes
	if raw != 14*15020 || exact.Aggregate.RawBytes != raw {
		t.Fatalf("%+v, want %d bytes of each role", exact, 14*15020)
	}
	for _, x := range []struct {
		policy   string
		role     func(RoleCosts) RoleCost
		of       float64 // bytes that the codec makes of one byte, frames included
		lossless bool
	}{
		{"3lc(s=1.75)", func(c RoleCosts) RoleCost { return c.Gradient }, 1 / 135., false},
		{"3lc(s=1.75)", func(c RoleCosts) RoleCost { return c.Aggregate }, 0, true},
		{"int8", func(c RoleCosts) RoleCost { return c.Gradient }, 1 / 3.9, false},
		{"int8", func(c RoleCosts) RoleCost { return c.Aggregate }, 0, true},
		{"int8+int8", func(c RoleCosts) RoleCost { return c.Aggregate }, 1 / 3.9, false},
		{"int4+int4", func(c RoleCosts) RoleCost { return c.Gradient }, 1 / 7.4, false},
		{"int4+int4", func(c RoleCosts) RoleCost { return c.Aggregate }, 1 / 7.4, false},
	} {
		got, plain := x.role(all[x.policy].Roles), x.role(exact)
		want := float64(raw)*x.of*4/7 + float64(plain.Bytes)*3/7
		if x.lossless {
			want = float64(plain.Bytes)
		}
		if d := float64(got.Bytes) / want; d < 0.9 || d > 1.1 {
			t.Errorf("%s: %d bytes, want about %.0f", x.policy, got.Bytes, want)
		}
	}
	v := all["verbatim+verbatim"].Roles.Gradient
	if more := v.Bytes - v.RawBytes; more <= 0 || more > v.RawBytes/100 {
		t.Errorf("verbatim gradients take %d bytes more", more)
	}
	if a, b := all["int8"].Roles.Unknown, exact.Unknown; a != b || a.RawBytes == 0 {
		t.Errorf("what is of no role costs %+v with int8, %+v without", a, b)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "\n3lc(s=1.75)  ") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// Without sums: gradients no policy loses anything, so all cost the same.
func TestPoliciesWithoutRoles(t *testing.T) {
	r, err := Read(bytes.NewReader(twoRanks()), Config{Policies: DefaultPolicies()})
	if err != nil {
		t.Fatal(err)
	}
	for text, c := range costs(t, r) {
		if c.Bytes != r.Policies[0].Bytes || c.Roles.Gradient.RawBytes+c.Roles.Aggregate.RawBytes != 0 {
			t.Errorf("%s: %+v", text, c)
		}
	}
	if len(r.Policies) != len(DefaultPolicies()) {
		t.Errorf("%d policies", len(r.Policies))
	}
}

// Too little memory makes policies look worse than they are, which is said.
func TestPoliciesWithoutMemory(t *testing.T) {
	r, err := Read(bytes.NewReader(twoRanks()), Config{Sums: parser.SumsGradients, MaxCopies: 1000, Policies: []string{"int8+int8"}})
	if err != nil {
		t.Fatal(err)
	}
	all := costs(t, r)
	if c := all["int8+int8"]; !c.ShortOfMemory || c.Roles.Gradient.Bytes != all[Lossless].Roles.Gradient.Bytes || all[Lossless].ShortOfMemory {
		t.Errorf("%+v, lossless %+v", c, all[Lossless])
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "there was no memory for all tensors") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestPolicyTexts(t *testing.T) {
	for text, says := range map[string]string{
		"":             "write CODEC for gradients",
		"+int8":        "write CODEC for gradients",
		"int8+":        "write CODEC for gradients",
		"int9":         "no codec is called int9",
		"int8+int9":    "no codec is called int9",
		"3lc(s=3)":     "s is 3",
		"int8+int8+a":  "int8+a",
		"lossless":     "",
		"3lc(s=1.75)":  "",
		"3lc+int4":     "",
		"verbatim+3lc": "",
	} {
		err := CheckPolicy(text)
		if (err == nil) != (says == "") || err != nil && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
	if r, err := Read(nil, Config{Policies: []string{"int9"}}); err == nil || r != nil {
		t.Errorf("a policy that there is not: %v, %v", r, err)
	}
}

// near reports whether two costs of the same bytes differ by no more than a hundredth.
func near(a, b RoleCost) bool { return a.RawBytes == b.RawBytes && 100*abs(a.Bytes-b.Bytes) <= b.Bytes }

// Of recorded Gloo jobs the parts add up. They end before any tensor has earned trust, so proxies lose nothing of them
// under any policy, and gradients and sums cost as much as losslessly, but for where blocks are cut.
// TestRolesOfASimulatedJob has a longer job.
func TestPoliciesOfGlooCaptures(t *testing.T) {
	for _, file := range require.Captures(t, "gloo-*.pcap*") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			if n := glooTruth(t, truthText(t, file)).steps; n > 5 {
				t.Fatalf("the job has %d steps, of which the last may lose something", n)
			}
			all := costs(t, read(t, file, Config{Sums: parser.SumsGradients, Policies: DefaultPolicies()}))
			exact, g, both := all[Lossless], all["3lc"], all["3lc+int4"]
			if exact.Roles.Gradient.RawBytes == 0 || exact.Roles.Aggregate.RawBytes == 0 {
				t.Errorf("nothing is gradient, or nothing aggregate: %+v", exact.Roles)
			}
			for _, lossy := range []Cost{g, both} {
				for _, part := range [][2]RoleCost{{lossy.Roles.Gradient, exact.Roles.Gradient}, {lossy.Roles.Aggregate, exact.Roles.Aggregate},
					{lossy.Roles.Exact, exact.Roles.Exact}, {lossy.Roles.Opaque, exact.Roles.Opaque}} {
					if !near(part[0], part[1]) {
						t.Errorf("%s: %+v, losslessly %+v", lossy.Codec, part[0], part[1])
					}
				}
			}
		})
	}
}

package advise

import (
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/shadow"
	"github.com/gradproxy/gradproxy/proxy/trials"
)

func candidate(codec string, predicted int64, error float64) trials.Candidate {
	return trials.Candidate{Result: shadow.Result{Codec: codec, Raw: 1e6, Error: error, Coding: 1}, Predicted: predicted}
}

// The choice is the candidate with fewest bytes, over all peers, that the guard lets go on, that saves enough and that
// is quick enough.
func TestChoice(t *testing.T) {
	group := func(peer string, list ...trials.Candidate) trials.Group {
		return trials.Group{Peer: peer, Job: "resnet", Role: "gradient", Raw: 1000, Wire: 900, Moved: 1000, Moving: 1, Candidates: list}
	}
	far := candidate("onebit", 10, 0.9)
	far.Behind = 100
	grows := candidate("onebit", 10, 0.9)
	grows.Early = grows.Raw / 2
	near := candidate("onebit", 10, 0.9)
	near.Near = near.Raw / 10
	few := candidate("onebit", 10, 0.9)
	few.Near = few.Raw / 100
	slow := candidate("slow", 20, 0.2)
	slow.Coding = 2e6
	for name, c := range map[string]struct {
		groups []trials.Group
		want   string
		then   int64
	}{
		"fewest bytes":           {[]trials.Group{group("a", candidate("int8", 250, 0.01), candidate("3lc", 30, 0.7))}, "3lc", 30},
		"over all peers":         {[]trials.Group{group("a", candidate("int8", 250, 0), candidate("3lc", 30, 0)), group("b", candidate("int8", 250, 0), candidate("3lc", 899, 0))}, "int8", 500},
		"the guard":              {[]trials.Group{group("a", far, candidate("int8", 250, 0.01))}, "int8", 250},
		"still grows":            {[]trials.Group{group("a", grows, candidate("int8", 250, 0.01))}, "int8", 250},
		"near the guard":         {[]trials.Group{group("a", near, candidate("int8", 250, 0.01))}, "int8", 250},
		"few near the guard":     {[]trials.Group{group("a", few, candidate("int8", 250, 0.01))}, "onebit", 10},
		"too slow":               {[]trials.Group{group("a", slow, candidate("int8", 250, 0.01))}, "int8", 250},
		"too little saved":       {[]trials.Group{group("a", candidate("int8", 890, 0.01))}, "", 900},
		"not sampled for a peer": {[]trials.Group{group("a", candidate("int8", 250, 0)), group("b")}, "int8", 1150},
		"nothing sampled":        {[]trials.Group{group("a")}, "", 900},
	} {
		r := &trials.Report{Codecs: []string{"int8", "3lc", "onebit", "slow"}, Seconds: 3600, Groups: append(c.groups, trials.Group{Role: "unknown", Raw: 7, Wire: 8})}
		a := Of(r)
		got, why := "", ""
		if len(a.Choices) > 0 {
			got, why = a.Choices[0].Codec, a.Choices[0].Why
		}
		if got != c.want || a.Then != c.then+8 {
			t.Errorf("%s: %q, %d bytes because %s; want %q, %d", name, got, a.Then, why, c.want, c.then+8)
		}
		if want := "  - {job: resnet, role: gradient, min_bytes: 1024, codec: \"" + c.want + "\"}\n"; c.want != "" && a.YAML != "policy:\n"+want || c.want == "" && a.YAML != "" {
			t.Errorf("%s: rules %q", name, a.YAML)
		}
		if len(a.Choices) > 0 && c.want == "" && !strings.Contains(why, "less than a tenth") {
			t.Errorf("%s: %s", name, why)
		}
	}
}

// Where each candidate lacks results for one of the peers there is no choice yet, and JSON has a list all the same.
func TestNoResultsForAllPeers(t *testing.T) {
	group := func(peer, codec string) trials.Group {
		return trials.Group{Peer: peer, Job: "resnet", Role: "gradient", Raw: 1000, Wire: 900, Candidates: []trials.Candidate{candidate(codec, 250, 0)}}
	}
	a := Of(&trials.Report{Codecs: []string{"int8", "3lc"}, Seconds: 1, Groups: []trials.Group{group("a", "int8"), group("b", "3lc")}})
	if len(a.Choices) != 1 || a.Choices[0].Codec != "" || a.Choices[0].Options == nil || a.Choices[0].Why != "no candidate has coded tensors for all peers yet" || a.YAML != "" || a.Then != a.Now {
		t.Errorf("%+v", a)
	}
}

// Names of jobs that YAML reads as something else are quoted.
func TestNamesInRules(t *testing.T) {
	for job, want := range map[string]string{"resnet-50": "resnet-50", "no": `"no"`, "Yes": `"Yes"`, "50": `"50"`, "a: b": `"a: b"`, "*x": `"*x"`, "l\"m": `"l\"m"`, "é\n": `"é\n"`} {
		got := rules([]Choice{{Job: job, Role: "gradient", Codec: "3lc(s=1.75)"}})
		if got != "policy:\n  - {job: "+want+", role: gradient, min_bytes: 1024, codec: \"3lc(s=1.75)\"}\n" {
			t.Errorf("%q: %s", job, got)
		}
	}
}

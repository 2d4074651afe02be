package config

import (
	"strings"
	"testing"
)

// The answer of a peer's running proxy is compared as its file would be, but for the keys that a tunnel has shown to be
// right by coming up.
func TestLive(t *testing.T) {
	no := []string{}
	for name, x := range map[string]struct {
		paris, tokyo []string
		want         string // part of the only problem; "": there is none
	}{
		"mirrors":          {no, no, ""},
		"translated port":  {[]string{"tokyo.example:7443", "tokyo.example:7444"}, no, ""},
		"narrow may_dial":  {no, []string{"10.2.0.0/16:1024-65535", "10.2.0.0/16:1024-50000"}, "tokyo refuses some"},
		"references":       {no, []string{"site: tokyo", "site: tokyo\nreferences: 0"}, "paris.yaml: references: of use to nobody with tokyo"},
		"times differ":     {no, []string{"site: tokyo", "site: tokyo\nrefused_retry: 5s"}, "paris.yaml: refused_retry: 30s here, 5s at tokyo"},
		"resume":           {no, []string{"site: tokyo", "site: tokyo\ntunnel: {resume: 1m}"}, "tunnel.resume: 10m0s here, 1m0s at tokyo"},
		"padding":          {no, []string{"site: tokyo", "site: tokyo\ntunnel: {pad: 16KiB}"}, "tunnel.pad: only tokyo pads: the packets of paris show the sizes of its messages"},
		"job missing":      {no, []string{"jobs: [{name: resnet, networks: [10.0.0.0/8], ranks: 2}]\n", ""}, "tokyo has no job resnet"},
		"job missing here": {[]string{"jobs: [{name: resnet, networks: [10.0.0.0/8], ranks: 2}]\n", ""}, no, "the running proxy of tokyo: jobs[0]: paris has no job resnet"},
		"job otherwise":    {no, []string{"ranks: 2", "ranks: 3"}, "paris.yaml:6: jobs[0]: tokyo describes job resnet otherwise in its running proxy"},
		"third site's":     {no, []string{"networks: [10.0.0.0/8]", "networks: [10.0.0.0/8, 192.168.9.0/24]"}, ""}, // tokyo does not tell
		"job of others":    {no, []string{"jobs: [", "jobs: [{name: elsewhere, networks: [10.2.0.0/16, 10.9.0.0/16]}, "}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sites := twoFiles(t, x.paris, x.tokyo)
			problems, err := sites[0].Live("tokyo", sites[1].Excerpt("paris"))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case x.want == "" && len(problems) > 0, x.want != "" && len(problems) != 1:
				t.Errorf("%d problems:\n%v", len(problems), problems)
			case x.want != "" && !strings.Contains(problems[0].Error(), x.want):
				t.Errorf("%v\nlacks %q", problems[0], x.want)
			}
		})
	}
}

// An excerpt is of one peer only, and says nothing of the others, of the policy or of files.
func TestExcerptOfOnePeer(t *testing.T) {
	c, problems := parse("paris.yaml", []byte(`site: paris
tunnel: {cert: secret.pem, key: secret.key}
peers:
  - {name: tokyo, dial: "tokyo.example:7443", networks: [10.2.0.0/16], may_dial: ["10.1.0.0/16:1024-65535"]}
  - {name: osaka, dial: "osaka.example:7443", networks: [10.3.0.0/16], may_dial: ["10.4.0.0/16:22"]}
jobs: [{name: private, networks: [10.1.0.0/16, 10.3.0.0/16]}, {name: shared, networks: [10.1.0.0/16, 10.2.0.0/16, 10.3.0.0/16]}]
policy: [{role: gradient, codec: int8}]
`), known())
	if len(problems.Errors()) > 0 {
		t.Fatal(problems)
	}
	said := string(c.Excerpt("tokyo"))
	for _, other := range []string{"osaka", "10.3", "10.4", "private", "secret", "int8", "example"} {
		if strings.Contains(said, other) {
			t.Errorf("tokyo is told of %s:\n%s", other, said)
		}
	}
	if !strings.Contains(said, `"shared"`) {
		t.Errorf("tokyo is not told of its own job:\n%s", said)
	}
	if c.Excerpt("berlin") != nil {
		t.Error("a peer that is not known is told something")
	}
}

// A peer's words that have not the form of a configuration's values are refused, so that none of them reaches a
// terminal.
func TestBadExcerpts(t *testing.T) {
	sites := twoFiles(t, nil, nil)
	good := string(sites[1].Excerpt("paris"))
	for _, x := range [][2]string{
		{`"site":"tokyo"`, `"site":"osaka"`}, {`"resnet"`, `"\u001b[2J"`}, {`10.0.0.0/8`, `10.0.0.1/8`}, {`10.1.0.0/16`, `no`}, {`1024-65535"`, `0"`},
		{`"proved"`, `"all"`}, {`"10m0s"`, `"soon"`}, {`10.2.0.0/16:1024-65535`, `10.2.0.0/16`}, {good, `[]`}, {good, ``}, {good, strings.Repeat(" ", 65<<10) + good},
		{good, `{"site":"tokyo","networks":[` + strings.Repeat(`"10.1.0.0/16",`, 300) + `"10.1.0.0/16"]}`},
	} {
		if !strings.Contains(good, x[0]) {
			t.Fatalf("no %q in %s", x[0], good)
		}
		if problems, err := sites[0].Live("tokyo", []byte(strings.Replace(good, x[0], x[1], 1))); err == nil {
			t.Errorf("%q instead of %q is taken: %v", x[1], x[0], problems)
		}
	}
}

// Whatever a peer says, only printable text of bounded length comes of it.
func FuzzLive(f *testing.F) {
	c, _ := parse("paris.yaml", []byte(parisFile), known())
	there, _ := parse("tokyo.yaml", []byte(tokyoFile), known())
	f.Add(there.Excerpt("paris"))
	f.Add([]byte(`{"site":"tokyo","jobs":[{"name":"x","networks":["::/0"],"ranks":-1,"sums":"none"}],"ports":"1","resume":"0s","refused_retry":"1h"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		problems, err := c.Live("tokyo", text)
		said := problems.Error()
		if err != nil {
			said += err.Error()
		}
		for _, r := range said {
			if r < ' ' && r != '\n' || r == 0x7f {
				t.Fatalf("%q", said)
			}
		}
	})
}

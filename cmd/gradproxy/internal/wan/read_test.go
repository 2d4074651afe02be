package wan

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// files opens the trace files of the tests.
func files(name string) ([]byte, error) {
	switch name {
	case "/etc/wan/good.csv":
		return []byte("# measured\nat, rate, loss\n0s, 8Mbit/s,\n10s,, 2%\n"), nil
	case "/etc/wan/bad.csv":
		return []byte("at,rate\n0s,8Mbit/s\n1s,fast\n"), nil
	case "/etc/wan/late.csv":
		return []byte("at,rate\n2s,8Mbit/s\n1s,9Mbit/s\n"), nil
	}
	return nil, fs.ErrNotExist
}

const whole = `name: whole
about: every key there is
currency: EUR
seed: 3
sites:
  - {name: a, price: 0.05, networks: [10.1.0.0/16]}
  - {name: b, networks: 10.2.0.0/16}
  - name: c
    networks: [10.3.0.0/16]
bottlenecks:
  - {name: up, rate: 50Mbit/s, queue: 1MiB}
links:
  - from: a
    to: b
    rtt: 30ms
    rate: 10Mbit/s
    jitter: 1ms
    loss: 1%
    queue: 64KiB
    there: {via: up, price: 0.2, trace: {file: good.csv, repeat: 60s}}
    back: {rate: 2.5Mbit/s, delay: 5ms, loss: 0.5, seed: 7, jitter: 0s, trace: [{at: 1s, delay: 9ms}]}
mesh: {delay: 1ms}
`

func TestWholeFile(t *testing.T) {
	got, problems := parse("/etc/wan/whole.yaml", []byte(whole), files)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if got.Name != "whole" || got.Currency != "EUR" || len(got.Sites) != 3 || len(got.Links) != 3 || len(got.Bottlenecks) != 1 {
		t.Fatalf("%+v", got)
	}
	if a := got.Sites[0].Addresses(); len(a) != 1 || a[0] != netip.MustParseAddr("10.1.0.1") {
		t.Errorf("addresses of a: %v", a)
	}
	l := got.Links[0]
	there := Quality{10e6, 15 * time.Millisecond, 0.01}
	if d := l.There; d.Quality != there || d.Jitter != time.Millisecond || d.Queue != 64<<10 || d.Price != 0.2 || d.Via != "up" || d.Seed != 3<<16 {
		t.Errorf("there: %+v", d)
	}
	if d := l.Back; d.Quality != (Quality{2.5e6, 5 * time.Millisecond, 0.5}) || d.Jitter != 0 || d.Price != 0 || d.Via != "" || d.Seed != 7 {
		t.Errorf("back: %+v", d)
	}
	want := []Step{{0, Quality{8e6, there.Delay, 0.01}}, {10 * time.Second, Quality{8e6, there.Delay, 0.02}}}
	if trace := l.There.Trace; fmt.Sprint(trace.Steps) != fmt.Sprint(want) || trace.Period != time.Minute {
		t.Errorf("trace: %+v, want %+v", trace, want)
	}
	if trace := l.Back.Trace; len(trace.Steps) != 1 || trace.Steps[0].Quality != (Quality{2.5e6, 9 * time.Millisecond, 0.5}) {
		t.Errorf("trace back: %+v", trace)
	}
	// The mesh joins the sites that no link does, each with losses of its own.
	for i, ends := range [][2]int{{0, 2}, {1, 2}} {
		l := got.Links[i+1]
		if l.From != ends[0] || l.To != ends[1] || l.RTT() != 2*time.Millisecond || l.There.Seed != 3<<16+uint64(i+1) {
			t.Errorf("link %d of the mesh: %+v", i, l)
		}
	}
	if got.Links[1].There.Price != 0.05 || got.Links[1].Back.Price != 0 {
		t.Error("the price is not that of the site that sends")
	}
}

// Sites without networks get the ones that each could have had.
func TestDefaultNetworks(t *testing.T) {
	got, problems := parse("f", []byte("name: n\nsites: [{name: a}, {name: b}]\nmesh: {}\n"), files)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if a := got.Sites[1].Addresses(); fmt.Sprint(a) != "[198.18.2.1 2001:db8:2::1]" {
		t.Errorf("addresses: %v", a)
	}
}

// Each mistake has its line and names a remedy.
func TestProblems(t *testing.T) {
	const two = "name: n\nsites: [{name: a}, {name: b}]\n" // two lines
	for _, x := range []struct{ text, want string }{
		{"", "f: one YAML document is needed: begin with name: NAME"},
		{"name: [", "f:1: not YAML: "},
		{"nome: n\n", "f:1: nome: unknown key: did you mean name?"},
		{"name: N\n", `f:1: name: "N" is not a name: use lower-case letters, digits and '-'`},
		{"name: -n\n", `f:1: name: "-n" is not a name: use 1 to 40 characters, the first a letter or digit`},
		{"sites: [{name: a}, {name: b}]\nmesh: {}\n", "f: name: it is missing: name the topology"},
		{"name: n\nmesh: {}\n", "f: sites: there are 0: want 2 to 100"},
		{"name: n\nabout: \"a\\nb\"\n", "f:2: about: write one line"},
		{"name: n\ncurrency: euro\n", `f:2: currency: "euro" is not a currency: write three capital letters, such as USD`},
		{"name: n\nseed: -1\n", `f:2: seed: "-1" is not a seed: write a whole number`},
		{"name: n\nsites: [{name: a}, {name: a}]\nmesh: {}\n", "f:2: sites[1].name: there are two sites a"},
		{"name: n\nsites: [{name: a}, {}]\nmesh: {}\n", "f:2: sites[1].name: it is missing"},
		{"name: n\nsites: [{name: a}, {name: lo}]\nmesh: {}\n", `f:2: sites[1].name: "lo" is a name of Linux's own: choose another`},
		{"name: n\nsites:\n  - {name: a}\n  - {name: sixteen-letters-}\n", `f:4: sites[1].name: "sixteen-letters-" is not a name: use 1 to 15 characters`},
		{"name: n\nsites: [{name: a, networks: 10.0.0.1/24}]\n", `f:2: sites[0].networks: "10.0.0.1/24" has bits behind /24: write 10.0.0.0/24`},
		{"name: n\nsites: [{name: a, networks: 10.0.0.0}]\n", `f:2: sites[0].networks: "10.0.0.0" is not a network: write it as`},
		{"name: n\nsites: [{name: a, networks: 10.0.0.0/31}]\n", `f:2: sites[0].networks: "10.0.0.0/31" has no room for a host: write /30 or shorter`},
		{"name: n\nsites: [{name: a}, {name: localhost}]\nmesh: {}\n", `f:2: sites[1].name: "localhost" is a name of Linux's own: choose another`},
		{"name: n\nsites: [{name: a}, {name: \"127\"}]\nmesh: {}\n", `f:2: sites[1].name: "127" is a number, which programs take for an address: put a letter to it`},
		{"name: n\nsites: [{name: a, networks: 127.3.0.0/16}]\n", `f:2: sites[0].networks: "127.3.0.0/16" holds addresses that no site can have`},
		{"name: n\nsites: [{name: a, networks: 0.0.0.0/0}]\n", `f:2: sites[0].networks: "0.0.0.0/0" holds addresses that no site can have`},
		{"name: n\nsites: [{name: a, networks: 'fe80::/64'}]\n", `f:2: sites[0].networks: "fe80::/64" holds addresses that no site can have`},
		{"name: n\nsites: [{name: a, price: -1}]\n", `f:2: sites[0].price: "-1" is not a price: write the price of a GB (10⁹ bytes), such as 0.02`},
		{"name: n\nsites: [{name: a, networks: 10.0.0.0/8}, {name: b, networks: 10.2.0.0/16}]\nmesh: {}\n",
			"f:2: sites[1].networks: 10.2.0.0/16 overlaps 10.0.0.0/8 of site a"},
		{"name: n\nsites: [{name: a, networks: [10.1.0.0/16, 10.2.0.0/16]}, {name: b}]\nmesh: {}\n",
			"f:2: sites[0].networks: want one IPv4 network, one IPv6 network, or one of each"},
		{"name: n\nsites: [{name: a, networks: 10.1.0.0/16}, {name: b}]\nmesh: {}\n",
			"f:2: sites[1].networks: want networks of the same families as site a has"},
		{two + "links: [{from: a}]\n", "f:3: links[0].to: it is missing: name a site"},
		{two + "links: [{from: a, to: c}]\n", "f:3: links[0].to: there is no site c"},
		{two + "links: [{from: a, to: a}]\n", "f:3: a-a: it leads from a site to itself"},
		{two + "links:\n  - {from: a, to: b}\n  - {from: b, to: a}\n", "f:5: b-a: these sites have a link already, in line 4"},
		{two, "f:2: sites[1]: no links lead from a to b"},
		{two + "mesh: {rate: 10}\n", `f:3: mesh.rate: "10" is not a rate: write bits per second, 8 at least, such as 10Mbit/s, 1.5Gbit/s or unlimited`},
		{two + "mesh: {rate: 10MB/s}\n", `f:3: mesh.rate: "10MB/s" is not a rate`},
		{two + "mesh: {rate: 1bit/s}\n", `f:3: mesh.rate: "1bit/s" is not a rate`},
		{two + "mesh: {rtt: 20}\n", `f:3: mesh.rtt: "20" is not a duration: write it with a unit, such as 20ms, 1.5ms or 30s`},
		{two + "mesh: {delay: 20m}\n", `f:3: mesh.delay: "20m" is more than a minute, which no path takes`},
		{two + "mesh: {rtt: 20ms, delay: 10ms}\n", "f:3: mesh: both rtt and delay are given: leave one out"},
		{two + "mesh: {loss: 101%}\n", `f:3: mesh.loss: "101%" is not a loss: write 0% to 100%, or a probability of 0 to 1`},
		{two + "mesh: {queue: 0}\n", `f:3: mesh.queue: "0" is not the size of a queue: write 1 byte to 1GiB, such as 256KiB`},
		{two + "mesh: {there: {rtt: 1ms}}\n", "f:3: mesh.there.rtt: unknown key: "},
		{two + "mesh: {back: {via: x}}\n", "f:3: a-b.via: there is no bottleneck x"},
		{two + "mesh: {}\nbottlenecks: [{name: x}]\n", "f:4: bottlenecks[0].rate: want a rate: without one nothing is shared"},
		{two + "mesh: {}\nbottlenecks: [{rate: 1Mbit/s}]\n", "f:4: bottlenecks[0].name: it is missing"},
		{two + "mesh: {}\nbottlenecks: [{name: x, rate: 1Mbit/s}, {name: x, rate: 1Mbit/s}]\n", "f:4: bottlenecks[1].name: there are two bottlenecks x"},
		{two + "mesh: {trace: []}\n", "f:3: mesh.trace: there are no steps"},
		{two + "mesh: {trace: [{rate: 1Mbit/s}]}\n", "f:3: mesh.trace: step 0: at is missing: say when it begins"},
		{two + "mesh: {trace: [{at: 1s}, {at: 1s}]}\n", "f:3: mesh.trace: step 1: it begins at 1s, not after the step before, at 1s"},
		{two + "mesh: {trace: {steps: [{at: 5s}], repeat: 5s}}\n", "f:3: mesh.trace: repeat is 5s: want more than the beginning of the last step, 5s"},
		{two + "mesh: {trace: {steps: [{at: 0s}, {at: 1ns}], repeat: 1ms}}\n", "f:3: mesh.trace: repeat is 1ms: want 1ms at least for each of 2 steps"},
		{two + "mesh: {trace: {file: none.csv}}\n", "f:3: mesh.trace.file: none.csv: file does not exist"},
		{two + "mesh: {trace: {file: /etc/wan/bad.csv}}\n", `f:3: mesh.trace.file: /etc/wan/bad.csv: line 3: rate: "fast" is not a rate`},
		{two + "mesh: {trace: {file: /etc/wan/late.csv}}\n", "f:3: mesh.trace: step 1: it begins at 1s, not after the step before, at 2s"},
		{two + "mesh: {trace: {file: /etc/wan/good.csv, steps: [{at: 1s}]}}\n", "f:3: mesh.trace: both file and steps are given: leave one out"},
	} {
		_, problems := parse("f", []byte(x.text), files)
		if len(problems) == 0 || !strings.HasPrefix(problems[0].Error(), x.want) {
			t.Errorf("%q:\n%v\nwant\n%s", x.text, problems, x.want)
		}
	}
}

// The links of a mesh have one trace between them: its file is read once, and its faults are said once.
func TestMeshSharesItsTrace(t *testing.T) {
	for file, wrong := range map[string]int{"/etc/wan/good.csv": 0, "/etc/wan/bad.csv": 1} {
		read := 0
		got, problems := parse("f", []byte("name: n\nsites: [{name: a}, {name: b}, {name: c}]\nmesh: {trace: {file: "+file+"}}\n"), func(name string) ([]byte, error) {
			read++
			return files(name)
		})
		if read != 1 || len(problems) != wrong {
			t.Errorf("%s is read %d times, with %d problems, want %d:\n%v", file, read, len(problems), wrong, problems)
		}
		if first, last := got.Links[0].There.Trace.Steps, got.Links[2].Back.Trace.Steps; wrong == 0 && &first[0] != &last[0] {
			t.Errorf("%s: the links have traces of their own", file)
		}
	}
}

// All mistakes are reported at once, in the order of the lines.
func TestAllProblemsAtOnce(t *testing.T) {
	_, problems := parse("f", []byte("name: N\nsites:\n  - {name: a, prise: 1}\nmesh: {rate: fast}\n"), files)
	if len(problems) != 3 || problems[0].Line != 1 || problems[1].Line != 3 || problems[2].Line != 4 {
		t.Errorf("problems:\n%v", problems)
	}
}

func TestLoadSaysWhatIsThere(t *testing.T) {
	_, problems := Load("no-such-file")
	if want := "no-such-file: there is no such file, and no ready topology of that name; the ready ones are 3lc-10, "; len(problems) != 1 || !strings.HasPrefix(problems.Error(), want) {
		t.Errorf("%v, want %s", problems, want)
	}
	if _, problems := Load("."); len(problems) != 1 || problems.Error() != ".: it is a folder: name the file in it" {
		t.Errorf("a folder: %v", problems)
	}
}

// The ready topologies are right, and are called after their files.
func TestReadyTopologies(t *testing.T) {
	for _, name := range ReadyNames() {
		got, problems := LoadReady(name)
		if len(problems) > 0 {
			t.Error(problems)
		}
		if got.Name != name || got.About == "" {
			t.Errorf("%s is called %q and said to be %q", name, got.Name, got.About)
		}
	}
	gaia, _ := LoadReady("gaia")
	if len(gaia.Sites) != 11 || len(gaia.Links) != 55 {
		t.Errorf("gaia has %d sites and %d links, want 11 and 55", len(gaia.Sites), len(gaia.Links))
	}
}

func TestTraceFiles(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"rate\n1Mbit/s\n", "line 1: there is no column at: the first line names the columns: at, rate, delay, loss"},
		{"at,at\n", `line 1: column "at": the first line names the columns, each once: at, rate, delay, loss`},
		{"at,rtt\n", `line 1: column "rtt": `},
		{"at,rate\n1s\n", "line 2: 1 values: want 2, as in the first line"},
		{"\n# remark\nat,loss\n0s,2\n", `line 4: loss: "2" is not a loss`},
	} {
		if _, err := parseTrace(x.text); err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%q: %v, want %s", x.text, err, x.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	for _, name := range ReadyNames() {
		text, _ := Ready(name)
		f.Add(text)
	}
	f.Add([]byte("name: n\nsites: [{name: a}, {name: b}]\nmesh: {trace: &x [{at: 1s}, *x]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, problems := parse("f", text, func(string) ([]byte, error) { return nil, errors.New("no") })
		for _, p := range problems {
			if strings.Contains(p.Error(), "\n") {
				t.Errorf("more than one line: %q", p.Error())
			}
		}
		if len(problems) > 0 {
			return
		}
		// An accepted file can be planned, and its links are ones that the model takes.
		p := NewPlan(got, User, "")
		if len(p.Links) != len(got.Links) || p.String() == "" {
			t.Error("the plan is not whole")
		}
		for _, l := range got.Links {
			if err := errors.Join(l.model(l.There, l.There.Quality, nil).Validate(), l.model(l.Back, l.Back.Quality, nil).Validate()); err != nil {
				t.Error(err)
			}
		}
	})
}

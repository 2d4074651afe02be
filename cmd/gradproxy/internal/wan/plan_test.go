package wan

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs (-update writes it anew):\n%s", file, text)
	}
}

// The plan of the hospitals: the hub forwards, and each hospital's routes lead through it.
func TestPlanOfHospitals(t *testing.T) {
	topology, problems := LoadReady("hospitals")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	golden(t, "hospitals.txt", NewPlan(topology, User, "a test").String())
}

// In a full mesh every site reaches every other over their own link.
func TestMeshIsDirect(t *testing.T) {
	gaia, _ := LoadReady("gaia")
	p := NewPlan(gaia, User, "")
	for _, s := range p.Sites {
		if s.Forwards {
			t.Errorf("%s forwards", s.Name)
		}
	}
	for _, l := range p.Links {
		for i, e := range l.Ends {
			if other := l.Ends[1-i]; len(e.Routes) != 2 || e.Device != other.Site {
				t.Errorf("%s reaches %v through %s", e.Site, e.Routes, e.Device)
			}
		}
	}
}

// Of two ways with as many links, packets take the faster, and both directions the same.
func TestRoutesTakeTheShortestPath(t *testing.T) {
	topology, problems := parse("f", []byte(`name: diamond
sites: [{name: a}, {name: slow}, {name: fast}, {name: b}, {name: far}]
links:
  - {from: a, to: slow, rtt: 10ms}
  - {from: slow, to: b, rtt: 10ms}
  - {from: a, to: fast, rtt: 5ms}
  - {from: fast, to: b, rtt: 5ms}
  - {from: b, to: far, rtt: 1s}
`), files)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	next := topology.nextHops()
	const a, fast, b, far = 0, 2, 3, 4
	if next[a][b] != fast || next[b][a] != fast || next[a][far] != fast || next[far][a] != b || next[a][a] != -1 {
		t.Errorf("next hops: %v", next)
	}
}

// A GB costs its price, each direction its own.
func TestReportAddsUp(t *testing.T) {
	gaia, _ := LoadReady("gaia")
	p := NewPlan(gaia, User, "")
	carried := make([][2]Counters, len(p.Links))
	carried[0] = [2]Counters{{Bytes: 2e9, Packets: 7}, {Bytes: 1e9}} // Virginia and California: 0.02 USD
	carried[54] = [2]Counters{{Bytes: 5e8}, {Bytes: 1e9, Lost: 3}}   // Mumbai and São Paulo: 0.086 and 0.138 USD
	r := p.report(2, carried)
	if want := 3*0.02 + 0.5*0.086 + 0.138; math.Abs(r.Cost-want) > 1e-12 || r.Bytes != 4.5e9 || len(r.Links) != 110 {
		t.Errorf("%d bytes cost %v, want 4500000000 and %v", r.Bytes, r.Cost, want)
	}
	if l := r.Links[109]; l.From != "sao-paulo" || l.To != "mumbai" || l.Lost != 3 || l.Cost != 0.138 {
		t.Errorf("São Paulo to Mumbai: %+v", l)
	}
}

package page

import (
	"bytes"
	"encoding/xml"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect"
)

// A policy is marked unless another has more of one and no less of the other.
func TestBest(t *testing.T) {
	f := &inspect.WhatIf{Outcomes: []inspect.Outcome{{Codec: "direct", Ratio: 1}, {Codec: "lossless", Ratio: 1.3}, {Codec: "int8", Ratio: 4, Error: 0.01},
		{Codec: "worse", Ratio: 3, Error: 0.01}, {Codec: "noisier", Ratio: 4, Error: 0.02}, {Codec: "3lc", Ratio: 40, Error: 0.7}, {Codec: "3lc+lossless", Ratio: 40, Error: 0.7}}}
	var marked []string
	for _, o := range f.Outcomes {
		if best(f, o) {
			marked = append(marked, o.Codec)
		}
	}
	if want := []string{"lossless", "int8", "3lc", "3lc+lossless"}; !slices.Equal(marked, want) {
		t.Errorf("%q are marked, want %q", marked, want)
	}
}

// In the plot fewer bytes lie further left and less error further down, exact policies on the bottom line. A line joins
// the best ones, and policies of the same bytes and error are one point, whose name has room.
func TestPlot(t *testing.T) {
	f := &inspect.WhatIf{Outcomes: []inspect.Outcome{{Codec: "direct", Bytes: 4e9, Ratio: 1}, {Codec: "lossless", Bytes: 3e9, Ratio: 1.3}, {Codec: "int8", Bytes: 1e9, Ratio: 4, Error: 0.01},
		{Codec: "worse", Bytes: 2e9, Ratio: 2, Error: 0.02}, {Codec: "3lc", Bytes: 1e8, Ratio: 40, Error: 0.7}, {Codec: "3lc+lossless", Bytes: 1e8, Ratio: 40, Error: 0.7}}}
	p := plotOf(f)
	var names []string
	for _, at := range p.Points {
		names = append(names, at.Name)
		if at.X < left || at.X > right || at.Y < top || at.Y > bottom {
			t.Errorf("%s lies at %v, %v, outside of the plot", at.Name, at.X, at.Y)
		}
	}
	if want := []string{"direct", "lossless", "int8", "worse", "3lc, 3lc+lossless"}; !slices.Equal(names, want) {
		t.Fatalf("points %q, want %q", names, want)
	}
	direct, lossless, int8, worse, low := p.Points[0], p.Points[1], p.Points[2], p.Points[3], p.Points[4]
	if !(low.X < int8.X && int8.X < worse.X && worse.X < lossless.X && lossless.X < direct.X) {
		t.Errorf("fewer bytes do not lie further left: %+v", p.Points)
	}
	if direct.Y != bottom || lossless.Y != bottom || !(low.Y < worse.Y && worse.Y < int8.Y && int8.Y < bottom) {
		t.Errorf("less error does not lie further down: %+v", p.Points)
	}
	if want := number(low.X) + "," + number(low.Y) + " " + number(int8.X) + "," + number(int8.Y) + " " + number(lossless.X) + "," + number(lossless.Y); p.Frontier != want {
		t.Errorf("the line is %s, want %s", p.Frontier, want)
	}
	if !low.Named || !int8.Named || !lossless.Named || direct.Named {
		t.Errorf("names: %+v; want those of the best policies, and not direct's in the way of lossless'", p.Points)
	}
	if p := plotOf(&inspect.WhatIf{Outcomes: []inspect.Outcome{{Codec: "direct"}}}); len(p.Points) != 1 || p.Points[0].X < left || p.Points[0].X > right {
		t.Errorf("a capture without bytes: %+v", p)
	}
}

// The page has every figure, names no other file, and text of a capture stays text.
func TestPage(t *testing.T) {
	r := &inspect.Report{
		Hosts: []inspect.HostPair{{Client: "10.0.0.1", Server: "10.0.0.2", Ports: []uint16{22}, Protocol: "unknown", Name: "ssh", Connections: 3, FromClient: 5000}},
		WhatIf: &inspect.WhatIf{Sites: []string{"10.0.0.1", "10.0.0.2"}, Links: []inspect.WireLink{{Rate: 1e7, RTT: 20}}, Price: 0.09, Currency: "USD",
			Outcomes: []inspect.Outcome{{Codec: "direct", Bytes: 4e9, Ratio: 1, Seconds: []float64{3200}, Money: 0.36},
				{Codec: "3lc", Bytes: 1e8, Ratio: 40, Seconds: []float64{80}, Money: 0.009, Error: 0.7}}},
	}
	var b bytes.Buffer
	if err := Write(&b, r, "<script>alert(1)</script>.pcap"); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"10Mbit/s, 20ms", "4.00 GB", "40.00x", "3200 s", "80 s", "0.7", "USD at 0.09 per GB", "0.36", "<td>ssh</td>", "5.00 kB", `width: 100.0%`, `width: 2.5%`, `<tr class="best"><td>3lc</td>`, `class="least">80 s`, `<circle class="best"`, "<polyline points="} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "<script") || regexp.MustCompile(`(?i)(src|href|url\()\s*=?\s*["']?\w+:`).MatchString(text) {
		t.Error("the page has a script, or asks for another file")
	}
	d := xml.NewDecoder(strings.NewReader(text))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the page is no HTML: %v", err)
		}
	}
}

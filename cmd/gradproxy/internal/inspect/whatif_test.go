package inspect

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture/capturetest"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
)

// Seconds and money follow from bytes, rate, round trips and price alone where nothing is coded; connections within a
// site cost nothing.
func TestWhatIfOfOpaqueBytes(t *testing.T) {
	at := netip.MustParseAddrPort
	const n = 1_000_000
	capture := capturetest.Write([]capturetest.Conn{
		{Client: at("10.1.0.1:4000"), Server: at("10.2.0.1:5000")},
		{Client: at("10.1.0.2:4000"), Server: at("10.2.0.1:5000")},
		{Client: at("10.1.0.1:4001"), Server: at("10.1.0.2:5000")},
	}, []capturetest.Chunk{
		{Conn: 0, From: parser.Client, Bytes: make([]byte, n)},
		{Conn: 0, From: parser.Server, Bytes: make([]byte, 10)},
		{Conn: 0, From: parser.Client, Bytes: make([]byte, 10)},
		{Conn: 1, From: parser.Client, Bytes: make([]byte, n)},
		{Conn: 2, From: parser.Client, Bytes: make([]byte, n)},
	})
	ask := func(q Question) *WhatIf {
		r, err := Read(bytes.NewReader(capture), Config{WhatIf: &q})
		if err != nil {
			t.Fatal(err)
		}
		return r.WhatIf
	}
	link := Link{8_000_000, 100 * time.Millisecond}
	sites := [][]netip.Prefix{{netip.MustParsePrefix("10.1.0.0/16")}, {netip.MustParsePrefix("10.2.0.0/16")}}
	for _, c := range []struct {
		q       Question
		sites   []string
		within  int
		busiest float64 // bytes of the busiest link's direction, without headers
		sent    float64 // by all sites
	}{
		{Question{Links: []Link{link}, Price: 2, Currency: "EUR", Sites: sites}, []string{"10.1.0.0/16", "10.2.0.0/16"}, n, 2*n + 10, 2*n + 20},
		{Question{Links: []Link{link}, Price: 2, Currency: "EUR"}, []string{"10.1.0.1", "10.2.0.1", "10.1.0.2"}, 0, 2*n + 10, 3*n + 20},
	} {
		f := ask(c.q)
		direct := f.Outcomes[0]
		if !slices.Equal(f.Sites, c.sites) || f.Within != c.within || direct.Codec != Direct || f.Outcomes[1].Codec != Lossless {
			t.Fatalf("%+v", f)
		}
		seconds := c.busiest*directOverhead/1e6 + 2*0.05
		if got := direct.Seconds[0]; math.Abs(got-seconds) > 1e-3 {
			t.Errorf("%v s, want %v", got, seconds)
		}
		if got, want := direct.Money, c.sent*directOverhead/1e9*2; math.Abs(got-want) > 1e-6 {
			t.Errorf("%v EUR, want %v", got, want)
		}
		if x := f.Outcomes[1]; x.Ratio > 1 || x.Ratio < 0.97 || x.Seconds[0] < seconds {
			t.Errorf("bytes that nobody understands: %+v against %+v", x, direct)
		}
	}
	if f := ask(Question{}); len(f.Links) != len(DefaultLinks()) || f.Price != 0 || f.Outcomes[0].Money != 0 {
		t.Errorf("%+v", f)
	}
}

// A model that goes to two hosts crosses once where the user says that they are one site; a host alone knows nothing of
// the other's.
func TestSitesShareValues(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	models := make([][]byte, 5)
	for i := range models {
		for range 5_000 {
			models[i] = binary.LittleEndian.AppendUint32(models[i], math.Float32bits(float32(r.NormFloat64())))
		}
	}
	var conns []capturetest.Conn
	var sides [2][]capturetest.Chunk
	for i, client := range []string{"10.0.0.1:40000", "10.0.0.2:40000"} {
		conns = append(conns, capturetest.Conn{Client: netip.MustParseAddrPort(client), Server: netip.MustParseAddrPort("10.0.1.1:50051")})
		w := grpctest.New(t)
		for _, m := range models {
			w.Unary("/lab.Store/Pull", nil, within(m, 1), 1<<14)
		}
		for _, p := range w.Exchange() {
			sides[i] = append(sides[i], capturetest.Chunk{Conn: i, From: p.From, Bytes: p.Bytes})
		}
	}
	var chunks []capturetest.Chunk
	for k := range sides[0] { // both hosts pull each model before the next one is there
		chunks = append(chunks, sides[0][k], sides[1][k])
	}
	capture := capturetest.Write(conns, chunks)
	lossless := func(q Question) int {
		r, err := Read(bytes.NewReader(capture), Config{WhatIf: &q})
		if err != nil {
			t.Fatal(err)
		}
		return r.Policies[0].Bytes
	}
	alone, together := lossless(Question{}), lossless(Question{Sites: [][]netip.Prefix{{netip.MustParsePrefix("10.0.0.0/24")}, {netip.MustParsePrefix("10.0.1.0/24")}}})
	if together > alone*6/10 {
		t.Errorf("%d bytes to two hosts, and %d where they share a site", alone, together)
	}
}

// The question changes nothing of the sizes where every host is a site.
func TestQuestionChangesNoSizes(t *testing.T) {
	capture := captureOf(twoRanksTrace())
	one, err := Read(bytes.NewReader(capture), Config{Sums: parser.SumsGradients, Policies: []string{"int8"}, WhatIf: &Question{}})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Read(bytes.NewReader(capture), Config{Sums: parser.SumsGradients, Policies: []string{"int8"}})
	if err != nil || plain.WhatIf != nil {
		t.Fatalf("%+v, %v", plain.WhatIf, err)
	}
	for i, c := range one.Policies {
		if c.Bytes != plain.Policies[i].Bytes {
			t.Errorf("%s: %d bytes, and %d with the question", c.Codec, plain.Policies[i].Bytes, c.Bytes)
		}
		if o := one.WhatIf.Outcomes[i+1]; o.Codec != c.Codec || o.Bytes < c.Bytes || o.Bytes > c.Bytes*11/10+tunnelSetup*2 {
			t.Errorf("%+v of %+v", o, c)
		}
	}
}

// Where all policies cost the same the answer says why.
func TestAlikePoliciesSayWhy(t *testing.T) {
	of := func(errors float64, bytes ...int) *WhatIf {
		w := &WhatIf{Outcomes: []Outcome{{Codec: Direct, Bytes: 2000}}}
		for _, n := range bytes {
			w.Outcomes = append(w.Outcomes, Outcome{Bytes: n, Error: errors})
		}
		return w
	}
	for _, c := range []struct {
		w     *WhatIf
		roles RoleBytes
		want  string
	}{
		{of(0.1, 1000, 500), RoleBytes{Gradient: 1}, ""},
		{of(0, 1000), RoleBytes{}, ""},
		{of(0, 0, 0), RoleBytes{}, "no connection crosses a link"},
		{of(0, 1000, 1001), RoleBytes{}, "no parser finds a tensor"},
		{of(0, 1000, 1001), RoleBytes{Unknown: 5, Exact: 5}, "--sums gradients"},
		{of(0, 1000, 1001), RoleBytes{Aggregate: 5}, "no tensor of the capture is a gradient"},
		{of(0, 1000, 1001), RoleBytes{Gradient: 5}, "the first values of each tensor"},
		{of(0.1, 1000, 1001), RoleBytes{State: 5}, "a small part of the bytes"},
	} {
		if got := c.w.alike(c.roles); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v of %+v: %q, want %q", c.w.Outcomes, c.roles, got, c.want)
		}
	}
	capture := capturetest.Write([]capturetest.Conn{{Client: netip.MustParseAddrPort("10.1.0.1:4000"), Server: netip.MustParseAddrPort("10.2.0.1:5000")}},
		[]capturetest.Chunk{{Conn: 0, From: parser.Client, Bytes: make([]byte, 100_000)}})
	r, err := Read(bytes.NewReader(capture), Config{Policies: []string{"int8"}, WhatIf: &Question{}})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "\nAll policies cost the same: no parser finds a tensor") {
		t.Errorf("%v:\n%s", err, &text)
	}
}

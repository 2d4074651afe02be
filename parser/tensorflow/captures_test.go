package tensorflow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture"
	"github.com/gradproxy/gradproxy/tensor"
)

// A heard value is a tensor as it came.
type heard struct {
	tensor.Tensor
	data []byte
}

// A listener gives one connection of a capture to the proxies at both its ends.
type listener struct {
	conn    capture.Conn
	parsers [2][2]parser.Parser // of the proxy beside a side, for a direction
	failed  [2]error
	values  [2][]*heard
	under   [2]map[uint64]*heard // by key
	apart   int                  // segments that the two proxies see differently
}

func (l *listener) Gap(from parser.Side) { l.failed[from] = parser.ErrForeign }
func (l *listener) Close(bool)           {}

func (l *listener) Data(from parser.Side, b []byte) {
	for len(b) > 0 && l.failed[from] == nil {
		far, _ := l.parsers[1-from][from].Next(b)
		seg, err := l.parsers[from][from].Next(b)
		if l.failed[from] = err; err != nil {
			return
		}
		if far != seg {
			l.apart++
		}
		if t := seg.Tensor; t.Size > 0 {
			h := l.under[from][t.Key]
			if t.Off == 0 {
				h = &heard{Tensor: t}
				l.values[from] = append(l.values[from], h)
				l.under[from][t.Key] = h
			}
			if h.Size != t.Size || len(h.data) != t.Off {
				l.apart++
			}
			h.data = append(h.data, b[:seg.Len]...)
		}
		b = b[seg.Len:]
	}
}

// listen plays a capture through proxies at every end.
func listen(t *testing.T, path, job string, sums parser.Sums) (all []*listener) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	near := [2]*Protocol{{}, {}}
	err = capture.Read(f, func(c capture.Conn) capture.Sink {
		l := &listener{conn: c, under: [2]map[uint64]*heard{{}, {}}}
		all = append(all, l)
		for side := range near {
			pc := parser.Conn{Job: job, Client: c.Client, Server: c.Server, Number: c.Number, Sums: sums, Own: parser.Side(side)}
			l.parsers[side][0], l.parsers[side][1] = near[side].New(pc)
		}
		return l
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A truth is the record beside a capture.
type truth struct {
	Connections []struct {
		Client, Server string
		NotFromStart   bool `json:"not_h2_from_start"`
		Directions     []struct {
			Messages map[string]int
			Payload  []trueValue
		}
	}
}

// A trueValue is a tensor of a RecvTensor or RecvBuf response.
type trueValue struct {
	Key, DType, SHA256, Role, Name string
	GraphRole                      string `json:"graph_role"`
	GraphPath                      string `json:"graph_path"`
	Bytes                          int
	Type                           *int
}

// proved returns the role that a value has without the user's word.
func (v *trueValue) proved() tensor.Role {
	switch {
	case v.Type != nil && *v.Type == typeBroadcast, v.Role == "exact":
		return tensor.Exact
	case v.Type != nil: // a ring has no proof
		return tensor.Unknown
	case v.Role == "gradient":
		return tensor.Gradient
	case v.Role == "state" && v.GraphRole == "state":
		return tensor.State
	}
	return tensor.Unknown
}

// Every tensor of a recorded job is found, byte for byte, both proxies see the same, and roles are the ones that the
// graphs prove.
func TestCaptures(t *testing.T) {
	for _, file := range require.Captures(t, "tf-*.pcap*") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			name, _, _ := strings.Cut(file, ".pcap")
			text, err := os.ReadFile(name + ".truth.json")
			if err != nil {
				t.Fatal(err)
			}
			var want truth
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			for _, job := range []string{"", "capture"} {
				compare(t, want, listen(t, file, job, parser.SumsProved))
			}
		})
	}
}

func compare(t *testing.T, want truth, all []*listener) {
	t.Helper()
	byEnds := map[string]*listener{}
	for _, l := range all {
		if l.apart > 0 {
			t.Errorf("%v: the proxies see %d segments differently", l.conn, l.apart)
		}
		byEnds[l.conn.Client.String()+" "+l.conn.Server.String()] = l
	}
	values, missed := 0, map[string]int{}
	for _, c := range want.Connections {
		l := byEnds[c.Client+" "+c.Server]
		if l == nil && len(c.Directions) == 0 { // refused
			continue
		}
		if l == nil {
			t.Fatalf("no connection %s to %s", c.Client, c.Server)
		}
		if c.NotFromStart {
			if l.failed[0] == nil || len(l.values[0])+len(l.values[1]) > 0 {
				t.Errorf("%v: %v, %d values of a connection that is joined in the middle", l.conn, l.failed, len(l.values[1]))
			}
			continue
		}
		for side, d := range c.Directions {
			if err := l.failed[side]; err != nil {
				t.Errorf("%v from the %v: %v", l.conn, parser.Side(side), err)
			}
			messages := 0
			for _, n := range d.Messages {
				messages += n
			}
			if all, payloads := l.parsers[side][side].(parser.Counter).Messages(); all != messages || len(d.Payload) > 0 && payloads != len(d.Payload) {
				t.Errorf("%v from the %v: %d messages, %d with payloads, want %d and %d", l.conn, parser.Side(side), all, payloads, messages, len(d.Payload))
			}
			if len(d.Payload) == 0 {
				continue // arguments, if anything
			}
			got := l.values[side]
			for _, v := range d.Payload {
				if v.Bytes == 0 {
					continue
				}
				if len(got) == 0 {
					t.Fatalf("%v from the %v: no tensor %s", l.conn, parser.Side(side), v.Key)
				}
				g := got[0]
				got = got[1:]
				values++
				if sum := sha256.Sum256(g.data); hex.EncodeToString(sum[:]) != v.SHA256 {
					t.Errorf("%s: %d other bytes", v.Key, len(g.data))
				}
				if g.DType.String() != v.DType && v.DType != "bool" {
					t.Errorf("%s: of %v, want %s", v.Key, g.DType, v.DType)
				}
				if g.Role == tensor.Gradient && v.Role != "gradient" {
					t.Errorf("%s is called a gradient, and is %s", v.Key, v.Role)
				}
				if g.Role != v.proved() {
					missed[v.Role+" by "+v.GraphPath+" "+v.Name+" is "+g.Role.String()]++
				}
			}
			if len(got) > 0 {
				t.Errorf("%v from the %v: %d tensors too many", l.conn, parser.Side(side), len(got))
			}
		}
	}
	if values == 0 {
		t.Error("the truth has no tensors")
	}
	for what, n := range missed {
		t.Errorf("%d: %s", n, what)
	}
}

// On the user's word all bytes of a ring have the roles that the truth tells, from the third call of each sum on: in
// the first two the parser learns it.
func TestCapturedRing(t *testing.T) {
	for _, file := range require.Captures(t, "tf-mwms.pcap*") {
		name, _, _ := strings.Cut(file, ".pcap")
		text, err := os.ReadFile(name + ".truth.json")
		if err != nil {
			t.Fatal(err)
		}
		var want truth
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		values := map[string]*heard{} // by content's hash and side: a ring's pieces all differ
		for _, l := range listen(t, file, "capture", parser.SumsGradients) {
			for side, all := range l.values {
				for _, h := range all {
					values[fmt.Sprintf("%v %v %d %x", l.conn.Client, l.conn.Server, side, sha256.Sum256(h.data))] = h
				}
			}
		}
		var sums []int // instances, in their order
		for _, c := range want.Connections {
			for _, d := range c.Directions {
				for _, v := range d.Payload {
					if n := v.instance(t); v.isSum() && !slices.Contains(sums, n) {
						sums = append(sums, n)
					}
				}
			}
		}
		slices.Sort(sums)
		named, of := 0, 0
		for _, c := range want.Connections {
			for side, d := range c.Directions {
				for _, v := range d.Payload {
					if !v.isSum() {
						continue
					}
					role := map[string]tensor.Role{"gradient": tensor.Gradient, "gradient-reduced": tensor.Aggregate}[v.Role]
					if slices.Index(sums, v.instance(t)) < minCalls-1 {
						role = tensor.Unknown
					}
					h := values[fmt.Sprintf("%s %s %d %s", c.Client, c.Server, side, v.SHA256)]
					if h == nil || h.Role != role {
						t.Errorf("%s is %+v, want %v", v.Key, h, role)
						continue
					}
					if of += v.Bytes; role != tensor.Unknown {
						named += v.Bytes
					}
				}
			}
		}
		if len(sums) < minCalls || named == 0 || named*len(sums) != of*(len(sums)-minCalls+1) {
			t.Errorf("%d bytes of %d are named in %d sums", named, of, len(sums))
		}
	}
}

// isSum reports whether a value is part of a sum in a ring.
func (v *trueValue) isSum() bool { return v.Type != nil && *v.Type == typeReduce }

// instance returns the number of the collective that a value belongs to, of a key "group:instance:…".
func (v *trueValue) instance(t *testing.T) (n int) {
	t.Helper()
	if v.Type == nil {
		return 0
	}
	if _, err := fmt.Sscanf(v.Key, "1:%d:", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

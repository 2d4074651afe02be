package inspect

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// tensorflowTruth is the record of a TensorFlow job.
type tensorflowTruth struct {
	Connections []struct {
		Client, Server string
		NotFromStart   bool `json:"not_h2_from_start"`
		Directions     []struct {
			Bytes         int
			Messages      map[string]int
			PayloadBytes  int    `json:"payload_bytes"`
			PayloadSHA256 string `json:"payload_sha256"`
			Payload       []struct {
				Role, Key, Evidence string
				GraphRole           string `json:"graph_role"`
				Bytes               int
				Type                *int // of a collective, which no graph proves
			}
		}
		OtherTensors []struct {
			Request bool
			Bytes   int `json:"content_bytes"`
		} `json:"other_tensors"`
	}
}

// Streams, messages and payloads of recorded TensorFlow jobs are as recorded. Every gradient that a graph proves is
// one, in both directions, and nothing else is; the roles of a ring are the user's word.
func TestTensorFlowCapturesEqualTheirTruth(t *testing.T) {
	for _, file := range require.Captures(t, "tf-*.pcap*") {
		for _, sums := range []parser.Sums{parser.SumsProved, parser.SumsGradients} {
			t.Run(filepath.Base(file)+" "+parser.SumsNames()[sums], func(t *testing.T) {
				var want tensorflowTruth
				unmarshal(t, truthText(t, file), &want)
				compareTensorFlow(t, want, read(t, file, Config{Sums: sums}), sums)
			})
		}
	}
}

func compareTensorFlow(t *testing.T, want tensorflowTruth, r *Report, sums parser.Sums) {
	t.Helper()
	found := map[string]Connection{}
	for _, c := range r.Connections {
		found[c.Client+" "+c.Server] = c
	}
	provable, named := 0, 0 // bytes of gradients
	for _, w := range want.Connections {
		c := found[w.Client+" "+w.Server]
		switch {
		case w.NotFromStart:
			if c.Protocol != unknown {
				t.Errorf("%s to %s, joined in the middle: protocol %q", w.Client, w.Server, c.Protocol)
			}
			continue
		case len(w.Directions) == 0: // refused
			continue
		case c.Protocol != "tensorflow":
			t.Errorf("%s to %s: protocol %q", w.Client, w.Server, c.Protocol)
		}
		for side, got := range []Direction{c.FromClient, c.FromServer} {
			d := w.Directions[side]
			if got.Bytes != d.Bytes || got.Messages != sum(d.Messages) {
				t.Errorf("%s, direction %d: %d bytes, %d messages, want %d and %d", w.Client, side, got.Bytes, got.Messages, d.Bytes, sum(d.Messages))
			}
			var roles RoleBytes
			limit := 0 // bytes that may be called gradients
			for _, p := range d.Payload {
				if p.Role == "gradient" {
					limit += p.Bytes
				}
				switch {
				case p.Role == "gradient" && p.Type == nil:
					provable += p.Bytes
					roles.Gradient += p.Bytes
				case p.Role == "state" && p.GraphRole == "state":
					roles.State += p.Bytes
				case p.Role == "exact", p.Type != nil && *p.Type == 1:
					roles.Exact += p.Bytes
				default:
					roles.Unknown += p.Bytes
				}
			}
			if len(d.Payload) == 0 { // arguments and initial values: the record has only their lengths
				d.PayloadBytes, d.PayloadSHA256 = 0, got.PayloadSHA256
				for _, x := range w.OtherTensors {
					if x.Request == (side == 0) && x.Bytes >= 256 {
						d.PayloadBytes += x.Bytes
					}
				}
				roles = RoleBytes{Exact: d.PayloadBytes}
			} else if got.PayloadMessages != len(d.Payload) {
				t.Errorf("%s, direction %d: %d payloads, want %d", w.Client, side, got.PayloadMessages, len(d.Payload))
			}
			if got.PayloadBytes != d.PayloadBytes || got.PayloadSHA256 != d.PayloadSHA256 {
				t.Errorf("%s, direction %d: %d bytes of payload with hash %s, want %d with %s", w.Client, side, got.PayloadBytes, got.PayloadSHA256, d.PayloadBytes, d.PayloadSHA256)
			}
			if sums == parser.SumsProved && got.RoleBytes != roles {
				t.Errorf("%s, direction %d: roles %+v, want %+v", w.Client, side, got.RoleBytes, roles)
			}
			if got.RoleBytes.Gradient > limit {
				t.Errorf("%s, direction %d: %d bytes are called gradients, of %d", w.Client, side, got.RoleBytes.Gradient, limit)
			}
			named += got.RoleBytes.Gradient
		}
	}
	if 10*named < 9*provable {
		t.Errorf("%d bytes are called gradients, of %d that a graph proves", named, provable)
	}
	t.Logf("%d of %d bytes of proved gradients are named", named, provable)
}

// Values that interleave, as HTTP/2 streams do, are told apart by their keys; one that begins anew takes the place of
// one that never ended.
func TestInterleavedValues(t *testing.T) {
	var got []string
	r := &reader{tensors: &tensors{last: map[blockName]*block{}}, each: func(v Value) { got = append(got, string(v.Data)) }}
	for side := range r.tallies {
		r.tallies[side].hash = newHash()
	}
	off := map[uint64]int{}
	give := func(key uint64, text string) {
		r.payload(parser.Client, tensor.Tensor{Key: key, Size: 4, Off: off[key], Role: tensor.Exact}, []byte(text))
		off[key] = (off[key] + len(text)) % 4
	}
	give(1, "on")
	give(2, "t")
	give(1, "e.")
	give(2, "wo.")
	give(1, "th")
	off[1] = 0
	give(1, "more")
	if want := []string{"one.", "two.", "more"}; !slices.Equal(got, want) || len(r.values[parser.Client]) != 0 {
		t.Errorf("%q, want %q; %d are under way", got, want, len(r.values[parser.Client]))
	}
	for key := range uint64(5000) {
		give(key, "x")
	}
	if n := len(r.values[parser.Client]); n > maxUnder {
		t.Errorf("%d values are under way", n)
	}
}

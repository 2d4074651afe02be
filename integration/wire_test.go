//go:build linux

package integration

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gradproxy/gradproxy/integration/testbed"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture"
)

// DDP sums up the map of parameters that no rank has used in C++, where no program sees it. The traffic between the
// ranks and the proxies does: at both sites every map must be the same. Here it first appears when the job has run for
// a while, and with it a second layout of buckets.
func TestLateMapOfUnusedParametersTravelsExactly(t *testing.T) {
	t.Parallel()
	const (
		steps, late = 24, 7
		parameters  = 2*600 + 4          // tensors: the map's elements, int32
		segment     = parameters         // bytes of a message of the map: 4 are 4 of its bytes for each parameter
		maps        = 8 * (steps - late) // messages: both ranks send 4
		model       = 4 * ((784+1)*64 + 600*(16+1)*16 + (64+1)*10)
	)
	for _, way := range lossyWays {
		t.Run(string(way), func(t *testing.T) {
			job := torchJob(t, "torch215", 2, "--batch", "64", "--branches", "600", "--unused", "--unused-from", "7", "--steps", "24")
			w := newWAN(t, 2, fast)
			ps := startProxies(t, w, way.Config())
			var taps []*testbed.Tap
			for _, s := range w.Sites {
				tap, err := s.Tap()
				if err != nil {
					t.Fatal(err)
				}
				taps = append(taps, tap)
			}
			results := runJob(t, w, job)
			report(t, leg{results: results})
			a, b := reductions(t, taps[0]), reductions(t, taps[1])
			seen, other := 0, 0
			for side := range a {
				if len(a[side]) != len(b[side]) {
					t.Fatalf("the sites see %d and %d messages of the %v", len(a[side]), len(b[side]), parser.Side(side))
				}
				for k, m := range a[side] {
					if len(m) != segment {
						other += differing(m, b[side][k])
						continue
					}
					seen++
					if !bytes.Equal(m, b[side][k]) {
						t.Errorf("message %d of the %v, of a map, is not at both sites the same: %s", k, parser.Side(side), difference(b[side][k], m))
					}
					for i := 0; i < len(m); i += 4 {
						if n := binary.LittleEndian.Uint32(m[i:]); n > 2 {
							t.Fatalf("message %d of the %v is no part of a map: %d of 2 ranks use a parameter", k, parser.Side(side), n)
						}
					}
				}
			}
			if seen != maps {
				t.Errorf("%d messages of maps, want %d", seen, maps)
			}
			if other == 0 {
				t.Error("nothing else differs either: the test shows nothing")
			}
			t.Logf("%d messages of maps are the same at both sites; of the others %d bytes differ", seen, other)
			wantLost(t, ps, way, 2*model)
			if way == gradientCodec {
				wantReplicasEqual(t, results)
			}
		})
	}
}

// reductions ends a capture and returns the payloads of Gloo's all-reduces in the order in which each side of the one
// connection that has any sent them.
func reductions(t *testing.T, tap *testbed.Tap) [2][][]byte {
	t.Helper()
	pcap, err := tap.Stop()
	if err != nil {
		t.Fatal(err)
	}
	var found []*stream
	err = capture.Read(bytes.NewReader(pcap), func(capture.Conn) capture.Sink {
		s := &stream{}
		found = append(found, s)
		return s
	})
	if err != nil {
		t.Fatal(err)
	}
	var all [2][][]byte
	for _, s := range found {
		if s.gap {
			t.Error("the capture lacks bytes")
		}
		// The capture shows the two directions of the proxy beside the client under different addresses, as two
		// connections.
		for side := range all {
			if p := payloads(s.bytes[side]); p != nil && all[side] == nil {
				all[side] = p
			} else if p != nil {
				t.Fatalf("the %vs of several connections send all-reduces, want one", parser.Side(side))
			}
		}
	}
	return all
}

// A stream keeps the bytes of a captured connection.
type stream struct {
	bytes [2][]byte
	gap   bool
}

func (s *stream) Data(from parser.Side, b []byte) { s.bytes[from] = append(s.bytes[from], b...) }
func (s *stream) Gap(parser.Side)                 { s.gap = true }
func (s *stream) Close(bool)                      {}

// payloads returns the payloads of all-reduces in one direction of a connection between torch 2's ranks; nil if it is
// none. An op is six 64-bit integers, the second its opcode, the third the slot, whose highest byte names the
// collective, the fifth the length of the payload if the opcode is 0 or 1 (gloo/transport/tcp/pair.h). The client first
// sends 8 bytes.
func payloads(b []byte) (found [][]byte) {
	const preamble, sendUnbound, allReduce = 48, 1, 4
	field := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	if len(b) >= 8+preamble && field(0) < preamble {
		b = b[8:]
	}
	for len(b) >= preamble {
		code, slot, length, payload := field(1), field(2), field(4), uint64(0)
		if code <= sendUnbound {
			payload = length
		}
		if code > 3 || field(0) != preamble+payload || uint64(len(b)) < preamble+payload {
			return nil
		}
		if b = b[preamble:]; code == sendUnbound && slot>>56 == allReduce {
			found = append(found, b[:payload])
		}
		b = b[payload:]
	}
	return found
}

package sketched

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/codectest"
	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
)

// A story is a file of testdata/exchange: lines "name: value" (the expected result: "ok"; "corrupt, " or "order, " and
// a part of the error; the number of workers, their Memory), the parameters, and then, step after step, parts that
// begin with a line of their name and a worker's number: its gradient, the messages in turn, in hex, and each worker's
// residual. The reader of a message with a name after "refused" answers it with the error. Workers are as before, and
// their story goes on.
type story struct {
	*testing.T
	header   map[string]string
	server   *Server
	workers  []*Worker
	latest   []byte // message
	refusals int
}

// The halves make the messages of the vectors, and read them. Bytes that are no message, or not one that the other half
// can have made, are refused.
func TestGoldenExchanges(t *testing.T) {
	parts := []string{"params", "gradient", "first", "candidates", "values", "update", "residual", "refused"}
	codectest.EachVector(t, "testdata/exchange", []string{"expect"}, parts, func(t *testing.T, v codectest.Vector) {
		s := &story{T: t, header: v.Header}
		for _, p := range v.Parts {
			s.part(p.Name, p.Lines)
		}
		whole := s.server != nil && s.server.step > 0
		if v.Header["expect"] == "ok" && !whole || v.Header["expect"] != "ok" && s.refusals != 1 {
			t.Error("it has no step, or not one message that is refused")
		}
	})
}

func (s *story) part(name string, lines []string) {
	name, number, _ := strings.Cut(name, " ")
	n, _ := strconv.Atoi(number)
	switch name {
	case "refused":
		s.refused(number, codectest.HexBytes(s.T, lines))
	case "params":
		s.begin(codectest.HexBytes(s.T, lines))
	case "gradient":
		s.latest = must(s)(s.workers[n].Sketch(nil, codectest.Floats(s.T, lines)))
	case "first":
		s.same(lines)
		check(s, s.server.AddSketch(n, s.latest))
	case "candidates":
		s.latest = must(s)(s.server.Candidates(nil))
		s.same(lines)
	case "values":
		candidates := sketchedsgd.AppendCoordinates(appendHead(nil, kindCandidates, s.server.step), s.server.asked)
		s.latest = must(s)(s.workers[n].Values(nil, candidates))
		s.same(lines)
		check(s, s.server.AddValues(n, s.latest))
	case "update":
		s.latest = must(s)(s.server.Update(nil))
		s.same(lines)
		for _, w := range s.workers {
			workers, err := w.Update(make([]float32, w.plan.D), s.latest)
			if err != nil || workers != len(s.workers) {
				s.Fatalf("%d workers, %v", workers, err)
			}
		}
	case "residual":
		for i, want := range codectest.Floats(s.T, lines) {
			if got := s.workers[n].memory.v[i]; math.Float32bits(got) != math.Float32bits(want) {
				s.Errorf("step %d, worker %d: residual %d is %x, want %x", s.server.step-1, n, i, got, want)
			}
		}
	default:
		s.Fatalf("unknown part %q", name)
	}
}

// refused gives a wrong message to its readers.
func (s *story) refused(name string, msg []byte) {
	s.refusals++
	name, number, _ := strings.Cut(name, " ")
	n, _ := strconv.Atoi(number)
	switch name {
	case "params":
		_, _, err := paramsOf(msg)
		s.refusal(err)
	case "first":
		s.refusal(s.server.AddSketch(n, msg))
	case "values":
		s.refusal(s.server.AddValues(n, msg))
	case "candidates":
		for _, w := range s.workers {
			got, err := w.Values([]byte("kept"), msg)
			s.refusal(err)
			if string(got) != "kept" {
				s.Errorf("what was there is %q", got)
			}
		}
	case "update":
		for _, w := range s.workers {
			_, err := w.Update(make([]float32, w.plan.D), msg)
			s.refusal(err)
		}
	default:
		s.Fatalf("unknown message %q", name)
	}
}

// refusal checks that an error is as the story says.
func (s *story) refusal(err error) {
	s.Helper()
	kind, why, _ := strings.Cut(s.header["expect"], ", ")
	want, ok := map[string]error{"corrupt": codecs.ErrCorrupt, "order": ErrOrder}[kind]
	if !ok {
		s.Fatalf("unknown expectation %q", kind)
	}
	if !errors.Is(err, want) || !strings.Contains(err.Error(), why) {
		s.Errorf("%v; want an error that wraps %q and says %q", err, want, why)
	}
}

// begin makes the halves.
func (s *story) begin(params []byte) {
	p, small, err := paramsOf(params)
	check(s, err)
	plan := smallPlan(s, p, small)
	momentum, err := strconv.ParseFloat(s.header["momentum"], 32)
	check(s, err)
	m := Memory{Momentum: float32(momentum), Masking: s.header["masking"] == "true"}
	if s.header["forget"] == "mean" {
		m.Forget = Mean
	}
	workers, err := strconv.Atoi(s.header["workers"])
	check(s, err)
	s.server = mustServer(s, plan, workers)
	for range workers {
		w, err := NewWorker(plan, m)
		check(s, err)
		s.workers = append(s.workers, w)
	}
}

func (s *story) same(lines []string) {
	s.Helper()
	if want := codectest.HexBytes(s.T, lines); !bytes.Equal(s.latest, want) {
		s.Fatalf("step %d: the message is\n%x\nwant\n%x", s.server.step, s.latest, want)
	}
}

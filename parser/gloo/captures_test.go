package gloo

import (
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

// A heard message is a payload with the tensor that the proxy beside its sender returned for it.
type heard struct {
	from  parser.Side
	op    op
	value tensor.Tensor // at its first byte
	data  []byte
}

// A listener gives one connection of a capture to the proxies of both its ends.
type listener struct {
	conn     capture.Conn
	parsers  [2][2]parser.Parser // of the proxy beside a side, for a direction
	failed   [2]error
	messages []heard
	complete bool
}

func (l *listener) Gap(from parser.Side) { l.failed[from] = fmt.Errorf("gap") }
func (l *listener) Close(complete bool)  { l.complete = complete }

func (l *listener) Data(from parser.Side, b []byte) {
	far := l.parsers[1-from][from]
	for rest := b; len(rest) > 0; { // the proxy beside the receiver only learns
		seg, err := far.Next(rest)
		if err != nil {
			break
		}
		rest = rest[seg.Len:]
	}
	for len(b) > 0 && l.failed[from] == nil {
		p := l.parsers[from][from]
		seg, err := p.Next(b)
		if err != nil {
			l.failed[from] = err
			return
		}
		if t := seg.Tensor; t.Size > 0 {
			if t.Off == 0 {
				l.messages = append(l.messages, heard{from: from, op: p.(*stream).watch.op, value: t})
			}
			m := &l.messages[len(l.messages)-1]
			if t.Off > 0 {
				for i := len(l.messages) - 1; ; i-- {
					if m = &l.messages[i]; m.from == from {
						break
					}
				}
			}
			m.data = append(m.data, b[:seg.Len]...)
		}
		b = b[seg.Len:]
	}
}

// listen plays a capture through proxies at every end, all in one job.
func listen(t testing.TB, path string, sums parser.Sums, ranks int) []*listener {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	near := [2]*Protocol{{}, {}}
	var all []*listener
	err = capture.Read(f, func(c capture.Conn) capture.Sink {
		l := &listener{conn: c}
		for side := range near {
			pc := parser.Conn{Job: "capture", Client: c.Client, Server: c.Server, Number: c.Number, Ranks: ranks, Sums: sums, Own: parser.Side(side)}
			l.parsers[side][0], l.parsers[side][1] = near[side].New(pc)
		}
		all = append(all, l)
		return l
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A call is an all-reduce as the job's framework made it.
type call struct {
	Op, Role, DType string
	Step, Bytes     int
	Tag             uint32
}

// A recording holds the facts that were recorded of a job beside its capture.
type recording struct {
	World     int
	Framework struct {
		Calls  []call
		Params [][]any
		Steps  []json.RawMessage
	}
}

func recordOf(t *testing.T, file string) recording {
	t.Helper()
	name, _, _ := strings.Cut(filepath.Base(file), ".pcap")
	text, err := os.ReadFile(filepath.Join(filepath.Dir(file), name+".truth.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

// calls lists the all-reduces of a job in order. The older captures do not tell them; they hold gradients only, as many
// bytes a step as the model has, but for a map of used parameters, 4 bytes for each.
func (r recording) calls(messages []heard) (all []call) {
	for _, c := range r.Framework.Calls {
		if c.Op == "all_reduce" {
			all = append(all, c)
		}
	}
	if len(all) > 0 {
		step := -1
		for i := range all { // torch's calls do not tell the step, but end it with metrics
			if all[i].Tag > 0 && all[i].Role == "gradient" && (i == 0 || all[i-1].Role != "gradient") {
				step++
			}
			if all[i].Tag > 0 {
				all[i].Step = step
			}
		}
		return all
	}
	model, sizes := 0, map[uint32]int{}
	for _, p := range r.Framework.Params {
		model += int(p[2].(float64))
	}
	var tags []uint32
	for _, m := range messages {
		if m.op.slot.kind() == allReduce {
			if sizes[m.op.slot.tag()] == 0 {
				tags = append(tags, m.op.slot.tag())
			}
			sizes[m.op.slot.tag()] += m.value.Size
		}
	}
	slices.Sort(tags)
	sent := 0
	for _, tag := range tags {
		size := sizes[tag] / (2 * (r.World - 1)) // all ranks together send 2(n-1) times the tensor
		c := call{Role: "gradient", DType: "float32", Bytes: size, Tag: tag, Step: sent / model}
		if size == 4*len(r.Framework.Params) {
			c.Role, c.DType = "used", "int32"
		} else {
			sent += size
		}
		all = append(all, c)
	}
	return all
}

// Of recorded jobs nothing but phase 1 of gradients is called gradient, most of it is found from the third step on, and
// no element type is wrong.
func TestRolesOfCapturedJobs(t *testing.T) {
	for _, file := range require.Captures(t, "gloo-*.pcap*") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			r := recordOf(t, file)
			conns := listen(t, file, parser.SumsGradients, 0)
			var messages []heard
			for _, l := range conns {
				messages = append(messages, l.messages...)
			}
			calls := r.calls(messages)
			found, of := 0, 0
			for _, l := range conns {
				for side := range l.failed {
					if err := l.failed[side]; err != nil && len(l.messages) > 0 {
						t.Errorf("%v from the %v: %v", l.conn, parser.Side(side), err)
					}
					f, o := compare(t, calls, l.messages, parser.Side(side), r.World)
					found, of = found+f, of+o
				}
			}
			if of == 0 || 10*found < 8*of {
				t.Errorf("%d of %d bytes of gradients found", found, of)
			}
		})
	}
}

// compare compares one direction with the job's calls. It returns the bytes of phase 1 of gradients from the third step
// on (of), and how many of them were found.
func compare(t *testing.T, calls []call, messages []heard, side parser.Side, ranks int) (found, of int) {
	t.Helper()
	sent := map[uint32][]heard{} // by tag; the tag is the number of the call where all are the same
	counted := len(calls) > 0 && calls[len(calls)-1].Tag > 0
	number, left := uint32(0), 0
	for _, m := range messages {
		if m.from != side || m.op.slot.kind() != allReduce {
			continue
		}
		tag := m.op.slot.tag()
		if !counted { // two ranks: each sends as many bytes as the tensor has
			if left == 0 {
				left = calls[number].Bytes
				number++
			}
			left -= m.value.Size
			tag = number - 1
		}
		sent[tag] = append(sent[tag], m)
	}
	for i, c := range calls {
		tag := c.Tag
		if !counted {
			tag = uint32(i)
		}
		for k, m := range sent[tag] {
			first := 2*k < len(sent[tag])
			where := fmt.Sprintf("%s of %d bytes, tag %d, step %d, message %d", c.Role, c.Bytes, tag, c.Step, k)
			if m.value.Role == tensor.Gradient && (c.Role != "gradient" || !first) {
				t.Errorf("%s is called a gradient", where)
			}
			if d := m.value.DType; d != tensor.NoDType && d.String() != c.DType {
				t.Errorf("%s: %s is called %v", where, c.DType, d)
			}
			if c.Role == "gradient" && first && c.Step >= 2 {
				of += m.value.Size
				if m.value.Role == tensor.Gradient {
					found += m.value.Size
				}
			}
		}
	}
	return found, of
}

package inspect

import (
	"cmp"
	"slices"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/estimate"
)

// A Method is the tensors of all calls of one method, over all connections.
type Method struct {
	Protocol   string     `json:"protocol"`
	Method     string     `json:"method"` // "/package.Service/Method", or the path of an HTTP request
	FromClient MethodSide `json:"from_client"`
	FromServer MethodSide `json:"from_server"`
}

// A MethodSide is the tensors in one side's messages.
type MethodSide struct {
	TensorBytes int            `json:"tensor_bytes"`
	Policies    map[string]int `json:"policies"` // bytes in the tunnel for them, by the policy's codec
}

// saved returns how many bytes lossless coding saves.
func (m *Method) saved() int {
	return m.FromClient.TensorBytes - m.FromClient.Policies[Lossless] + m.FromServer.TensorBytes - m.FromServer.Policies[Lossless]
}

// A methodRun is segments that are sent to a flow at once, whose tensors belong to calls of one method.
type methodRun struct {
	method   string
	segments int
	bytes    int
	tensors  bool
}

// A methodTally counts the tensors of a method in one direction.
type methodTally struct {
	raw  int
	wire []int // as costings
}

// maxMethods bounds the methods of a direction that are told apart.
const maxMethods = 1 << 10

// run adds a segment to the last run, or begins one where the method of tensors changes.
func (r *reader) run(seg parser.Segment, method string) {
	last := len(r.runs) - 1
	isTensor := seg.Tensor.Size > 0
	if last < 0 || isTensor && r.runs[last].tensors && r.runs[last].method != method {
		r.runs = append(r.runs, methodRun{})
		last++
	}
	x := &r.runs[last]
	x.segments++
	x.bytes += seg.Len
	if isTensor {
		x.method, x.tensors = method, true
	}
}

// send shows bytes that were understood to a flow, which is that of the i-th costing, and counts the tensors by their
// methods.
func (r *reader) send(from parser.Side, i int, f *estimate.Flow, b []byte) error {
	segments := r.segments
	for _, run := range r.runs {
		before := f.Tensors()
		if err := f.Send(b[:run.bytes], segments[:run.segments]); err != nil {
			return err
		}
		b, segments = b[run.bytes:], segments[run.segments:]
		if run.tensors && run.method != "" {
			r.count(from, i, run.method, before, f.Tensors())
		}
	}
	return nil
}

// count counts bytes of a method's tensors.
func (r *reader) count(from parser.Side, i int, method string, before, after estimate.Size) {
	t := r.methods[from][method]
	if t == nil {
		if len(r.methods[from]) >= maxMethods {
			return
		}
		if r.methods[from] == nil {
			r.methods[from] = map[string]*methodTally{}
		}
		t = &methodTally{wire: make([]int, len(r.costings))}
		r.methods[from][method] = t
	}
	if i == 0 {
		t.raw += int(after.Raw - before.Raw)
	}
	t.wire[i] += int(after.Wire - before.Wire)
}

// methods sums up the methods of all connections, sorted by the bytes that lossless coding saves, the most first.
func (x *inspector) methods() []Method {
	list := []Method{}
	places := map[[2]string]int{} // by protocol and method
	for _, w := range x.wires {
		if w.known == nil {
			continue
		}
		for side, tallies := range w.known.methods {
			for name, t := range tallies {
				k := [2]string{w.known.protocol, name}
				i, ok := places[k]
				if !ok {
					i, places[k] = len(list), len(list)
					list = append(list, Method{Protocol: w.known.protocol, Method: name})
				}
				s := [2]*MethodSide{&list[i].FromClient, &list[i].FromServer}[side]
				s.TensorBytes += t.raw
				for k, c := range x.costings {
					if s.Policies == nil {
						s.Policies = map[string]int{}
					}
					s.Policies[c.text] += t.wire[k]
				}
			}
		}
	}
	for i := range list {
		for _, s := range []*MethodSide{&list[i].FromClient, &list[i].FromServer} {
			if s.Policies == nil {
				s.Policies = map[string]int{}
			}
		}
	}
	slices.SortFunc(list, func(a, b Method) int {
		return cmp.Or(cmp.Compare(b.saved(), a.saved()), cmp.Compare(a.Method, b.Method))
	})
	return list
}

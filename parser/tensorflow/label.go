package tensorflow

import (
	"strings"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc"
	"github.com/gradproxy/gradproxy/tensor"
)

var _ grpc.Labeler = (*connection)(nil)

// Label implements [grpc.Labeler]: it tells the edge of a graph, or the collective, between two tasks.
func (x *connection) Label(from parser.Side, t tensor.Tensor) (l parser.Label) {
	m := x.under[from].byKey[t.Key]
	if m == nil {
		return l
	}
	ask := m.call.get()
	switch r := m.fields.(type) {
	case *valueReader:
		if e, ok := parseEdge(ask.key); ok {
			l = parser.Label{From: taskOf(e.from), To: taskOf(e.to), Name: e.name, Shape: r.content.shape.String()}
		}
	case *bufferReader:
		l = parser.Label{From: taskOf(ask.from), To: taskOf(ask.to)}
	}
	return l
}

// taskOf returns the task in a device's name: "worker 1" of /job:worker/replica:0/task:1/device:CPU:0. Other names stay
// as they are.
func taskOf(device string) string {
	job, task := "", ""
	for part := range strings.SplitSeq(device, "/") {
		if name, ok := strings.CutPrefix(part, "job:"); ok {
			job = name
		}
		if number, ok := strings.CutPrefix(part, "task:"); ok {
			task = number
		}
	}
	if job == "" || task == "" {
		return device
	}
	return job + " " + task
}

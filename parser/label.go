package parser

import "github.com/gradproxy/gradproxy/tensor"

// A Label is the name of a tensor in the words of the job, for people. Its texts come from the job. Empty fields are
// not known.
type Label struct {
	From, To string // processes: "worker 1", "server 0"
	Name     string // of the tensor: "bucket 2 of 5", "key 17", "dense/kernel"
	Shape    string // "512×256"
}

// A Labeler is a Parser that can tell the names of tensors.
type Labeler interface {
	Parser
	// Label returns the name of a tensor whose first bytes Next has returned last. It must be quick, and must change
	// nothing.
	Label(t tensor.Tensor) Label
}

// LabelOf returns the name of a tensor whose first bytes p has returned last, as far as p tells.
func LabelOf(p Parser, t tensor.Tensor) Label {
	if l, ok := p.(Labeler); ok {
		return l.Label(t)
	}
	return Label{}
}

// Label implements Labeler.
func (f *first) Label(t tensor.Tensor) Label {
	if len(f.left) != 1 {
		return Label{}
	}
	return LabelOf(f.left[0], t)
}

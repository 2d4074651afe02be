package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect"
	"github.com/gradproxy/gradproxy/codecs/codectest/npy"
	"github.com/gradproxy/gradproxy/tensor"
)

// maxCaptured bounds the values that are kept of a capture, in bytes; later ones are left out.
const maxCaptured = 1 << 30

// A kind is the role and the type of the tensors in one Data of a capture.
type kind struct {
	role  tensor.Role
	dtype tensor.DType
}

// fromCapture returns the tensors of a capture that a codec may be chosen for, by role and element type, each with the
// values that it had from message to message. Exact ones, and unknown ones where there are others, are no tensors that
// anybody would choose a codec for.
func fromCapture(r io.Reader, name string, c inspect.Config) (found []Data, err error) {
	taken := 0
	kinds := map[kind]*collection{}
	err = inspect.Values(r, c, func(v inspect.Value) {
		t := v.Tensor
		if t.Role == tensor.Exact || taken+len(v.Data) > maxCaptured {
			return
		}
		taken += len(v.Data)
		k := kind{t.Role, t.DType}
		if kinds[k] == nil {
			kinds[k] = &collection{at: map[series]int{}}
		}
		kinds[k].add(v)
	})
	if err != nil {
		return nil, err
	}
	roles := []tensor.Role{tensor.Gradient, tensor.Aggregate, tensor.State}
	if !slices.ContainsFunc(roles, func(r tensor.Role) bool {
		return slices.ContainsFunc(tensor.DTypes(), func(d tensor.DType) bool { return kinds[kind{r, d}] != nil })
	}) {
		roles = []tensor.Role{tensor.Unknown}
	}
	for _, role := range roles {
		for _, d := range append(tensor.DTypes(), tensor.NoDType) {
			if k := kinds[kind{role, d}]; k != nil {
				found = append(found, Data{Name: fmt.Sprintf("%s %v", name, role), What: "tensors of a capture", Tensors: k.tensors})
			}
		}
	}
	if found == nil {
		return nil, errors.New("no tensors are in it; see gradproxy inspect")
	}
	return found, nil
}

// A collection is the tensors of one kind, in the order of their first values.
type collection struct {
	tensors []npy.Array
	at      map[series]int // where in tensors
}

// A series is the values of one tensor, as long as its size does not change.
type series struct {
	key  uint64
	size int
}

// add adds a value to the values of its tensor. Values of tensors without a key have nothing to do with each other.
func (c *collection) add(v inspect.Value) {
	s := series{v.Tensor.Key, len(v.Data)}
	i, ok := c.at[s]
	if !ok || s.key == 0 {
		i = len(c.tensors)
		c.at[s] = i
		d := v.Tensor.DType
		c.tensors = append(c.tensors, npy.Array{DType: d, Cols: len(v.Data) / d.Size()})
	}
	c.tensors[i].Data = append(c.tensors[i].Data, v.Data...)
	c.tensors[i].Rows++
}

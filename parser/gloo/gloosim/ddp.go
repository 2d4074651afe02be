package gloosim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/gradproxy/gradproxy/tensor"
)

// normals are normally distributed.
var normals = sync.OnceValue(func() []float32 {
	rnd := rand.New(rand.NewPCG(1, 99))
	v := make([]float32, 1<<16)
	for i := range v {
		v[i] = float32(rnd.NormFloat64())
	}
	return v
})

// Gauss returns n normally distributed elements of type d, the same for the same seed.
func Gauss(seed uint64, n int, scale float32, d tensor.DType) []byte {
	table := normals()
	rnd := rand.New(rand.NewPCG(seed, 99))
	v := make([]float32, n)
	var from int
	for i := range v {
		if i%1024 == 0 {
			from = rnd.IntN(len(table))
		}
		v[i] = table[(from+i)%len(table)] * scale
	}
	b := make([]byte, n*d.Size())
	tensor.FromFloat32(b, v, d)
	return b
}

// Gradients returns an all-reduce of n elements whose values are fresh at each step and rank.
func Gradients(name string, step, n int, d tensor.DType) Call {
	return Call{Op: AllReduce, Name: name, Step: step, Role: tensor.Gradient, DType: d, Data: func(rank int) []byte {
		return Gauss(hash(name, step, rank), n, 1e-3, d)
	}}
}

// Weights returns an all-reduce of n elements that change by a small part from step to step, as weights that are
// averaged.
func Weights(name string, step, n int, d tensor.DType) Call {
	return Call{Op: AllReduce, Name: name, Step: step, Role: tensor.State, DType: d, Data: func(rank int) []byte {
		v, w := make([]float32, n), make([]float32, n)
		b := Gauss(hash(name, 0, 0), n, 0.05, tensor.Float32)
		tensor.ToFloat32(v, b, tensor.Float32)
		for s := range step {
			tensor.ToFloat32(w, Gauss(hash(name, s+1, rank), n, 0.001, tensor.Float32), tensor.Float32)
			for i := range v {
				v[i] += w[i]
			}
		}
		out := make([]byte, n*d.Size())
		tensor.FromFloat32(out, v, d)
		return out
	}}
}

func hash(name string, step, rank int) uint64 {
	h := uint64(step)*1000003 + uint64(rank)
	for _, c := range name {
		h = h*31 + uint64(c)
	}
	return h
}

// Ints returns an all-reduce of n small integers.
func Ints(name string, step, n int, d tensor.DType) Call {
	return Call{Op: AllReduce, Name: name, Step: step, Role: tensor.Exact, DType: d, Data: func(rank int) []byte {
		rnd := rand.New(rand.NewPCG(hash(name, step, rank), 5))
		b := make([]byte, n*d.Size())
		for i := 0; i < len(b); i += d.Size() {
			b[i] = byte(rnd.IntN(2))
		}
		return b
	}}
}

// Sync returns a broadcast of n bytes of floats.
func Sync(name string, step, n int) Call {
	return Call{Op: Broadcast, Name: name, Step: step, Role: tensor.Exact, DType: tensor.Float32, Data: func(int) []byte {
		return Gauss(hash(name, step, 0), n/4+1, 0.05, tensor.Float32)[:n]
	}}
}

// Gather returns an all-gather of n elements of each rank.
func Gather(name string, step, n int, d tensor.DType) Call {
	return Call{Op: AllGather, Name: name, Step: step, Role: tensor.Exact, DType: d, Data: func(rank int) []byte {
		return Gauss(hash(name, step, rank), n, 0.05, d)
	}}
}

// DDP is a job of PyTorch's DistributedDataParallel.
type DDP struct {
	Shapes  [][]int64    // of the parameters
	DType   tensor.DType // of gradients on the wire (a hook may convert gradients: parameters are float32)
	Steps   int
	Buckets [][]int // parameters of each bucket, once DDP has rebuilt its buckets; nil: in all steps one bucket has all parameters
	Buffers int     // bytes of float buffers, broadcast before each step
	Unused  bool    // looks for unused parameters: announces no buckets, and reduces a map of used ones
	Static  bool    // its graph is static: it announces its buckets before the third step, not the second
	// Before and After return further calls of a step, before and after its gradients.
	Before, After func(step int) []Call
}

// Calls returns the program of the job.
func (j DDP) Calls() []Call {
	shapes, counts, total := j.parameters()
	exact := func(op Op, name string, d tensor.DType, b []byte) Call {
		return Call{Op: op, Name: name, Role: tensor.Exact, DType: d, Data: func(int) []byte { return b }, Wait: true}
	}
	calls := []Call{
		exact(AllGather, "number of parameters", tensor.Int64, binary.LittleEndian.AppendUint64(nil, uint64(len(counts)))),
		exact(Broadcast, "shapes", tensor.Int64, shapes),
		Sync("parameters", 0, 4*total+j.Buffers),
	}
	calls[2].Wait = true
	all := make([]int, len(counts))
	for i := range all {
		all[i] = i
	}
	rebuilt := 1 // step from which on it has its buckets
	if j.Static {
		rebuilt = 2
	}
	for s := range j.Steps {
		if s == rebuilt && !j.Unused && j.Buckets != nil {
			calls = append(calls, j.announcement(exact)...)
		}
		if j.Buffers > 0 {
			calls = append(calls, Sync("buffers", s, j.Buffers))
			calls[len(calls)-1].Wait = true
		}
		if j.Before != nil {
			calls = append(calls, j.Before(s)...)
		}
		buckets := j.Buckets
		if buckets == nil || s < rebuilt && !j.Unused {
			buckets = [][]int{all}
		}
		for b, bucket := range buckets {
			n := 0
			for _, p := range bucket {
				n += counts[p]
			}
			calls = append(calls, Gradients(fmt.Sprintf("bucket %d of %d", b, len(buckets)), s, n, j.DType))
		}
		if j.Unused {
			calls = append(calls, Ints("used", s, len(counts), tensor.Int32))
		}
		calls[len(calls)-1].Wait = true
		if j.After != nil {
			calls = append(calls, j.After(s)...)
		}
		calls[len(calls)-1].Wait = true
	}
	return calls
}

// parameters returns the parameters' shapes as they are broadcast, sizes before strides, the elements of each, and of
// all.
func (j DDP) parameters() (shapes []byte, counts []int, total int) {
	counts = make([]int, len(j.Shapes))
	for i, sizes := range j.Shapes {
		strides := make([]int64, len(sizes))
		n := int64(1)
		for k := len(sizes) - 1; k >= 0; k-- {
			strides[k] = n
			n *= sizes[k]
		}
		for _, x := range append(append([]int64{}, sizes...), strides...) {
			shapes = binary.LittleEndian.AppendUint64(shapes, uint64(x))
		}
		counts[i] = int(n)
		total += int(n)
	}
	return shapes, counts, total
}

// announcement is the two broadcasts of the buckets' order.
func (j DDP) announcement(exact func(Op, string, tensor.DType, []byte) Call) []Call {
	var order, sizes []byte
	for _, bucket := range j.Buckets {
		for _, p := range bucket {
			order = binary.LittleEndian.AppendUint32(order, uint32(p))
		}
		sizes = binary.LittleEndian.AppendUint32(sizes, uint32(len(bucket)))
	}
	order = binary.LittleEndian.AppendUint32(order, uint32(len(j.Buckets)))
	return []Call{exact(Broadcast, "bucket order", tensor.Int32, order), exact(Broadcast, "bucket sizes", tensor.Int32, sizes)}
}

package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect"
	"github.com/gradproxy/gradproxy/codecs/codectest/gradients"
	"github.com/gradproxy/gradproxy/codecs/codectest/npy"
	"github.com/gradproxy/gradproxy/tensor"
)

// Data is to be measured: a tensor at successive steps, or several tensors of one type, as a job has them.
type Data struct {
	Name    string
	What    string // in a few words; "" for a file
	Tensors []npy.Array
}

// dtype returns the type of the elements.
func (d Data) dtype() tensor.DType { return d.Tensors[0].DType }

// elements returns the number of elements of all tensors in one step.
func (d Data) elements() (n int) {
	for _, t := range d.Tensors {
		n += t.Cols
	}
	return n
}

// steps returns the number of steps of the tensor that has most.
func (d Data) steps() (n int) {
	for _, t := range d.Tensors {
		n = max(n, t.Rows)
	}
	return n
}

// ErrData says that a name is neither built-in data nor a file of a known kind, or that the file's content is of
// another kind.
var ErrData = errors.New("unusable data")

// Open returns the built-in data of that name, or else the content of a file: .npy, little-endian elements whose type
// is the suffix (.float32 or .f32, .bfloat16 or .bf16, ...), or a packet capture. c has the user's knowledge of the
// capture's job.
func Open(name string, c inspect.Config) ([]Data, error) {
	if d, ok := builtIn(name); ok {
		return []Data{d}, nil
	}
	suffix := filepath.Ext(name)
	dtype, raw := suffixes(suffix)
	captured := slices.Contains([]string{".pcap", ".pcapng", ".cap", ".gz"}, suffix)
	if suffix != ".npy" && !raw && !captured {
		return nil, fmt.Errorf("%w %q: name a file that ends in .npy, .f32, .bf16 or another type of elements, .pcap or .pcap.gz, or one of %s",
			ErrData, name, strings.Join(Names(), ", "))
	}
	f, err := os.Open(name)
	if err != nil {
		if path := (*fs.PathError)(nil); errors.As(err, &path) {
			err = path.Err
		}
		return nil, fmt.Errorf("%w %q: %w", ErrData, name, err)
	}
	defer f.Close()
	var found []Data
	if captured {
		found, err = fromCapture(f, name, c)
	} else {
		found, err = fromArray(f, name, dtype)
	}
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrData, name, err)
	}
	return found, nil
}

// fromArray reads a file of elements of type d, or of .npy if there is none.
func fromArray(r io.Reader, name string, d tensor.DType) ([]Data, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	a := npy.Array{DType: d, Rows: 1, Cols: len(b) / d.Size(), Data: b}
	if d == tensor.NoDType {
		a, err = npy.Parse(b)
	} else if len(b)%d.Size() != 0 {
		err = fmt.Errorf("%d bytes are no whole number of %v", len(b), d)
	}
	if err == nil && a.Rows*a.Cols == 0 {
		err = errors.New("it has no elements")
	}
	return []Data{{Name: name, Tensors: []npy.Array{a}}}, err
}

// suffixes returns the type of elements in a file with that ending.
func suffixes(s string) (tensor.DType, bool) {
	s = strings.TrimPrefix(s, ".")
	for _, d := range tensor.DTypes() {
		short := strings.NewReplacer("bfloat", "bf", "float", "f", "uint", "u", "int", "i").Replace(d.String())
		if s == d.String() || s == short {
			return d, true
		}
	}
	return 0, false
}

// synthetic elements: enough that a codec's tables and headers vanish.
const synthetic = 1 << 20

// builders makes the synthetic data, always the same.
var builders = [...]struct {
	name, what string
	dtype      tensor.DType
	value      func(r *rand.Rand, i int) float64
}{
	{"normal", "normal numbers", tensor.Float32, func(r *rand.Rand, _ int) float64 { return r.NormFloat64() * 1e-3 }},
	{"normal-bf16", "the same in bfloat16", tensor.BFloat16, func(r *rand.Rand, _ int) float64 { return r.NormFloat64() * 1e-3 }},
	{"laplace", "two-sided exponential numbers", tensor.Float32, laplace},
	{"rows", "normal numbers, three rows of 256 in four zero", tensor.Float32, rows},
	{"mixed", "bfloat16 values in float32, as mixed precision leaves them", tensor.Float32, mixed},
}

func laplace(r *rand.Rand, _ int) float64 {
	return math.Copysign(r.ExpFloat64()*1e-3, r.Float64()-0.5)
}

func rows(r *rand.Rand, i int) float64 {
	x := r.NormFloat64() * 1e-3
	if uint32(i/256)*2654435761>>30 != 0 {
		return 0
	}
	return x
}

func mixed(r *rand.Rand, _ int) float64 {
	bits := math.Float32bits(float32(r.NormFloat64() * 1e-3))
	return float64(math.Float32frombits(bits &^ 0xffff))
}

// Names lists the built-in data.
func Names() []string {
	var names []string
	for _, b := range builders {
		names = append(names, b.name)
	}
	names = append(names, keysName)
	for _, r := range gradients.All() {
		names = append(names, r.Name, r.Name+"-bf16")
	}
	return names
}

const keysName = "keys"

// sortedKeys are the positions of the values that are sent, one in ten, as 64-bit integers.
func sortedKeys() npy.Array {
	r := rand.New(rand.NewPCG(1, 2))
	a := npy.Array{DType: tensor.Int64, Rows: 1}
	for key := range uint64(10 << 17) {
		if r.IntN(10) == 0 {
			a.Data = binary.LittleEndian.AppendUint64(a.Data, key)
			a.Cols++
		}
	}
	return a
}

// Recorded lists the built-in vectors that were recorded in real training: gradients of one or two steps.
func Recorded() (names []string) {
	for _, r := range gradients.All() {
		names = append(names, r.Name)
	}
	return names
}

func builtIn(name string) (Data, bool) {
	for _, b := range builders {
		if b.name != name {
			continue
		}
		r := rand.New(rand.NewPCG(1, 2))
		values := make([]float32, synthetic)
		for i := range values {
			values[i] = float32(b.value(r, i))
		}
		return Data{name, b.what, []npy.Array{array(values, 1, b.dtype)}}, true
	}
	if name == keysName {
		return Data{name, "sorted keys, of one value in ten", []npy.Array{sortedKeys()}}, true
	}
	recorded := gradients.All()
	base, brain := strings.CutSuffix(name, "-bf16")
	i := slices.IndexFunc(recorded, func(r gradients.Recording) bool { return r.Name == base })
	if i < 0 {
		return Data{}, false
	}
	a := recorded[i].Array
	if brain {
		values := make([]float32, a.Rows*a.Cols)
		tensor.ToFloat32(values, a.Data, a.DType)
		a = array(values, a.Rows, tensor.BFloat16)
	}
	return Data{name, recorded[i].What, []npy.Array{a}}, true
}

func array(values []float32, rows int, d tensor.DType) npy.Array {
	b := make([]byte, len(values)*d.Size())
	tensor.FromFloat32(b, values, d)
	return npy.Array{DType: d, Rows: rows, Cols: len(values) / rows, Data: b}
}

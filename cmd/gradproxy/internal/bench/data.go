package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/codecs/codectest/gradients"
	"github.com/gradproxy/gradproxy/codecs/codectest/npy"
	"github.com/gradproxy/gradproxy/tensor"
)

// Data is a tensor at successive steps, one a row.
type Data struct {
	Name string
	What string // in a few words; "" for a file
	npy.Array
}

// ErrData says that a name is neither built-in data nor a file of a known kind.
var ErrData = errors.New("unknown data")

// Open returns the built-in data of that name, or else what is in the file: .npy, or little-endian elements whose type
// is the suffix (.float32 or .f32, .bfloat16 or .bf16, ...).
func Open(name string) (Data, error) {
	if d, ok := builtIn(name); ok {
		return d, nil
	}
	suffix := filepath.Ext(name)
	dtype, raw := suffixes(suffix)
	if suffix != ".npy" && !raw {
		return Data{}, fmt.Errorf("%w %q: name a file that ends in .npy, .f32, .bf16 or another type of elements, or one of %s",
			ErrData, name, strings.Join(Names(), ", "))
	}
	b, err := os.ReadFile(name)
	if err != nil {
		if path := (*fs.PathError)(nil); errors.As(err, &path) {
			err = path.Err
		}
		return Data{}, fmt.Errorf("%w %q: %w", ErrData, name, err)
	}
	d := Data{Name: name}
	if raw {
		if len(b)%dtype.Size() != 0 {
			return Data{}, fmt.Errorf("%w %q: %d bytes are no whole number of %v", ErrData, name, len(b), dtype)
		}
		d.Array = npy.Array{DType: dtype, Rows: 1, Cols: len(b) / dtype.Size(), Data: b}
	} else if d.Array, err = npy.Parse(b); err != nil {
		return Data{}, fmt.Errorf("%w %q: %w", ErrData, name, err)
	}
	if d.Rows*d.Cols == 0 {
		return Data{}, fmt.Errorf("%w %q: it has no elements", ErrData, name)
	}
	return d, nil
}

// suffixes returns the type of elements in a file whose name ends so.
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
	for _, r := range gradients.All() {
		names = append(names, r.Name, r.Name+"-bf16")
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
		return Data{name, b.what, array(values, 1, b.dtype)}, true
	}
	recorded := gradients.All()
	base, brain := strings.CutSuffix(name, "-bf16")
	i := slices.IndexFunc(recorded, func(r gradients.Recording) bool { return r.Name == base })
	if i < 0 {
		return Data{}, false
	}
	d := Data{name, recorded[i].What, recorded[i].Array}
	if brain {
		values := make([]float32, d.Rows*d.Cols)
		tensor.ToFloat32(values, d.Data, d.DType)
		d.Array = array(values, d.Rows, tensor.BFloat16)
	}
	return d, true
}

func array(values []float32, rows int, d tensor.DType) npy.Array {
	b := make([]byte, len(values)*d.Size())
	tensor.FromFloat32(b, values, d)
	return npy.Array{DType: d, Rows: rows, Cols: len(values) / rows, Data: b}
}

// Gen writes the kernels of the codec packages and of package tensor: kernels_amd64.s, and kernels_amd64.go with their
// declarations. It is a module of its own, since avo is needed here only; its one argument is the repository.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"
)

// packages are the directories that have kernels.
var packages = []struct {
	dir     string
	kernels func(*kernel)
}{
	{"codecs/internal/absmax", absmax},
	{"codecs/threelc", threelc},
	{"codecs/block", block},
	{"codecs/lossless", lossless},
	{"codecs/internal/magnitude", magnitude},
	{"codecs/keys", rice},
	{"codecs/countsketch", countsketch},
	{"codecs/internal/arith", arith},
	{"tensor", tensor},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen <repository>")
		os.Exit(2)
	}
	for _, p := range packages {
		if err := write(filepath.Join(os.Args[1], p.dir), p.kernels); err != nil {
			fmt.Fprintf(os.Stderr, "gen: %s: %v\n", p.dir, err)
			os.Exit(1)
		}
	}
}

func write(dir string, kernels func(*kernel)) error {
	k := &kernel{Context: build.NewContext(), data: map[string]operand.Mem{}}
	k.ConstraintExpr("!purego")
	kernels(k)
	f, err := k.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(f); err != nil {
		return err
	}
	for _, fn := range f.Functions() {
		if err := checkTier(fn); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	c := printer.Config{Name: "gen, with avo", Pkg: filepath.Base(dir)}
	for name, p := range map[string]printer.Printer{"kernels_amd64.s": printer.NewGoAsm(c), "kernels_amd64.go": printer.NewStubs(c)} {
		b, err := p.Print(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// checkTier refuses a kernel that needs more than the tier that its name ends with has, or that fuses multiplications
// and additions.
func checkTier(f *ir.Function) error {
	have := []string{"AVX", "AVX2", "BMI", "BMI2", "CMOV", "MMX+", "POPCNT", "SSE2"} // MMX+ has the instructions that fetch ahead
	for _, tier := range []struct {
		name string
		adds []string
	}{
		{"AVX2", nil},
		{"AVX512", []string{"AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL"}},
		{"VBMI", []string{"AVX512VBMI", "AVX512VBMI2"}},
	} {
		have = append(have, tier.adds...)
		if strings.HasSuffix(f.Name, tier.name) {
			for _, isa := range f.ISA {
				if !slices.Contains(have, isa) {
					return fmt.Errorf("%s needs %s", f.Name, isa)
				}
			}
			return fused(f)
		}
	}
	return fmt.Errorf("%s ends with no tier", f.Name)
}

func fused(f *ir.Function) error {
	for _, i := range f.Instructions() {
		if strings.HasPrefix(i.Opcode, "VFM") || strings.HasPrefix(i.Opcode, "VFN") {
			return fmt.Errorf("%s has %s, which rounds once where its twin in Go rounds twice", f.Name, i.Opcode)
		}
	}
	return nil
}

// A kernel is avo's context with the helpers that the kernels here have in common.
type kernel struct {
	*build.Context
	labels int
	data   map[string]operand.Mem
}

// function begins a kernel: one loop that calls nothing.
func (k *kernel) function(name, signature string, doc ...string) {
	k.Function(name)
	k.SignatureExpr("func" + signature)
	k.Doc(append([]string{}, doc...)...)
	k.Attributes(4) // NOSPLIT
	k.Pragma("noescape")
}

// arg loads a parameter that is a pointer or 64 bits wide.
func (k *kernel) arg(name string) reg.GPVirtual {
	r := k.GP64()
	k.Load(k.Param(name), r)
	return r
}

// parameter returns where a parameter lies in memory.
func (k *kernel) parameter(name string) operand.Mem {
	b, err := k.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// loop runs body until the counter, in bytes or elements, is used up by step at a turn; it is at least step at first.
func (k *kernel) loop(counter reg.GPVirtual, step int, body func()) {
	k.labels++
	label := fmt.Sprintf("loop%d", k.labels)
	k.Label(label)
	body()
	k.SUBQ(operand.U32(step), counter)
	k.JNZ(operand.LabelRef(label))
}

// aheadLoop is loop for kernels that read or write much memory. A processor fetches ahead within a page only, and knows
// the next one late unless some of its lines are asked for: ask does that, once in so many turns.
func (k *kernel) aheadLoop(counter reg.GPVirtual, step, turns int, ask func(page int), body func()) {
	const page = 4096
	k.labels++
	label := fmt.Sprintf("ahead%d", k.labels)
	k.Label(label)
	ask(page)
	left := k.GP64()
	k.MOVQ(operand.U32(step*turns), left)
	k.CMPQ(counter, left)
	k.CMOVQLT(counter, left)
	k.SUBQ(left, counter)
	k.loop(left, step, body)
	k.TESTQ(counter, counter)
	k.JNZ(operand.LabelRef(label))
}

// aheadBytes is how far ahead kernels ask for each line, where that is better than aheadLoop: two pages, of which one
// is on its way when the other is needed.
const aheadBytes = 2 * 4096

// splat32 returns a vector register, as wide as like makes it, of which each 32-bit lane is x.
func (k *kernel) splat32(v reg.VecVirtual, x uint32) reg.VecVirtual {
	r := k.GP32()
	k.MOVL(operand.U32(x), r)
	lane := k.XMM()
	k.VMOVD(r, lane)
	k.VPBROADCASTD(lane, v)
	return v
}

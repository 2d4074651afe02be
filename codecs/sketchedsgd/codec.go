package sketchedsgd

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/countsketch"
	"github.com/gradproxy/gradproxy/codecs/internal/absmax"
)

// Config has the codec's parameters. The zero Config is the default. Fractions are of a block's values, and stand for
// at least one value or column.
type Config struct {
	K     float64           // values that are sent, a fraction up to 1. 0 is 0.01.
	P     int               // candidates are P times as many, 1 to 1<<20. 0 is 4.
	Rows  int               // of the sketch: odd, 1 to 15. 0 is 5.
	Cols  float64           // of the sketch, a fraction up to 1. 0 is 1/32.
	Cells countsketch.Cells // the type to which the sketch's cells are rounded
	Pick  Pick
	Seed  uint64 // at most 1<<63-1. 0 is 1.
	// Block is the number of values that share a sketch, at most 1<<24. 0 is 1<<20, 4 MiB of float32; a sketch of 5
	// rows then takes 640 KiB.
	Block int
}

const (
	defaultK     = 0.01
	defaultCols  = 1.0 / 32
	defaultSeed  = 1
	defaultBlock = 1 << 20
	maxBlock     = 1 << 24
	maxN         = 2 * maxBlock // values of a coder: a block of 16-bit elements
	maxP         = 1 << 20
	minPart      = 1e-6
)

// New returns the codec, or an error that wraps codecs.ErrText if a parameter is out of its bounds.
func New(c Config) (codecs.Codec, error) {
	c = Config{
		K: cmp.Or(c.K, defaultK), P: cmp.Or(c.P, defaultP), Rows: cmp.Or(c.Rows, defaultRows), Cols: cmp.Or(c.Cols, defaultCols),
		Cells: c.Cells, Pick: c.Pick, Seed: cmp.Or(c.Seed, defaultSeed), Block: cmp.Or(c.Block, defaultBlock),
	}
	switch {
	case !(c.K >= minPart && c.K <= 1 && c.Cols >= minPart && c.Cols <= 1):
		return nil, fmt.Errorf("%w: sketchedsgd: k is %v, cols %v; write fractions from %v to 1", codecs.ErrText, c.K, c.Cols, minPart)
	case c.P < 1 || c.P > maxP:
		return nil, fmt.Errorf("%w: sketchedsgd: p is %d; write a number from 1 to %d", codecs.ErrText, c.P, maxP)
	case c.Seed > math.MaxInt64:
		return nil, fmt.Errorf("%w: sketchedsgd: seed is %d; write a number from 1 to %d", codecs.ErrText, c.Seed, int64(math.MaxInt64))
	case c.Block < 1 || c.Block > maxBlock:
		return nil, fmt.Errorf("%w: sketchedsgd: block is %d; write a number of values from 1 to %d", codecs.ErrText, c.Block, maxBlock)
	}
	if _, err := NewPlan(c.params(1)); err != nil {
		return nil, fmt.Errorf("%w: %w", codecs.ErrText, err)
	}
	return codecs.Values(&method{config: c}), nil
}

// FromArgs makes the codec of a text: sketchedsgd, sketchedsgd(k=0.001,p=16),
// sketchedsgd(rows=15,cols=0.002,pick=heavymix).
func FromArgs(a *codecs.Args) (codecs.Codec, error) {
	c := Config{
		K:     a.Float("k", defaultK, minPart, 1),
		P:     a.Int("p", defaultP, 1, maxP),
		Rows:  a.Int("rows", defaultRows, 1, countsketch.MaxRows),
		Cols:  a.Float("cols", defaultCols, minPart, 1),
		Seed:  uint64(a.Int("seed", defaultSeed, 1, math.MaxInt)),
		Block: a.Int("block", defaultBlock, 1, maxBlock),
	}
	if a.Choice("cells", countsketch.Float32.String(), countsketch.Float16.String()) == countsketch.Float16.String() {
		c.Cells = countsketch.Float16
	}
	if a.Choice("pick", TopPK.String(), HeavyMix.String()) == HeavyMix.String() {
		c.Pick = HeavyMix
	}
	if err := a.Err(); err != nil {
		return nil, err
	}
	return New(c)
}

// A method is a Config with its defaults in place of zero values, and the scratch memory of its coders.
type method struct {
	config  Config
	benches sync.Pool // of *bench
	sents   sync.Pool // of *sent
}

// String leaves out parameters that have their defaults.
func (m *method) String() string {
	return codecs.FormatText("sketchedsgd",
		codecs.Param{Name: "k", Value: m.config.K, Def: defaultK},
		codecs.Param{Name: "p", Value: m.config.P, Def: defaultP},
		codecs.Param{Name: "rows", Value: m.config.Rows, Def: defaultRows},
		codecs.Param{Name: "cols", Value: m.config.Cols, Def: defaultCols},
		codecs.Param{Name: "cells", Value: m.config.Cells, Def: countsketch.Float32},
		codecs.Param{Name: "pick", Value: m.config.Pick, Def: TopPK},
		codecs.Param{Name: "seed", Value: m.config.Seed, Def: uint64(defaultSeed)},
		codecs.Param{Name: "block", Value: m.config.Block, Def: defaultBlock})
}

// part returns a fraction of n, rounded, at least 1.
func part(fraction float64, n int) int { return max(1, int(float64(fraction*float64(n))+0.5)) }

// params returns the parameters of blocks of n values.
func (c Config) params(n int) Params {
	return Params{D: n, K: part(c.K, n), P: c.P, Rows: c.Rows, Columns: part(c.Cols, n), Cells: c.Cells, Seed: c.Seed, Pick: c.Pick}
}

func (m *method) Traits() codecs.Traits { return codecs.Traits{} }

func (m *method) MaxEncodedLen(n int) int {
	if n == 0 {
		return 1
	}
	k := part(m.config.K, n)
	return binary.MaxVarintLen32 + positions.MaxLen(k) + 4*k
}

func (m *method) Block(size int) int { return min(size, 4*m.config.Block) }

// A bench is the memory for choosing values of a block: coders are many, but few run at a time.
type bench struct {
	plan   *Plan
	picker Picker

	keys   []uint64
	values []float32
}

// take returns a bench for blocks of n values, at least 1. To make one takes less time than to use it.
func (m *method) take(n int) *bench {
	if b, ok := m.benches.Get().(*bench); ok && b.plan.D == n {
		return b
	}
	plan, err := NewPlan(m.config.params(n))
	if err != nil {
		panic(err) // New has checked all that does not depend on n
	}
	return &bench{plan: plan}
}

func (m *method) NewEncoder(n int) (codecs.ValueEncoder, error) {
	if err := checkLen(n); err != nil {
		return nil, err
	}
	return &encoder{method: m, n: n}, nil
}

func (m *method) NewDecoder(n int) (codecs.ValueDecoder, error) {
	if err := checkLen(n); err != nil {
		return nil, err
	}
	return &decoder{method: m, n: n}, nil
}

func checkLen(n int) error {
	if n > maxN {
		return fmt.Errorf("%w: sketchedsgd: %d values at once; at most %d", codecs.ErrUnsuited, n, maxN)
	}
	return nil
}

type encoder struct {
	*method
	n    int
	step uint64 // encodings made
}

// Append is a step of one worker and a server without other workers.
func (e *encoder) Append(dst []byte, src []float32) ([]byte, error) {
	if len(src) != e.n {
		panic(fmt.Sprintf("sketchedsgd: %d values for an encoder of %d", len(src), e.n))
	}
	if e.n == 0 {
		return append(dst, 0), nil
	}
	if largest, limit := absmax.Of(src), Limit(e.n); !(largest <= limit) {
		return dst, fmt.Errorf("%w: sketchedsgd: the largest value is %v; sums of %d may overflow from %v on", codecs.ErrUnsuited, largest, e.n, limit)
	}
	b := e.take(e.n)
	defer e.benches.Put(b)
	s := b.plan.Take()
	defer b.plan.Put(s)
	s.Insert(0, src)
	if err := s.Round(e.config.Cells); err != nil {
		panic(err) // limit forbids it
	}
	asked := b.picker.Pick(b.plan, s, e.step)
	b.values = b.values[:0]
	for _, i := range asked {
		b.values = append(b.values, src[i])
	}
	b.keys = Largest(b.keys[:0], b.values, b.plan.K)
	for at, j := range b.keys { // j >= at: overwritten entries have been read
		b.keys[at], b.values[at] = asked[j], b.values[j]
	}
	e.step++
	return AppendValues(AppendCoordinates(dst, b.keys), b.values[:len(b.keys)]), nil
}

type decoder struct {
	*method
	n int
}

// A sent is the values that an encoding holds. Decoders keep none of them: a peer may make a receiver create very many
// decoders.
type sent struct {
	keys   []uint64
	values []float32
}

func (d *decoder) Decode(dst []float32, src []byte) (err error) {
	if len(dst) != d.n {
		panic(fmt.Sprintf("sketchedsgd: %d values for a decoder of %d", len(dst), d.n))
	}
	limit := 0
	if d.n > 0 {
		limit = part(d.config.K, d.n)
	}
	s, ok := d.sents.Get().(*sent)
	if !ok {
		s = new(sent)
	}
	defer d.sents.Put(s)
	if s.keys, src, err = CutCoordinates(s.keys, src, limit, d.n); err != nil {
		return err
	}
	if cap(s.values) < len(s.keys) {
		s.values = make([]float32, len(s.keys))
	}
	s.values = s.values[:len(s.keys)]
	if err := GetValues(s.values, src); err != nil {
		return err
	}
	clear(dst)
	for j, i := range s.keys {
		dst[i] = s.values[j]
	}
	return nil
}

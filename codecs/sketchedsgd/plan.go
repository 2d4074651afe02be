package sketchedsgd

import (
	"fmt"
	"math"
	"sync"

	"github.com/gradproxy/gradproxy/codecs/countsketch"
)

// A Pick is the way in which candidates are chosen from a sketch.
type Pick uint8

const (
	TopPK    Pick = iota // the P·k coordinates of the largest estimates (Algorithm 3, line 9)
	HeavyMix             // Algorithm 1: the k coordinates of the heavy hitters, filled up at random. P is not used.
)

func (p Pick) String() string {
	if p == HeavyMix {
		return "heavymix"
	}
	return "topk"
}

// Params are the parameters of one tensor, by the paper's symbols.
type Params struct {
	D       int               // d, values of the tensor: at most 1<<31-1
	K       int               // k, coordinates that are sent: 1 to D
	P       int               // candidates are P·K: at least 1. 0 is 4.
	Rows    int               // r, of the sketch: odd, 1 to 15. 0 is 5.
	Columns int               // c, of the sketch: 1 to 1<<28
	Cells   countsketch.Cells // on the wire
	Seed    uint64            // of the sketch's hash functions and of random draws
	Pick    Pick
}

const (
	defaultP    = 4
	defaultRows = 5
)

// A Plan is Params that have been checked, and their hash functions. It is immutable and safe for concurrent use.
type Plan struct {
	Params   // without zero values that stand for others
	hash     *countsketch.Hash
	sketches sync.Pool // of *countsketch.Sketch: workers and blocks are many, but few make sketches at a time
}

// Take returns a sketch of the zero vector, to be given back by Put.
func (p *Plan) Take() *countsketch.Sketch {
	if s, ok := p.sketches.Get().(*countsketch.Sketch); ok {
		s.Reset()
		return s
	}
	return countsketch.New(p.hash)
}

// Put takes back a sketch of Take.
func (p *Plan) Put(s *countsketch.Sketch) { p.sketches.Put(s) }

// NewPlan checks p.
func NewPlan(p Params) (*Plan, error) {
	if p.P == 0 {
		p.P = defaultP
	}
	if p.Rows == 0 {
		p.Rows = defaultRows
	}
	switch {
	case p.D < 1 || p.D > math.MaxInt32:
		return nil, fmt.Errorf("sketchedsgd: d is %d; write a number of values from 1 to %d", p.D, math.MaxInt32)
	case p.K < 1 || p.K > p.D:
		return nil, fmt.Errorf("sketchedsgd: k is %d; write a number of coordinates from 1 to d, %d", p.K, p.D)
	case p.P < 1 || p.P > math.MaxInt32:
		return nil, fmt.Errorf("sketchedsgd: p is %d; write a number from 1 to %d", p.P, math.MaxInt32)
	case p.Cells > countsketch.Float16 || p.Pick > HeavyMix:
		return nil, fmt.Errorf("sketchedsgd: cells %d or pick %d are none of this package's", p.Cells, p.Pick)
	}
	h, err := countsketch.NewHash(countsketch.Config{Rows: p.Rows, Columns: p.Columns, Seed: p.Seed}, p.D)
	if err != nil {
		return nil, fmt.Errorf("sketchedsgd: %w", err)
	}
	return &Plan{Params: p, hash: h}, nil
}

// Candidates returns the maximum of candidates.
func (p Params) Candidates() int {
	if p.Pick == HeavyMix {
		return p.K
	}
	return int(min(int64(p.P)*int64(p.K), int64(p.D)))
}

// Limit returns the largest magnitude of d values at which their sketch and sums of squares stay finite: a cell is a
// sum of at most d values, which rounding at most doubles, and cells of 16 bits round up once more.
func Limit(d int) float32 { return math.MaxFloat32 / 4 / float32(d) }

package nvflare

import (
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/parser"
)

// A plain parses one direction of a plain TCP connection, in which one frame follows the other.
type plain struct {
	frames sfm
	err    error
}

// Next implements parser.Parser.
func (p *plain) Next(b []byte) (parser.Segment, error) {
	if p.err != nil {
		return parser.Segment{}, p.err
	}
	seg, err := p.frames.next(b, math.MaxInt)
	if err != nil {
		p.err = broken(err, &p.frames)
		return parser.Segment{}, p.err
	}
	return seg, nil
}

// broken returns the error of a stream whose frames s does not understand, or no longer.
func broken(err error, s *sfm) error {
	if !s.recognized() {
		return fmt.Errorf("nvflare: from the %v: %w: %w", s.side, err, parser.ErrForeign)
	}
	return fmt.Errorf("nvflare: after %d frames from the %v: %w: the rest travels verbatim", s.frames, s.side, err)
}

// Messages implements parser.Counter. It counts all frames, and the frames with elements.
func (p *plain) Messages() (all, payloads int) { return p.frames.frames, p.frames.arrays }

// Recognized implements parser.Counter.
func (p *plain) Recognized() bool { return p.frames.recognized() }

// Held implements parser.Sized.
func (p *plain) Held() int { return p.frames.Held() }

var (
	_ parser.Counter = (*plain)(nil)
	_ parser.Sized   = (*plain)(nil)
)

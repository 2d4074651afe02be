// Package bench measures codecs: how small they make data, how far they change it and how fast they are. Speeds are
// ratios to copying memory in the same run, since ratios hold from machine to machine where GB/s do not.
package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
)

// A Config describes a measurement. Codecs and Data must not be empty.
type Config struct {
	Codecs []codecs.Codec
	Data   []Data
	// NoFeedback leaves out the error feedback that lossy codecs otherwise have, as they do on the wire.
	NoFeedback bool
	// Warmup is how many steps, the data's over and over, go before the counted ones where there is feedback: the
	// residual is zero at first and grows for a while.
	Warmup int
	// Skip is how many steps at the beginning of a sequence go through the codec and do not count. Data with no more
	// steps is an error.
	Skip int
	// Bytes is how much memory each round copies, encodes and decodes: the data, again and again. It ought to be far
	// more than the processor's caches; twice as much is allocated, and residuals. A codec that is slow encodes and
	// decodes as much as it gets through in 0.15 s. 0: 256 MiB.
	Bytes int
	// Rounds is how many rounds are measured. The median counts. 0: 9.
	Rounds int
}

// A Row has the figures of one codec on one Data. The JSON names are stable.
type Row struct {
	Codec    string `json:"codec"`
	Data     string `json:"data"`
	DType    string `json:"dtype"`
	Elements int    `json:"elements"` // in one step, of all tensors
	Steps    int    `json:"steps"`
	Tensors  int    `json:"tensors"`
	Feedback bool   `json:"feedback"` // a step's residual is added to the next step
	Warmup   int    `json:"warmup"`   // steps before these
	Skip     int    `json:"skip"`     // the first of these steps, which do not count
	Size
	Error
	Speed
	Memory
}

// Run measures every codec on all data, and gives each row to report as soon as it is there. A codec that does not
// take the data's element type gives no row, but an error that wraps codecs.ErrUnsuited to refused.
func Run(ctx context.Context, c Config, report func(Row), refused func(error)) error {
	if c.Bytes == 0 {
		c.Bytes = 256 << 20
	}
	if c.Rounds == 0 {
		c.Rounds = 9
	}
	memory := newWorkspace(c.Bytes)
	for _, codec := range c.Codecs {
		for _, d := range c.Data {
			row, err := measure(ctx, c, memory, cutter{codec, d.dtype(), !c.NoFeedback && codecs.Lossy(codec) && !codec.Traits().Unbiased}, d)
			switch {
			case errors.Is(err, codecs.ErrUnsuited):
				refused(fmt.Errorf("%s: %w", d.Name, err))
			case err != nil:
				return fmt.Errorf("%s on %s: %w", codec, d.Name, err)
			default:
				report(row)
			}
		}
	}
	return nil
}

func measure(ctx context.Context, c Config, m *workspace, cut cutter, d Data) (Row, error) {
	row := Row{Codec: cut.codec.String(), Data: d.Name, DType: cut.dtype.String(), Elements: d.elements(), Steps: d.steps(),
		Tensors: len(d.Tensors), Feedback: cut.feedback, Skip: c.Skip}
	if cut.feedback {
		row.Warmup = c.Warmup
	}
	for _, t := range d.Tensors {
		if t.Rows <= c.Skip {
			return row, fmt.Errorf("%w: all of its %d steps are skipped", ErrData, t.Rows)
		}
	}
	var err error
	if row.Size, row.Error, err = quality(cut, d, row.Warmup, row.Skip); err != nil {
		return row, err
	}
	if row.Memory, err = footprint(cut, d); err != nil {
		return row, err
	}
	row.Speed, err = m.speed(ctx, cut, d, c.Rounds)
	return row, err
}

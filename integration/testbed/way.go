//go:build linux

package testbed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gradproxy/gradproxy/codecs/all"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A Way is how a job crosses the WAN: Direct, Lossless, or the lossy codecs, as "3lc(s=1.75)" (gradients) and
// "3lc(s=1.75)+int4" (gradients and their sums).
type Way string

const (
	Direct   Way = "direct"   // without proxies
	Lossless Way = "lossless" // all values arrive with the same bits
)

// Config returns the configuration of the proxies on this way.
func (w Way) Config() Config {
	if w == Direct || w == Lossless {
		return Config{}
	}
	gradients, aggregates, err := all.Pair(string(w))
	if err != nil {
		panic(fmt.Sprintf("testbed: way %q: %v", w, err))
	}
	return Config{Loss: Loss{Gradients: gradients, Aggregates: aggregates}}
}

// Path returns a link of that rate and round-trip time with the default queue.
func Path(mbps, rttMs int) wansim.Link {
	l := wansim.Link{Rate: int64(mbps) * 1e6 / 8, Delay: time.Duration(rttMs) * time.Millisecond / 2}
	l.Queue = wansim.DefaultQueue(l.Rate, 2*l.Delay)
	return l
}

// Across calls f with a WAN of n sites, and with proxies at them unless the way is Direct; both end with f. An error of
// f comes with the proxies' warnings.
func (g *Gradproxy) Across(ctx context.Context, n int, link wansim.Link, way Way, c Config, f func(*WAN, Proxies) error) (err error) {
	w, err := NewWAN(ctx, n, link)
	if err != nil {
		return err
	}
	if way == Direct {
		return errors.Join(f(w, nil), w.Close())
	}
	return g.over(ctx, w, c, f)
}

// AcrossPair calls f with a WAN of two sites, whose link has another direction back, and with proxies at them. Both end
// with f. An error of f comes with the proxies' warnings.
func (g *Gradproxy) AcrossPair(ctx context.Context, there, back wansim.Link, c Config, f func(*WAN, Proxies) error) error {
	w, err := NewPair(ctx, there, back)
	if err != nil {
		return err
	}
	return g.over(ctx, w, c, f)
}

// over calls f with proxies at the sites of a WAN. Both end with f.
func (g *Gradproxy) over(ctx context.Context, w *WAN, c Config, f func(*WAN, Proxies) error) (err error) {
	defer func() { err = errors.Join(err, w.Close()) }()
	ps, err := g.Start(ctx, w, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ps.Stop()) }()
	if err := f(w, ps); err != nil {
		return fmt.Errorf("%w\n%s", err, ps.Warnings())
	}
	return nil
}

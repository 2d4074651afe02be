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
	defer func() { err = errors.Join(err, w.Close()) }()
	if way == Direct {
		return f(w, nil)
	}
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

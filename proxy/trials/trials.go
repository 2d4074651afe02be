// Package trials tries codecs that a proxy does not use on a sample of its traffic, and reports the bytes that each
// would have made.
//
//	sender ─▶ shadow.Conn ─▶ shadow.Shadow ─▶ trial: an estimate.Estimator for each candidate
//	                                  └─▶ Report: the sample's results, for everything that was sent
//
// Package shadow chooses the sample; here are the trials of the sample, and the account of all traffic that follows
// from them.
package trials

import (
	"slices"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/shadow"
)

// A Config has the parts of Trials. All fields are needed.
type Config struct {
	Codecs func(text string) (codecs.Codec, error)
	Memory int64   // bytes, of all trials
	Share  float64 // of one core that trials take; from 1 on they never rest
}

// Trials are the trials of a proxy's candidates. They are safe for concurrent use.
type Trials struct {
	config  Config
	began   time.Time
	current shadow.Current

	mu         sync.Mutex
	candidates []string // of current
}

// New returns Trials of no candidates. The caller must Close them.
func New(cfg Config) *Trials { return &Trials{config: cfg, began: time.Now()} }

// Try begins trials of candidates, and ends the trials of others; none: nothing is tried. After an error, which is that
// of a candidate's text, the trials go on as before.
func (t *Trials) Try(candidates []string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Equal(candidates, t.candidates) {
		return nil
	}
	var next *shadow.Shadow
	if len(candidates) > 0 {
		var err error
		if next, err = shadow.New(shadow.Config{Codecs: candidates, Memory: t.config.Memory, Share: t.config.Share, Trial: t.trial}); err != nil {
			return err
		}
	}
	t.candidates = slices.Clone(candidates)
	if old := t.current.Swap(next); old != nil {
		old.Close()
	}
	return nil
}

func (t *Trials) trial(text string, memory int64) (shadow.Trial, error) {
	return newTrial(t.config.Codecs, text, memory)
}

// Watch returns a watcher of the bytes that a connection sends to a peer, which takes the sample of them. has lists the
// names of the codecs that the peer has; nil: all.
func (t *Trials) Watch(peer string, has []string) *shadow.Conn {
	return shadow.NewConn(&t.current, peer, has)
}

// Close ends all trials.
func (t *Trials) Close() { t.Try(nil) }

// Package shadow codes a sample of the values that a proxy sends by codecs that the proxy does not use, to tell
// beforehand the bytes, the error and the coding time of each.
//
//	sender ─▶ Conn.See ─▶ (copy, if the value is of the sample) ─▶ queue ─▶ one goroutine ─▶ a Trial for each candidate ─▶ sums
//
// The sender's way is not touched: See only looks, copies, and never waits. A value for which there is no room in the
// queue is dropped and counted. The goroutine works for so long only that it stays within its share of the processors,
// and sleeps between values.
//
// The sample is whole tensors over consecutive values, so that feedback and differences are as on the real way: a
// tensor's window begins with a Trial that knows nothing, the values of each connection until the codec is used and its
// residual has settled do not count, and the next ones do. Of a tensor larger than pieceSize the sample is one piece
// where there is no time for all of it. While the Trials have memory a piece's residual, and the count of its values,
// wait from window to window. Windows go on while nobody waits; else the tensors take turns. Which tensors have a
// window follows from the processor time that their values cost and from how often they come.
//
// Weights are sampled together for all connections to a peer, by the tensor that predicts them, since a value that
// several receivers have in common crosses once.
package shadow

import (
	"slices"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/parser/lru"
)

// A Config has the parts of a Shadow. All fields but Used are needed.
type Config struct {
	Codecs []string // the candidates
	Memory int64    // bytes, of everything
	Share  float64  // of one core; from 1 on the goroutine never rests
	// Used returns the processor time that the calling thread has used. The time for which other programs hold up the
	// goroutine is none of it: else a busy machine would have fewer values tried. nil: cputime.Now.
	Used  func() time.Duration
	Trial func(codec string, memory int64) (Trial, error)
}

// DefaultMemory is the memory of a Shadow for which the user has set none.
const DefaultMemory = 64 << 20

// DefaultShare is the share of all cores that a Shadow takes at most.
const DefaultShare = 0.01

// A Shadow is one round of trials. Its methods may be called concurrently.
type Shadow struct {
	config  Config
	trials  []Trial
	queue   chan *item
	ended   chan struct{} // closed by Close
	done    chan struct{} // closed when the goroutine has ended
	clock   func() time.Time
	nap     func(time.Duration) // sleeps, or less if the Shadow ends
	started time.Time

	figures  sync.Mutex // guards the sums of windows; senders never wait for it
	mu       sync.Mutex // guards the fields below
	known    lru.Cache[Identity, *window]
	active   map[*window]struct{}
	ending   []*window // that have ended, and may have lines
	queued   int64     // bytes that wait or are being copied
	demand   float64   // of the active windows: seconds of a core per second
	reserved int64     // bytes of Trials for the active windows
	perByte  float64   // seconds of a core per byte, for all candidates together
	level    int       // the fewest windows that a refused tensor has had; tensors that have had more wait for it
	refused  time.Time
	stats    Stats
	moved    map[group]*Moved
}

// Stats counts a Shadow's own work.
type Stats struct {
	Spent   time.Duration // of one core
	Values  int64         // that every candidate has coded; others of the sample came after their window, or over a connection beyond the window's limit
	Bytes   int64         // of these values
	Dropped int64         // values of the sample for which there was no room in the queue
	Queued  int64         // bytes of the sample that have not been coded yet
}

func (s *Shadow) closeTrials() {
	for _, t := range s.trials {
		t.Close()
	}
}

// queueMemory is how many bytes may wait, or be on their way into the queue.
func (s *Shadow) queueMemory() int64 { return s.config.Memory / 4 }

// trialsMemory is how many bytes all Trials may take for values. The rest of the memory is for lists of tensors, here
// (maxKnown) and in Trials.
func (s *Shadow) trialsMemory() int64 { return s.config.Memory / 2 }

func (s *Shadow) trialMemory() int64 { return s.trialsMemory() / int64(max(1, len(s.config.Codecs))) }

// Stats returns the counts so far.
func (s *Shadow) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Queued = s.queued
	return stats
}

// waits reports whether the residuals of a window's piece wait for the piece's next window.
func (s *Shadow) waits(w *window) bool {
	return w.apart() && !slices.ContainsFunc(s.trials, Trial.Short)
}

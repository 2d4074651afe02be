// Package shadow codes a sample of the values that a proxy sends with codecs that the proxy does not use, the
// candidates. It tells which bytes, error and coding time each candidate would have.
//
//	sender ─▶ Conn.See ─▶ (copy, if the value is of the sample) ─▶ queue ─▶ one goroutine ─▶ a Trial for each candidate ─▶ sums
//
// A Shadow does not disturb the sender: See only looks at bytes and copies some of them, and it never waits. A value
// for which the queue has no room is dropped and counted. The goroutine sleeps between values for so long that it stays
// within its share of the processors.
//
// The sample consists of windows. A window is a run of consecutive values of one tensor, so that error feedback and
// differences work as they do on the real path. A window begins with Trials that know nothing of the tensor. The first
// values of each connection do not count, until the candidate has been used and its residual has settled. Of a tensor
// larger than pieceSize the sample is one piece, unless there is time for the whole tensor. While the Trials have
// memory they keep a piece's residual, and the counts of its values, from one window to the next. A window goes on
// until another tensor waits for its turn. The processor time that a tensor's values cost, and how often they come,
// decide whether the tensor can have a window.
//
// Weights are sampled for all connections to a peer together, under the tensor that predicts them, since a value that
// several receivers have in common crosses the WAN once.
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
	Memory int64    // maximum bytes of the queue, the Trials and the lists of tensors together
	Share  float64  // maximum share of one core; from 1 on the goroutine never rests
	// Used returns the processor time that the calling thread has used. It must not count the time in which other
	// programs hold the goroutine up, or fewer values would be tried on a busy machine. nil: cputime.Now.
	Used func() time.Duration
	// Trial makes the Trial of a candidate. memory bounds the bytes of values that it keeps.
	Trial func(codec string, memory int64) (Trial, error)
}

// DefaultMemory is the Memory, in bytes, of a Shadow for which the user has set none.
const DefaultMemory = 64 << 20

// DefaultShare is the maximum share of all cores that a Shadow takes if the user has set none.
const DefaultShare = 0.005

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
	ending   []*window // windows that have ended, whose lines the goroutine has yet to close
	queued   int64     // bytes that wait in the queue or are being copied for it
	demand   float64   // of the active windows: seconds of a core per second
	reserved int64     // bytes of Trials for the active windows
	perByte  float64   // seconds of a core per byte, for all candidates together
	level    int       // the smallest number of windows of a refused tensor; tensors that have had more windows wait for it
	refused  time.Time
	stats    Stats
	moved    map[group]*Moved
}

// Stats counts a Shadow's own work.
type Stats struct {
	Spent   time.Duration // processor time of one core
	Values  int64         // values that were coded; a value that came after its window, or over a connection beyond maxLanes, is not
	Bytes   int64         // bytes of these values
	Dropped int64         // values of the sample for which the queue had no room
	Queued  int64         // bytes of the sample that are not coded yet
}

func (s *Shadow) closeTrials() {
	for _, t := range s.trials {
		t.Close()
	}
}

// queueMemory returns the maximum bytes that wait in the queue or are being copied for it.
func (s *Shadow) queueMemory() int64 { return s.config.Memory / 4 }

// trialsMemory returns the maximum bytes that all Trials take for values. The rest of the memory is for the lists of
// tensors, here (maxKnown) and in the Trials.
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

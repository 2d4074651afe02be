package shadow

import (
	"time"

	"github.com/gradproxy/gradproxy/codecs/codectest/cputime"
)

// New returns a running Shadow. The caller must Close it.
func New(c Config) (*Shadow, error) {
	if c.Used == nil {
		c.Used = cputime.Now
	}
	s := &Shadow{config: c, queue: make(chan *item, maxQueued), ended: make(chan struct{}), done: make(chan struct{}), clock: time.Now,
		active: map[*window]struct{}{}, perByte: guessPerByte * float64(len(c.Codecs)), started: time.Now()}
	s.nap = s.sleep
	for _, codec := range c.Codecs {
		t, err := c.Trial(codec, s.trialMemory())
		if err != nil {
			s.closeTrials()
			return nil, err
		}
		s.trials = append(s.trials, t)
	}
	go s.run()
	return s, nil
}

// Close ends the goroutine and closes the Trials. Values that wait in the queue are dropped.
func (s *Shadow) Close() {
	close(s.ended)
	<-s.done
}

const (
	maxQueued    = 256  // values
	guessPerByte = 1e-9 // seconds of a core per byte and candidate, until a value was measured
)

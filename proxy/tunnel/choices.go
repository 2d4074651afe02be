package tunnel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// ErrChoices says that saved choices cannot be read, since SaveChoices has not written them.
var ErrChoices = errors.New("tunnel: no saved choices")

// maxChoicesFile bounds the bytes of saved choices.
const maxChoicesFile = 1 << 20

// savedChoices is the saved form of the choices of datagrams.
type savedChoices struct {
	Version int           `json:"version"`
	Choices []savedChoice `json:"choices"`
}

// A savedChoice is the choice of datagrams for the path to a peer.
type savedChoice struct {
	Peer    string    `json:"peer"` // id
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	TLS     float64   `json:"tls_bytes_per_second"` // the rate that TLS had
	Why     string    `json:"why"`
}

// SaveChoices writes the choices of datagrams that have shown their rate, so that the next process need not try them
// again.
func (e *Endpoint) SaveChoices(w io.Writer) error {
	s := savedChoices{Version: 1, Choices: []savedChoice{}}
	for _, p := range e.list() {
		if c, address, ok := p.proved(); ok {
			s.Choices = append(s.Choices, savedChoice{p.id, address, c.since.Round(0), c.tls, c.why})
		}
	}
	return json.NewEncoder(w).Encode(s)
}

// LoadChoices takes the choices from another process's SaveChoices, for peers that have the same address still and for
// which this process has made no choice yet. A choice whose review is due, or which is of the future, is left out.
// After an error there are none.
func (e *Endpoint) LoadChoices(from io.Reader, now time.Time) error {
	text, err := io.ReadAll(io.LimitReader(from, maxChoicesFile+1))
	if err != nil {
		return err
	}
	var s savedChoices
	if len(text) > maxChoicesFile || json.Unmarshal(text, &s) != nil || s.Version != 1 {
		return ErrChoices
	}
	for _, x := range s.Choices {
		if !(x.TLS > 0) || x.Why == "" { // JSON has no infinite numbers
			return fmt.Errorf("%w: a choice without a rate or a reason", ErrChoices)
		}
	}
	for _, x := range s.Choices {
		age := now.Sub(x.Since)
		if p := e.peerByID(x.Peer); p != nil && p.dials() == x.Address && 0 <= age && age < choiceReview {
			since := now.Add(-age) // by now's monotonic clock, if it has one: the review comes though the clock is set back
			p.chooser.change(func(c *choice) { c.resume(since, x.TLS, x.Why) })
		}
	}
	return nil
}

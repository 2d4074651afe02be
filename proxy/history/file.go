package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// ErrFile says that a history cannot be read, since Save has not written it.
var ErrFile = errors.New("history: no saved history")

// maxFile bounds the bytes of a saved history.
const maxFile = 32 << 20

// maxName bounds the bytes of a name in it.
const maxName = 256

// A saved history has the tables of all rings but the first, whose slots are over soon.
type saved struct {
	Version int     `json:"version"`
	Tables  []Table `json:"tables"`
}

// version is that of the saved form. A Load of another one fails.
const version = 1

// Save writes the slots of 10 s and 4 min.
func (r *Recorder) Save(w io.Writer) error {
	s := saved{Version: version}
	for _, step := range Steps()[1:] {
		s.Tables = append(s.Tables, r.Table(step, 0))
	}
	return json.NewEncoder(w).Encode(s)
}

// Load takes the slots from another process's Save that are not too old at the time now, and that r does not have yet.
// After an error r is as it was.
func (r *Recorder) Load(from io.Reader, now time.Time) error {
	text, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err != nil {
		return err
	}
	var s saved
	if len(text) > maxFile || json.Unmarshal(text, &s) != nil || s.Version != version {
		return ErrFile
	}
	for i := range s.Tables {
		if err := s.Tables[i].check(); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	for i := range s.Tables {
		r.take(&s.Tables[i])
	}
	return nil
}

// check returns why Save cannot have written a Table.
func (t *Table) check() error {
	i := slices.Index(Steps(), t.Step)
	if i < 1 || len(t.Times) > rings[i].size || len(t.Series) > maxSeries {
		return fmt.Errorf("%w: a table of %d times and %d series in steps of %d s", ErrFile, len(t.Times), len(t.Series), t.Step)
	}
	for k := range t.Series {
		x := &t.Series[k]
		if len(x.Peer) > maxName || len(x.Job) > maxName {
			return fmt.Errorf("%w: a name is too long", ErrFile)
		}
		for at := range t.Times {
			if _, ok := x.slot(at); !ok {
				return fmt.Errorf("%w: series %d lacks a value", ErrFile, k)
			}
		}
	}
	return nil
}

// take takes the slots of a table that has been checked. mu is held.
func (r *Recorder) take(t *Table) {
	i := slices.Index(Steps(), t.Step)
	g := &r.rings[i]
	for at, time := range t.Times {
		number := time / rings[i].step
		p := place(i, max(number, 0))
		if number <= g.now-int64(rings[i].size) || number > g.now || number <= 0 || g.slots[p] == number && number != g.now {
			continue
		}
		if g.slots[p] != number {
			r.begin(i, number)
		}
		for k := range t.Series {
			if s := r.of(t.Series[k].Name); s != nil {
				had, _ := t.Series[k].slot(at)
				s.slots[i][p].add(&had)
			}
		}
	}
}

package site

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"time"
)

// savedAllowances is the content of the file that has the day's use of budgets.
type savedAllowances struct {
	Version int              `json:"version"`
	Day     int64            `json:"day"` // the midnight that began it (UTC), in Unix time
	Budgets []savedAllowance `json:"budgets"`
}

type savedAllowance struct {
	Peer  string  `json:"peer,omitempty"`
	Job   string  `json:"job,omitempty"`
	Used  float64 `json:"used_bytes"`
	Said  int     `json:"said"`
	Stage int     `json:"stage"`
}

const (
	allowancesVersion = 1
	maxAllowances     = 1 << 20 // bytes of the file
)

var errAllowances = errors.New("the file has no use of budgets as this version writes it")

// Save writes the bytes used on the present day.
func (a *allowances) Save(w io.Writer) error {
	a.mu.Lock()
	s := savedAllowances{Version: allowancesVersion, Budgets: []savedAllowance{}}
	for o, x := range a.all {
		if x.day.IsZero() {
			continue
		}
		if day := x.day.Unix(); day > s.Day {
			s.Day, s.Budgets = day, s.Budgets[:0] // all are counted at once, so the others are of a day that is over
		}
		if x.day.Unix() == s.Day {
			s.Budgets = append(s.Budgets, savedAllowance{o.peer, o.job, x.used, x.said, x.stage})
		}
	}
	a.mu.Unlock()
	return json.NewEncoder(w).Encode(s)
}

// Load adds the bytes that another process used, if it used them on the day of now. The counters of this process begin
// at 0.
func (a *allowances) Load(from io.Reader, now time.Time) error {
	text, err := io.ReadAll(io.LimitReader(from, maxAllowances+1))
	if err != nil {
		return err
	}
	var s savedAllowances
	if len(text) > maxAllowances || json.Unmarshal(text, &s) != nil || s.Version != allowancesVersion {
		return errAllowances
	}
	for _, b := range s.Budgets {
		if !(b.Used >= 0) || math.IsInf(b.Used, 0) || b.Stage < 0 || b.Said < withinBudget || b.Said > overBudget {
			return errAllowances
		}
	}
	day := now.UTC().Truncate(24 * time.Hour)
	if s.Day != day.Unix() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range s.Budgets {
		if x := a.all[owner{b.Peer, b.Job}]; x != nil && x.day.IsZero() {
			x.day, x.used, x.said, x.stage = day, b.Used, b.Said, min(b.Stage, x.stages)
		}
	}
	return nil
}

package wan

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Trace says how a direction of a link changes in time.
type Trace struct {
	Steps  []Step        // by time; before the first the direction is as it is without a trace
	Period time.Duration // after which all begins again; 0: the last step stays
}

// A Step is the quality from a time on.
type Step struct {
	At time.Duration // since the network came up, or since the period began
	Quality
}

// At returns the quality after the network has been up for so long, where base holds without a trace, and for how long
// it will; 0: for ever.
func (t Trace) At(up time.Duration, base Quality) (q Quality, left time.Duration) {
	if len(t.Steps) == 0 {
		return base, 0
	}
	if t.Period > 0 {
		up %= t.Period
	}
	i, found := slices.BinarySearchFunc(t.Steps, up, func(s Step, at time.Duration) int { return cmp.Compare(s.At, at) })
	if !found {
		i-- // the last step before
	}
	q = base
	if i >= 0 {
		q = t.Steps[i].Quality
	}
	switch {
	case i+1 < len(t.Steps):
		left = t.Steps[i+1].At - up
	case t.Period > 0:
		left = t.Period - up
	}
	return q, left
}

// A change is a step as it is written: keys that it leaves out are as before.
type change struct {
	at    time.Duration
	hasAt bool
	rate  *int64
	delay *time.Duration
	loss  *float64
}

// steps returns the steps that changes make of base.
func steps(base Quality, changes []change) (all []Step) {
	q := base
	for _, c := range changes {
		if c.rate != nil {
			q.Rate = *c.rate
		}
		if c.delay != nil {
			q.Delay = *c.delay
		}
		if c.loss != nil {
			q.Loss = *c.loss
		}
		all = append(all, Step{c.at, q})
	}
	return all
}

// columns of a trace file. Its first line names the ones that it has, in any order; at is one of them.
const columns = "at, rate, delay, loss"

// parseTrace reads a trace file: lines of values with commas between, written as in topologies, the first line their
// names, an empty value is as before. Lines that begin with # are remarks. An error names its line.
func parseTrace(text string) (changes []change, err error) {
	var names []string
	lines := bufio.NewScanner(strings.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, ",")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		if names == nil {
			if names, err = columnNames(fields); err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			continue
		}
		if len(fields) != len(names) {
			return nil, fmt.Errorf("line %d: %d values: want %d, as in the first line", number, len(fields), len(names))
		}
		var c change
		for i, name := range names {
			if fields[i] == "" {
				continue
			}
			if err := c.set(name, fields[i]); err != nil {
				return nil, fmt.Errorf("line %d: %s: %w", number, name, err)
			}
		}
		changes = append(changes, c)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return changes, nil
}

func columnNames(fields []string) ([]string, error) {
	for i, f := range fields {
		if !slices.Contains(strings.Split(columns, ", "), f) || slices.Contains(fields[:i], f) {
			return nil, fmt.Errorf("column %q: the first line names the columns, each once: %s", f, columns)
		}
	}
	if !slices.Contains(fields, "at") {
		return nil, fmt.Errorf("there is no column at: the first line names the columns: %s", columns)
	}
	return fields, nil
}

// set sets the value of a column or key.
func (c *change) set(name, text string) (err error) {
	switch name {
	case "at":
		c.hasAt = true
		c.at, err = parseDuration(text)
	case "rate":
		c.rate = new(int64)
		*c.rate, err = parseRate(text)
	case "delay":
		c.delay = new(time.Duration)
		*c.delay, err = parseDelay(text)
	case "loss":
		c.loss = new(float64)
		*c.loss, err = parseLoss(text)
	}
	return err
}

// minStep is how long the steps of a trace that begins again and again last at least, on average.
const minStep = time.Millisecond

// checkChanges reports the first thing that is wrong with the times of a trace.
func checkChanges(changes []change, period time.Duration) error {
	for i, c := range changes {
		switch {
		case !c.hasAt:
			return fmt.Errorf("step %d: at is missing: say when it begins", i)
		case i > 0 && c.at <= changes[i-1].at:
			return fmt.Errorf("step %d: it begins at %v, not after the step before, at %v", i, c.at, changes[i-1].at)
		}
	}
	switch {
	case len(changes) == 0:
		return fmt.Errorf("there are no steps")
	case period != 0 && period <= changes[len(changes)-1].at:
		return fmt.Errorf("repeat is %v: want more than the beginning of the last step, %v", period, changes[len(changes)-1].at)
	case period != 0 && period/time.Duration(len(changes)) < minStep:
		return fmt.Errorf("repeat is %v: want %v at least for each of %d steps, or changing the link is all that is done", period, minStep, len(changes))
	}
	return nil
}

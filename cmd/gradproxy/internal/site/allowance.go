package site

import (
	"fmt"
	"strings"
	"time"
)

// An allowance follows one budget of the configuration: bytes that links may carry in a day, UTC. It has no clock:
// times come with the bytes.
type allowance struct {
	limit  float64  // bytes a day
	stages int      // codecs to move to as it runs out
	then   []string // these codecs, for people

	whole    bool      // the budget is as old as the counter, so that the first reading counts
	day      time.Time // the midnight that began the day; zero: nothing was counted yet
	total    float64   // counter at the last reading
	used     float64   // of the day
	readings []reading // of the last hour, oldest first
	said     int       // the level that was logged this day
	stage    int       // codecs that have had their turn this day
}

// A reading is the bytes used by a time.
type reading struct {
	at    time.Time
	total float64
}

// Levels of an allowance.
const (
	withinBudget  = iota
	overProjected // at the rate of the last hour the day's bytes will be more than the budget
	overBudget
)

const (
	rateWindow = time.Hour
	// firstRate is the minimum time over which a rate is believed.
	firstRate = 5 * time.Minute
	// firstStage is the part of a budget that travels as the policy says, whatever is projected. The stages come at
	// equal parts of the rest.
	firstStage = 0.5
)

// count takes the counter of bytes at a time. The counter may begin anew.
func (a *allowance) count(now time.Time, total float64) {
	day := now.UTC().Truncate(24 * time.Hour)
	switch {
	case a.day.IsZero():
		if a.day = day; !a.whole {
			a.total = total
		}
	case !day.Equal(a.day):
		a.day, a.used, a.said, a.stage = day, 0, withinBudget, 0
	}
	if total < a.total {
		a.total, a.readings = 0, nil
	}
	a.used += total - a.total
	a.total = total
	a.readings = append(a.readings, reading{now, total})
	for len(a.readings) > 2 && now.Sub(a.readings[1].at) >= rateWindow {
		a.readings = a.readings[1:]
	}
	a.move(now)
}

// projected returns the bytes of the whole day at the rate of the last hour.
func (a *allowance) projected(now time.Time) float64 {
	if len(a.readings) == 0 {
		return a.used
	}
	oldest := a.readings[0]
	span := now.Sub(oldest.at)
	if span < firstRate {
		return a.used
	}
	left := a.day.Add(24 * time.Hour).Sub(now)
	return a.used + (a.total-oldest.total)/span.Seconds()*max(0, left.Seconds())
}

// level returns the state of the budget.
func (a *allowance) level(now time.Time) int {
	switch {
	case a.used >= a.limit:
		return overBudget
	case a.projected(now) > a.limit:
		return overProjected
	}
	return withinBudget
}

// move brings the next stage into force where the budget will not last. A stage stays until the day ends.
func (a *allowance) move(now time.Time) {
	if a.level(now) == withinBudget {
		return
	}
	for a.stage < a.stages && a.used >= a.beginAt(a.stage) {
		a.stage++
	}
}

// beginAt returns after how many bytes the codec with an index may have its turn.
func (a *allowance) beginAt(i int) float64 {
	return a.limit * (firstStage + (1-firstStage)*float64(i)/float64(a.stages))
}

// plan describes in a sentence the consequences of the budget.
func (a *allowance) plan() string {
	then := a.then
	if len(then) == 0 {
		return "The proxy only says so; it moves tensors to other codecs where budget.then names some."
	}
	now := ""
	if at := min(a.stage, len(then)); at > 0 {
		now = fmt.Sprintf("Tensors that may lose something travel by %s until the day ends (UTC).", then[at-1])
		if at == len(then) {
			return now
		}
		now += " "
	}
	var turns []string
	for i := a.stage; i < len(then); i++ {
		turns = append(turns, fmt.Sprintf("to %s from %.3g GB on", then[i], a.beginAt(i)/gigabyte))
	}
	return now + "If the day's bytes will not last, tensors that may lose something move " + strings.Join(turns, ", and ") + "."
}

// news returns a line to be logged, once for each level and day; "": nothing is new.
func (a *allowance) news(now time.Time) string {
	level := a.level(now)
	if level <= a.said {
		return ""
	}
	a.said = level
	if level == overBudget {
		return fmt.Sprintf("the traffic budget of the day is spent: %.3g of %.3g GB", a.used/gigabyte, a.limit/gigabyte)
	}
	return fmt.Sprintf("the traffic budget of the day will not last: %.3g of %.3g GB are used, and the day ends with %.3g GB at the rate of the last hour", a.used/gigabyte, a.limit/gigabyte, a.projected(now)/gigabyte)
}

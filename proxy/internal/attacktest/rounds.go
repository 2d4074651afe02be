package attacktest

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// An Honest is how an honest peer fares: its rate in bulk in bytes per second, and the mean of its round trips.
type Honest struct {
	Rate    float64
	Latency time.Duration
}

// ratio divides the rate and the latency of h by the ones in base.
func (h Honest) ratio(base Honest) (rate, latency float64) {
	return h.Rate / base.Rate, h.Latency.Seconds() / base.Latency.Seconds()
}

// idle is how long an attack goes on beside an honest peer that does nothing.
const idle = 400 * time.Millisecond

// Rounds measures an honest peer in rounds: without an attack, under it, and beside a process that burns the attacker's
// processor time, which is that of this round. It reports the median of each of these ratios over the rounds, and logs
// a line with the least and the greatest besides:
//
//	rate, latency                  under the attack, over the mean of the times without
//	control-rate, control-latency  beside the burner, over the same
//	net-rate, net-latency          under the attack, over beside the burner
//
// and of tries in a second, of the attacker's cores, and of the microseconds of processor time that this process, which
// contains the attacked proxy, spends on a try while the honest peer does nothing.
func Rounds(b *testing.B, start func() *Process, measure func() Honest) {
	all := map[string][]float64{}
	note := func(name string, value float64) { all[name] = append(all[name], value) }
	before := measure()
	for b.Loop() {
		p := start()
		time.Sleep(100 * time.Millisecond)
		under := measure()
		r := p.Stop(b)
		p = Start(b, burning, fmt.Sprint(r.Cores()))
		time.Sleep(100 * time.Millisecond)
		beside := measure()
		p.Stop(b)
		after := measure()
		quiet := Honest{(before.Rate + after.Rate) / 2, (before.Latency + after.Latency) / 2}
		before = after

		rate, latency := under.ratio(quiet)
		note("rate", rate)
		note("latency", latency)
		rate, latency = beside.ratio(quiet)
		note("control-rate", rate)
		note("control-latency", latency)
		rate, latency = under.ratio(beside)
		note("net-rate", rate)
		note("net-latency", latency)
		note("cores", r.Cores())
		note("tries/s", float64(r.Tries)/r.Lasted.Seconds())

		p = start()
		spent := Spent()
		time.Sleep(idle)
		r = p.Stop(b)
		note("µs/try", float64((Spent()-spent).Microseconds())/float64(max(r.Tries, 1)))
	}
	line := b.Name()
	for _, name := range [...]string{"rate", "latency", "control-rate", "control-latency", "net-rate", "net-latency", "cores", "tries/s", "µs/try"} {
		list := all[name]
		slices.Sort(list)
		median := list[len(list)/2]
		b.ReportMetric(median, name)
		line += fmt.Sprintf(" | %s %.4g (%.4g to %.4g)", name, median, list[0], list[len(list)-1])
	}
	b.Log(line)
	b.ReportMetric(0, "ns/op")
}

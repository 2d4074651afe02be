package wan

import (
	"fmt"
	"math"
	"time"
)

// The tolerances of a link.
const (
	rateTolerance = 0.02                   // of the rate asked
	rttTolerance  = 500 * time.Microsecond // and
	rttFraction   = 0.01                   // of the round-trip time asked
	// lossMisses is how often a link that is as asked may still look otherwise by chance: 1 - 99 %.
	lossMisses = 0.01
)

// How much is measured.
const (
	lossProbes = 2000 // datagrams, one way
	rttProbes  = 64   // round trips; their lower quartile counts, since other programs on the processors only lengthen them
	maxTries   = 3    // of a direction; it is as asked if most of them are
)

// Checked has the measured figures of a network's links. Its JSON names are stable.
type Checked struct {
	Name    string       `json:"name"`
	BackEnd BackEnd      `json:"back_end"`
	Links   []CheckedWay `json:"links"` // both directions of each, one after the other
}

// Bad returns how many directions are not as asked.
func (c Checked) Bad() (n int) {
	for _, l := range c.Links {
		if !l.OK {
			n++
		}
	}
	return n
}

// A CheckedWay has the measured figures of one direction of a link.
type CheckedWay struct {
	From     string  `json:"from"`
	To       string  `json:"to"`
	Asked    Figures `json:"asked"`
	Achieved Figures `json:"achieved"` // of the last try that agrees with OK
	OK       bool    `json:"ok"`
	Tries    int     `json:"tries"`
	Off      string  `json:"off,omitempty"` // the figures that were not as asked in the last try that was not OK
}

// Figures are the asked or achieved ones.
type Figures struct {
	Rate float64 `json:"rate_bps"` // bits per second, headers from IP upwards included; 0: unlimited, and not measured
	RTT  float64 `json:"rtt_ms"`   // of an idle link, without jitter and without the time that a probe itself takes at the rate
	Loss float64 `json:"loss"`     // one way
}

// A question has the settings of one direction of a link, with the probes' figures that follow from them.
type question struct {
	from, to   int // sites
	rate       int64
	loss       float64
	passes     float64 // the part of the bytes leaving the bottleneck that arrives: where the loss is in front of it, all
	rtt        time.Duration
	own        [2]time.Duration // that a probe takes at the rate, there and back
	jitter     [2]time.Duration // there and back
	delay      time.Duration    // one way
	queueDrain time.Duration    // until full queues are empty
}

// Sizes of a small probe, in bytes.
const (
	probePayload = 4 + 8 + 8             // a number, when it was sent, and how long its answer took
	probeSize    = 20 + 8 + probePayload // headers from IP upwards included, of IPv4
)

// ask returns the question about there of l; back is the other direction.
func (p *Plan) ask(e [2]End, there, back PlannedWay) question {
	passes := 1.0
	if p.BackEnd == User {
		passes -= there.Loss
	}
	q := question{passes: passes, from: e[0].Index, to: e[1].Index, rate: p.rateOf(there), loss: there.Loss, delay: duration(there.Delay),
		rtt: duration(there.Delay) + duration(back.Delay), jitter: [2]time.Duration{duration(there.Jitter), duration(back.Jitter)}}
	q.own = [2]time.Duration{p.serialization(there), p.serialization(back)}
	for _, b := range p.Bottlenecks {
		if b.Name == there.Via {
			q.queueDrain = drain(b.Queue, b.Rate)
		}
	}
	q.queueDrain += drain(there.Queue, there.Rate)
	return q
}

// drain returns how long a rate takes for so many bytes.
func drain(bytes, rate int64) time.Duration {
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(bytes) * 8 / float64(rate) * 1e9)
}

func duration(ms float64) time.Duration { return time.Duration(math.Round(ms * 1e6)) }

// rateOf returns the rate of a direction with that of the bottleneck before it: an idle one leaves it the lower of the
// two.
func (p *Plan) rateOf(w PlannedWay) int64 {
	rate := w.Rate
	for _, b := range p.Bottlenecks {
		if b.Name == w.Via && (rate == 0 || b.Rate < rate) {
			rate = b.Rate
		}
	}
	return rate
}

// serialization returns how long a small probe takes at the rates of a direction.
func (p *Plan) serialization(w PlannedWay) (d time.Duration) {
	rates := []int64{w.Rate}
	for _, b := range p.Bottlenecks {
		if b.Name == w.Via {
			rates = append(rates, b.Rate)
		}
	}
	size := int64(probeSize)
	if p.Sites[0].Addresses[0].Is6() { // all sites have the same families, IPv4 first
		size += 20
	}
	for _, rate := range rates {
		if rate > 0 {
			d += time.Duration(size * 8 * int64(time.Second) / rate)
		}
	}
	return d
}

// An answer has the figures of the probes of one try.
type answer struct {
	rate       float64       // bits per second that left the bottleneck; 0: not measured
	rtt        time.Duration // lower quartile
	sent, lost int           // one way
}

// figures returns q's answer a as it is reported.
func (q question) figures(a answer) Figures {
	late, _ := jitterQuartile(q.jitter[0], q.jitter[1], rttProbes)
	loss := 0.0
	if a.sent > 0 {
		loss = float64(a.lost) / float64(a.sent)
	}
	return Figures{Rate: math.Round(a.rate), RTT: milliseconds(max(0, a.rtt-late-q.own[0]-q.own[1])), Loss: loss}
}

// asked returns q as it is reported.
func (q question) asked() Figures {
	return Figures{Rate: float64(q.rate), RTT: milliseconds(q.rtt), Loss: q.loss}
}

// judge names the figures of a that are not as asked; "": none.
func (q question) judge(a answer) string {
	got := q.figures(a)
	if q.rate > 0 && math.Abs(got.Rate/float64(q.rate)-1) > rateTolerance {
		return fmt.Sprintf("rate %+.1f %%", (got.Rate/float64(q.rate)-1)*100)
	}
	_, spread := jitterQuartile(q.jitter[0], q.jitter[1], rttProbes)
	if off := duration(got.RTT) - q.rtt; a.rtt == 0 || off.Abs() > rttTolerance+time.Duration(rttFraction*float64(q.rtt))+3*spread {
		return fmt.Sprintf("rtt %+.2f ms", milliseconds(off))
	}
	if minimum, maximum := binomialRange(a.sent, q.loss, lossMisses); a.sent == 0 || a.lost < minimum || a.lost > maximum {
		return fmt.Sprintf("%d of %d lost, want %d to %d", a.lost, a.sent, minimum, maximum)
	}
	return ""
}

// try asks until most tries agree.
func (q question) try(from, to string, probe func() (answer, error)) (w CheckedWay, err error) {
	w = CheckedWay{From: from, To: to, Asked: q.asked()}
	for good, bad := 0, 0; ; {
		a, err := probe()
		if err != nil {
			return w, fmt.Errorf("%s -> %s: %w", from, to, err)
		}
		w.Tries++
		off := q.judge(a)
		if off == "" {
			good++
		} else {
			bad++
			w.Off = off
		}
		w.Achieved = q.figures(a)
		if w.OK = 2*good > maxTries; w.OK || 2*bad > maxTries {
			return w, nil
		}
	}
}

// jitterQuartile returns the lower quartile of the sum of two jitters, uniform in [0, a) and [0, b), and the standard
// error of that of n samples.
func jitterQuartile(a, b time.Duration, n int) (quartile, spread time.Duration) {
	long, short := float64(max(a, b)), float64(min(a, b))
	if long == 0 {
		return 0, 0
	}
	// The sum's density rises to 1/long over short, and stays there until long.
	x, density := long/4+short/2, 1/long
	if short/(2*long) >= 0.25 {
		x = math.Sqrt(long * short / 2)
		density = x / (long * short)
	}
	return time.Duration(x), time.Duration(math.Sqrt(0.25*0.75/float64(n)) / density)
}

// binomialRange returns the counts of n events of probability p that chance does not leave, to either side, with a
// probability of more than misses/2.
func binomialRange(n int, p, misses float64) (minimum, maximum int) {
	switch p {
	case 0:
		return 0, 0
	case 1:
		return n, n
	}
	chance := func(k int) float64 { // of exactly k
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		return math.Exp(a - b - c + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
	}
	for sum := chance(0); sum <= misses/2; sum += chance(minimum) {
		minimum++
	}
	maximum = n
	for sum := chance(n); sum <= misses/2; sum += chance(maximum) {
		maximum--
	}
	return minimum, maximum
}

// CheckHeader is the header of a check's table, whose lines are CheckedWays.
func (p *Plan) CheckHeader() string {
	return fmt.Sprintf("%s, back end %s (%s)\n%-31s  %28s  %21s  %20s\n", p.Name, p.BackEnd, p.Why, "",
		"rate asked, achieved", "rtt asked, achieved", "loss asked, achieved")
}

// String is the direction's line of the table.
func (w CheckedWay) String() string {
	verdict := "ok"
	if !w.OK {
		verdict = "NOT OK: " + w.Off
	}
	achieved := "-"
	if w.Asked.Rate > 0 {
		achieved = fmt.Sprintf("%.2fMbit/s", w.Achieved.Rate/1e6)
	}
	return fmt.Sprintf("%-15s %-15s  %13s %14s  %8.2fms %9.2fms  %9s %10s  %s\n", w.From, w.To, formatRate(int64(w.Asked.Rate)), achieved,
		w.Asked.RTT, w.Achieved.RTT, formatLoss(w.Asked.Loss), formatLoss(w.Achieved.Loss), verdict)
}

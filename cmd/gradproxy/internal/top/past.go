package top

import (
	"fmt"
	"math"
	"strings"
	"time"

	wrap "github.com/jedib0t/go-pretty/v6/text"

	"github.com/gradproxy/gradproxy/proxy/admin"
)

const (
	pastStep = 10 // seconds of a slot of the history that is asked for
	minutes  = 60 // of a chart, each a column
	wrapped  = 78 // columns of sentences
)

// A chart has a value for each of the last minutes; NaN: nothing is known of it.
type chart [minutes]float64

// none is a chart of nothing.
func none() (c chart) {
	for i := range c {
		c[i] = math.NaN()
	}
	return c
}

// column returns the column of a time; false: it is too old, or still to come.
func column(at int64, now time.Time) (int, bool) {
	i := minutes - 1 - int(now.Unix()/60-at/60)
	return i, i >= 0 && i < minutes
}

// sums returns the sums of slots by the minute.
func sums[T int64 | float32](times []int64, values []T, now time.Time) chart {
	c := none()
	for k, at := range times {
		if i, ok := column(at, now); ok && k < len(values) {
			if math.IsNaN(c[i]) {
				c[i] = 0
			}
			c[i] += float64(values[k])
		}
	}
	return c
}

// largest returns the largest value; 0: there is none.
func (c *chart) largest() (largest float64) {
	for _, v := range c {
		if v > largest {
			largest = v
		}
	}
	return largest
}

// bars draws values as bars, the largest as high as a line.
func (c *chart) bars() string {
	heights := []rune("▁▂▃▄▅▆▇█")
	largest := c.largest()
	return c.draw(func(v float64) rune {
		if largest == 0 {
			return heights[0]
		}
		return heights[int(math.Round(v/largest*float64(len(heights)-1)))]
	})
}

// bands draws an outage. Each value is how many seconds of its minute the outage lasted.
func (c *chart) bands() string {
	return c.draw(func(down float64) rune {
		switch {
		case down >= 30:
			return '█'
		case down > 0:
			return '▒'
		}
		return '·'
	})
}

func (c *chart) draw(as func(v float64) rune) string {
	var b strings.Builder
	for _, v := range c {
		if math.IsNaN(v) {
			b.WriteByte(' ')
		} else {
			b.WriteRune(as(v))
		}
	}
	return b.String()
}

// axis is the line above charts, with the times of their ends.
func axis(title string, now time.Time) line {
	return line{fmt.Sprintf("%-12s%-*s%s", cut(title, 11), minutes-5, now.Add(-(minutes-1)*time.Minute).Format("15:04"), now.Format("15:04")), heading}
}

// row is a chart with its name before it and its largest value behind it.
func row(name, bars, largest string) line {
	return line{fmt.Sprintf("  %-10s%s  %s", name, bars, largest), plain}
}

// pastOf has the charts of the links in the last hour: the rates, and outages as bands that begin with the last sign of
// life.
func pastOf(x *Snapshot) (all []line) {
	if x.past == nil {
		return []line{{"the history is being asked for", plain}}
	}
	for i := range x.past.Series {
		s := &x.past.Series[i]
		if !s.Link {
			continue
		}
		all = append(all, axis(s.Peer, x.Time))
		for _, c := range []struct {
			name   string
			values []int64
		}{{"apps send", s.Raw}, {"link sends", s.Sent}, {"apps get", s.Delivered}, {"link gets", s.Received}} {
			rates := sums(x.past.Times, c.values, x.Time)
			all = append(all, row(c.name, rates.bars(), "at most "+perSecond(rates.largest()/60)))
		}
		down := sums(x.past.Times, s.Down, x.Time)
		total := 0.0
		for _, v := range down {
			if v > 0 {
				total += v
			}
		}
		outages := row("outages", down.bands(), "none")
		if total > 0 {
			outages = row("outages", down.bands(), seconds(total)+" in all")
			outages.style = bad
		}
		all = append(all, outages, line{})
	}
	if all == nil {
		return []line{{"no link has a history yet", plain}}
	}
	return all
}

// chosen explains one tensor, and has its charts of the last hour.
func chosen(x *Snapshot, id uint64) (all []line) {
	put := func(s style, text string) { all = append(all, line{text, s}) }
	a := x.chosen
	if a == nil || a.Tensor.ID != id {
		put(heading, "a tensor")
		put(plain, "it is being asked for, or is not listed any more")
		return all
	}
	t := Tensor{TensorInfo: a.Tensor}
	put(heading, fmt.Sprintf("%s: %s, %s of %s, %s, by %s to %s", name(&t), t.Role, admin.Size(int64(t.Bytes)), t.DType, t.Codec, t.Protocol, t.Peer))
	for _, sentence := range []string{a.Explanation.Why, a.Explanation.Change} {
		for _, l := range strings.Split(wrap.WrapSoft(sentence, wrapped), "\n") {
			put(plain, strings.TrimRight(l, " "))
		}
	}
	if a.Explanation.YAML != "" {
		for _, l := range strings.Split(strings.TrimRight(a.Explanation.YAML, "\n"), "\n") {
			put(plain, "    "+l)
		}
	}
	put(plain, "")
	h := a.History
	if h == nil {
		put(plain, "it has no history: only the tensors that send most have one")
		return all
	}
	raw, wire := sums(h.Times, h.Raw, x.Time), sums(h.Times, h.Wire, x.Time)
	ratios, errors, residuals := none(), latest(h.Times, h.Error, x.Time), latest(h.Times, h.Residual, x.Time)
	for i := range ratios {
		if wire[i] > 0 {
			ratios[i] = raw[i] / wire[i]
		}
	}
	all = append(all, axis("", x.Time), row("raw", raw.bars(), "at most "+perSecond(raw.largest()/60)), row("in tunnel", wire.bars(), "at most "+perSecond(wire.largest()/60)),
		row("ratio", ratios.bars(), "at most "+ratio(ratios.largest())), row("error", errors.bars(), fmt.Sprintf("at most %.3g", errors.largest())), row("residual", residuals.bars(), fmt.Sprintf("at most %.3g", residuals.largest())))
	return all
}

// latest returns the last value of each minute.
func latest(times []int64, values []float32, now time.Time) chart {
	c := none()
	for k, at := range times {
		if i, ok := column(at, now); ok && k < len(values) {
			c[i] = float64(values[k])
		}
	}
	return c
}

func cut(s string, n int) string {
	r := []rune(s)
	return string(r[:min(n, len(r))])
}

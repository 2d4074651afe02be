package wan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// An Order changes a link of a network that is up. Its JSON names are used on the socket on which the network's process
// takes it.
type Order struct {
	From   string `json:"from"`
	To     string `json:"to"`
	OneWay bool   `json:"one_way,omitempty"` // only the direction from From to To, not also the one back
	Reset  bool   `json:"reset,omitempty"`   // forget all orders for these directions
	// The properties that change; nil: as before. Rate is in bits per second (0: unlimited), Delay one way in
	// nanoseconds, Loss in [0, 1].
	Rate  *int64         `json:"rate,omitempty"`
	Delay *time.Duration `json:"delay,omitempty"`
	Loss  *float64       `json:"loss,omitempty"`
	For   time.Duration  `json:"for,omitempty"` // nanoseconds after which the order is forgotten; 0: it stays
}

// Cut returns the order that lets no packet pass.
func Cut(from, to string) Order {
	all := 1.0
	return Order{From: from, To: to, Loss: &all}
}

// Set reads words such as rate=5Mbit/s into o: rate, delay, loss as in topologies, and rtt. Half of rtt is the delay of
// either direction.
func (o *Order) Set(words []string) error {
	for _, word := range words {
		key, text, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "rate":
			o.Rate = new(int64)
			*o.Rate, err = parseRate(text)
		case "delay", "rtt":
			if o.Delay != nil {
				return errors.New("delay or rtt is given twice: leave one out")
			}
			o.Delay = new(time.Duration)
			if *o.Delay, err = parseDelay(text); key == "rtt" {
				*o.Delay /= 2
			}
		case "loss":
			o.Loss = new(float64)
			*o.Loss, err = parseLoss(text)
		default:
			return fmt.Errorf("%q is no change: write rate=, delay=, rtt= or loss= with a value", word)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// check reports the errors of an order that came from another process.
func (o *Order) check() error {
	switch {
	case o.changes() == o.Reset:
		return errors.New("an order either changes something or forgets all: give rate, delay or loss, or reset")
	case o.Rate != nil && (*o.Rate < 0 || *o.Rate > 0 && *o.Rate < 8 || *o.Rate >= 1e15):
		return fmt.Errorf("rate %d: want 0, for unlimited, or 8 bits per second at least", *o.Rate)
	case o.Delay != nil && (*o.Delay < 0 || *o.Delay > time.Minute):
		return fmt.Errorf("delay %v: want 0 to a minute", *o.Delay)
	case o.Loss != nil && !(*o.Loss >= 0 && *o.Loss <= 1):
		return fmt.Errorf("loss %v: want 0 to 1", *o.Loss)
	case o.For < 0 || o.Reset && o.For != 0:
		return fmt.Errorf("for %v: want a time above 0, and none with reset", o.For)
	}
	return nil
}

func (o *Order) changes() bool { return o.Rate != nil || o.Delay != nil || o.Loss != nil }

// A standing is an order that is in force for one direction.
type standing struct {
	rate  *int64
	delay *time.Duration
	loss  *float64
	until time.Time // zero: for ever
}

// maxStanding bounds the orders in force for one direction.
const maxStanding = 100

// directives are the orders in force for one direction, the latest last.
type directives []standing

// with returns d and o, given at now. d stays as it is.
func (d directives) with(o *Order, now time.Time) (directives, error) {
	if o.Reset {
		return nil, nil
	}
	s := standing{rate: o.Rate, delay: o.Delay, loss: o.Loss}
	d = slices.Clone(d)
	if o.For > 0 {
		s.until = now.Add(o.For)
	} else { // an earlier order for the same values is over: it must not come back into force
		for i := range d {
			d[i] = d[i].without(s)
		}
		d = slices.DeleteFunc(d, func(e standing) bool { return e.rate == nil && e.delay == nil && e.loss == nil })
	}
	if len(d) == maxStanding {
		return nil, fmt.Errorf("%d orders are in force already: reset the link first", maxStanding)
	}
	return append(d, s), nil
}

// without returns e but for the properties that s sets.
func (e standing) without(s standing) standing {
	if s.rate != nil {
		e.rate = nil
	}
	if s.delay != nil {
		e.delay = nil
	}
	if s.loss != nil {
		e.loss = nil
	}
	return e
}

// at returns the orders that are still in force at now, and how long all of them are; 0: for ever.
func (d directives) at(now time.Time) (left directives, next time.Duration) {
	for _, s := range d {
		if s.until.IsZero() {
			left = append(left, s)
			continue
		}
		if rest := s.until.Sub(now); rest > 0 {
			left = append(left, s)
			if next == 0 || rest < next {
				next = rest
			}
		}
	}
	return left, next
}

// on returns the quality that the orders make of q.
func (d directives) on(q Quality) Quality {
	for _, s := range d {
		put(&q.Rate, s.rate)
		put(&q.Delay, s.delay)
		put(&q.Loss, s.loss)
	}
	return q
}

// String writes a quality for people.
func (q Quality) String() string {
	if q.Loss == 1 {
		return "cut"
	}
	return fmt.Sprintf("%s, %v, loss %s", formatRate(q.Rate), q.Delay, formatLoss(q.Loss))
}

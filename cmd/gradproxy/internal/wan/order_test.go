package wan

import (
	"math"
	"strings"
	"testing"
	"time"
)

// Orders change what the topology says until they end; the latest counts, and what it leaves out stays.
func TestOrdersInForce(t *testing.T) {
	begin := time.Unix(1000, 0)
	base := Quality{Rate: 100e6, Delay: 10 * time.Millisecond}
	order := func(lasts time.Duration, words ...string) *Order {
		o := &Order{For: lasts}
		if err := o.Set(words); err != nil {
			t.Fatal(err)
		}
		if err := o.check(); err != nil {
			t.Fatal(err)
		}
		return o
	}
	var d directives
	give := func(at time.Duration, o *Order) {
		t.Helper()
		left, _ := d.at(begin.Add(at))
		var err error
		if d, err = left.with(o, begin.Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	is := func(at time.Duration, want Quality, left time.Duration) {
		t.Helper()
		now, next := d.at(begin.Add(at))
		if q := now.on(base); q != want || next != left {
			t.Errorf("after %v: %+v for %v, want %+v for %v", at, q, next, want, left)
		}
	}
	is(0, base, 0)
	give(0, order(0, "rate=5Mbit/s"))
	is(0, Quality{5e6, 10 * time.Millisecond, 0}, 0)
	give(time.Second, order(10*time.Second, "loss=50%", "rtt=100ms"))
	is(time.Second, Quality{5e6, 50 * time.Millisecond, 0.5}, 10*time.Second)
	cut := Cut("a", "b")
	cut.For = 2 * time.Second
	give(2*time.Second, &cut)
	is(3*time.Second, Quality{5e6, 50 * time.Millisecond, 1}, time.Second)
	is(4*time.Second, Quality{5e6, 50 * time.Millisecond, 0.5}, 7*time.Second)
	give(5*time.Second, order(0, "loss=1%")) // for good: the order with an end does not come back to its loss
	is(5*time.Second, Quality{5e6, 50 * time.Millisecond, 0.01}, 6*time.Second)
	is(11*time.Second, Quality{5e6, 10 * time.Millisecond, 0.01}, 0)
	give(12*time.Second, &Order{Reset: true})
	is(12*time.Second, base, 0)
}

// However many orders are given, few are kept.
func TestOrdersAreBounded(t *testing.T) {
	var d directives
	now := time.Unix(0, 0)
	one := Order{Loss: new(float64)}
	for range 10 * maxStanding {
		var err error
		if d, err = d.with(&one, now); err != nil || len(d) != 1 {
			t.Fatalf("%d orders are kept of those that last, %v", len(d), err)
		}
	}
	one.For = time.Hour
	for len(d) < maxStanding {
		d, _ = d.with(&one, now)
	}
	if _, err := d.with(&one, now); err == nil || !strings.Contains(err.Error(), "reset the link first") {
		t.Errorf("%d orders and one more: %v", len(d), err)
	}
}

// Words and orders that are wrong are refused.
func TestBadOrders(t *testing.T) {
	for word, want := range map[string]string{
		"speed=5": `"speed=5" is no change`, "rate=5": "is not a rate", "loss=2": "is not a loss", "delay=2m": "more than a minute", "rate": "is not a rate",
	} {
		if err := new(Order).Set([]string{word}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", word, err, want)
		}
	}
	if err := new(Order).Set([]string{"delay=1ms", "rtt=2ms"}); err == nil {
		t.Error("delay and rtt together are taken")
	}
	rate, loss, nan := int64(7), 2.0, math.NaN()
	late := 2 * time.Minute
	for name, o := range map[string]Order{
		"nothing": {}, "both": {Reset: true, Loss: new(float64)}, "low rate": {Rate: &rate}, "high loss": {Loss: &loss}, "no number": {Loss: &nan},
		"late": {Delay: &late}, "in the past": {Loss: new(float64), For: -1}, "a reset with an end": {Reset: true, For: 1},
	} {
		if o.check() == nil {
			t.Errorf("%s: the order is taken", name)
		}
	}
}

package wan

import (
	"fmt"
	"sync"
	"time"
)

// A playedLink is a link with the orders that are in force for it.
type playedLink struct {
	link
	fail func(error) // reports that an order could not be taken back

	mu     sync.Mutex
	base   [2]Quality    // there and back, without orders: as the topology or its trace says
	orders [2]directives // there and back
	timer  *time.Timer   // when the next order ends; nil: none does
	over   bool          // the network is being removed
}

// trace changes the quality to which the orders are applied.
func (l *playedLink) trace(base [2]Quality) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.change(base, l.orders)
}

// order puts an order in force for directions: there, back. If that fails, the link stays as it was.
func (l *playedLink) order(o *Order, directions ...int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	orders := l.orders
	for _, i := range directions {
		var err error
		if orders[i], err = orders[i].with(o, time.Now()); err != nil {
			return err
		}
	}
	err := l.change(l.base, orders)
	if err != nil {
		l.set(l.quality()) // one direction may have been changed: both go back; the first error is the one to report
	}
	return err
}

// change plays the link with another base and other orders. mu is held.
func (l *playedLink) change(base [2]Quality, orders [2]directives) error {
	if l.over {
		return nil
	}
	now := time.Now()
	there, next := orders[0].at(now)
	back, nextBack := orders[1].at(now)
	if next == 0 || nextBack != 0 && nextBack < next {
		next = nextBack
	}
	is := [2]Quality{there.on(base[0]), back.on(base[1])}
	if wasThere, wasBack := l.quality(); is != [2]Quality{wasThere, wasBack} {
		if err := l.set(is[0], is[1]); err != nil {
			return err
		}
	}
	l.base, l.orders = base, [2]directives{there, back}
	if l.timer != nil {
		l.timer.Stop()
	}
	if next > 0 {
		l.timer = time.AfterFunc(next, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if err := l.change(l.base, l.orders); err != nil {
				l.fail(err)
			}
		})
	}
	return nil
}

// quality returns the quality of both directions as it is played. mu is held.
func (l *playedLink) quality() (there, back Quality) {
	return l.orders[0].on(l.base[0]), l.orders[1].on(l.base[1])
}

// ordered returns in words the quality of the directions for which orders are in force; "": there are none.
func (l *playedLink) ordered() (now [2]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, d := range l.orders {
		if len(d) > 0 {
			now[i] = d.on(l.base[i]).String()
		}
	}
	return now
}

// ended stops all changes: the link is about to be removed.
func (l *playedLink) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// Order carries out an order on the link between two sites.
func (n *Network) Order(o Order) error {
	if err := o.check(); err != nil {
		return fmt.Errorf("wan %s: %w", n.plan.Name, err)
	}
	for i, p := range n.plan.Links {
		from, to := p.Ends[0].Site, p.Ends[1].Site
		there, back := 0, 1
		if o.From == to && o.To == from {
			there, back = 1, 0
		} else if o.From != from || o.To != to {
			continue
		}
		directions := []int{there}
		if !o.OneWay {
			directions = append(directions, back)
		}
		if err := n.links[i].order(&o, directions...); err != nil {
			return fmt.Errorf("wan %s: link %s-%s stays as it was: %w", n.plan.Name, from, to, err)
		}
		return nil
	}
	return fmt.Errorf("wan %s: no link joins %q and %q: gradproxy wan status --json lists the links", n.plan.Name, o.From, o.To)
}

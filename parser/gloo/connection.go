package gloo

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// A connection holds the state of its two directions.
type connection struct {
	common
	directions [2]direction
}

// A direction follows the messages of one side.
type direction struct {
	flow
	tag      uint32 // tag of the first collective
	tagged   bool   // there was a first collective
	counts   bool   // tags differ, so they count the collectives
	counted  counted
	constant constant
	weighing weighing
}

// newConnection returns a connection of a job.
func newConnection(c parser.Conn, j *job) *connection {
	x := &connection{common: common{conn: c}}
	x.ranks.high = min(max(c.Ranks, 0), maxRanks)
	if c.Ranks == 1 {
		x.ranks.high = 2 // a connection has two ends
	}
	x.meta.job, x.meta.said[c.Own], x.meta.said[1-c.Own] = j, j.by(sayer{own: true}), j.by(sayer{peer: c.Peer})
	for side := range x.directions {
		d := &x.directions[side]
		d.flow = flow{conn: &x.common, side: parser.Side(side), seed: seed(c, parser.Side(side)), ends: ends(c, parser.Side(side))}
		d.counted.flow, d.constant.flow = d.flow, d.flow
		if d.judges() && c.Sums != parser.SumsNone {
			d.counted.proof.calls = c.Calls
		}
	}
	return x
}

// A watch says how to examine a payload as it passes.
type watch struct {
	op   op
	look look            // how closely to look for the element type
	keep bool            // keep a copy, since the payload is metadata
	fill *tensor.Weights // takes the payload, which is parameters; nil: it is none
}

// begin notes an op, and returns its payload's tensor and how to examine the payload.
func (d *direction) begin(o op) (tensor.Tensor, watch, error) {
	d.conn.mu.Lock()
	defer d.conn.mu.Unlock()
	collective := o.code != sendBuffer && o.slot.kind() != pointToPoint
	if collective {
		d.sort(o.slot.tag())
	}
	switch {
	case o.code == notifySendReady && o.slot.kind() == allReduce && o.length > 0:
		return tensor.Tensor{}, watch{}, d.counted.announce(o.slot.tag(), o.length)
	case !o.code.payload() || o.length == 0:
		if collective && o.slot.kind() != allReduce && o.length == 0 && d.counts {
			d.conn.others.note(o.slot.tag(), 0) // a barrier
		}
		return tensor.Tensor{}, watch{}, nil
	}
	d.conn.meet()
	d.constant.place = 0
	v := tensor.Tensor{Role: tensor.Exact, Size: o.length, Hold: o.length, Why: tensor.DTypeUnknown}
	w := watch{op: o}
	if !collective {
		return v, w, nil
	}
	if o.slot.kind() != allReduce {
		w.keep = d.conn.meta.wants(d.side, o)
		if o.slot.kind() == broadcast && d.conn.sums() {
			w.fill = d.weighing.begin(&d.conn.meta, d.side, o.slot.tag())
		}
		if !d.counts {
			_, _, err := d.constant.message(o.slot.kind(), o.length)
			return v, w, err
		}
		d.conn.others.note(o.slot.tag(), o.length)
		return v, w, nil
	}
	var err error
	v, w.look, err = d.counted.message(o.slot.tag(), o.length)
	if !d.counts && err == nil && !d.counted.sees(o.slot.tag()) {
		role, why := v.Role, v.Why
		if v, w.look, err = d.constant.message(allReduce, o.length); d.counted.byCalls() {
			v.Role, v.Why = role, why
		}
	}
	return v, w, err
}

// sort finds out whether tags count the collectives.
func (d *direction) sort(tag uint32) {
	switch {
	case !d.tagged:
		d.tag, d.tagged = tag, true
	case d.tag != tag && !d.counts:
		d.counts = true
		d.constant = constant{flow: d.flow}
	}
}

// end notes the end of a payload. v is the verdict on its element type, and b a copy of the payload if w.keep is set.
func (d *direction) end(w watch, v verdict, b []byte) {
	d.conn.mu.Lock()
	defer d.conn.mu.Unlock()
	if w.keep {
		d.conn.meta.take(d.side, w.op, b)
	}
	if w.fill != nil {
		d.weighing.end()
	}
	if w.op.code != sendUnboundBuffer || w.op.slot.kind() != allReduce {
		return
	}
	d.counted.ended(w.op.slot.tag(), v)
	if !d.counts {
		d.constant.ended(v)
	}
}

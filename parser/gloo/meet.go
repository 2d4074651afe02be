package gloo

import (
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
)

// introduce notes the number with which the client has begun.
func (x *common) introduce(number int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.greeting.number, x.greeting.known = number, true
}

// meet looks for the record of the connection, at a payload. Both ends have read their records before the first one; it
// is rare that a record comes later, so meet looks again after twice as many payloads, and so on.
func (x *common) meet() {
	g := &x.greeting
	if g.ended || !g.known || x.meshes == nil {
		return
	}
	if g.asked++; g.asked&(g.asked-1) != 0 {
		return
	}
	p, ok := x.meshes.Join(x.conn.Job, x.conn.Peer, x.conn.Client, x.conn.Server, g.number)
	if !ok {
		return
	}
	g.ended = true
	now := members{ranks: p.Ranks}
	now.ends[parser.Client], now.ends[parser.Server] = p.Client, p.Server
	x.members.settle(now)
}

// nameOf returns the name of a side: its rank if that is proved, else its address; "": neither is known.
func (x *common) nameOf(side parser.Side) string {
	m := &x.members
	switch {
	case m.ranks > 0 && !m.conflict:
		return fmt.Sprintf("rank %d of %d", m.ends[side], m.ranks)
	case side == parser.Client && x.conn.Client.IsValid():
		return x.conn.Client.String()
	case side == parser.Server && x.conn.Server.IsValid():
		return x.conn.Server.String()
	}
	return ""
}

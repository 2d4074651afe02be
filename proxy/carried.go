package proxy

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/handover"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/send"
)

// A carried is a connection with its seat, from its opening to its end. Until either side has said something it has one goroutine, which waits for the app with a
// stack of 2 KiB: the work of before and after has goroutines of its own, whose stacks end with them, and the state of both directions is made at the first byte. Jobs open more
// connections than they use.
type carried struct {
	proxy *Proxy
	conn  *path.Conn
	seat  *handover.Seat
	own   parser.Side
	rests bool // it has no stream
	waits bool // nobody has said anything yet

	newPassage func() *passage
	leave      func() // the connections of its peer
	ended      func() // gives back the rest; called last
}

// elsewhere calls f on another goroutine, so that the stack of this one, which is about to wait for long, does not grow.
func elsewhere[T any](f func() T) T {
	done := make(chan T)
	go func() { done <- f() }()
	return <-done
}

// carryOpened carries the connection that open returns, if it does, until both directions have ended.
func carryOpened(open func() *carried) {
	k := elsewhere(open)
	if k == nil {
		return
	}
	if k.waits {
		k.conn.App.Await()
	}
	elsewhere(func() struct{} {
		k.run()
		return struct{}{}
	})
}

// sleep has the connection wait until one of its sides says something, where it can.
func (k *carried) sleep() {
	if !k.rests {
		send.Prepare(k.conn)
		k.waits = k.conn.Sleep()
	}
}

// run carries the bytes of both directions until both have ended.
func (k *carried) run() {
	p, c := k.proxy, k.conn
	if k.waits {
		c.Awake()
	}
	t := k.newPassage()
	how, rests := "", k.rests
	for {
		if !rests {
			if how, rests = t.both(c); !rests {
				break
			}
		}
		stream, err := p.live.Again(k.seat, c, t.unsent())
		if err != nil {
			how = t.abandon(c, err)
			break
		}
		c, rests = p.resumed(c, stream), false
		p.live.GoesOn(k.seat, c)
	}
	if how != handedOver { // else the peer hears nothing of this process's end
		p.cache.Peer(c.Peer).Ended(c.Tag)
	}
	p.config.Metrics.endedAs(c.Peer, how)
	c.Log.Debug("connection ended", "how", how)
	t.release()
	p.config.Metrics.carries(c.Peer, clientSide(k.own), -1)
	p.live.Leave(k.seat)
	k.leave()
	k.ended()
}

// resumed returns the Conn with which a connection at rest goes on over its next stream.
func (p *Proxy) resumed(c *path.Conn, stream Stream) *path.Conn {
	n := c.Resumed(stream)
	if p.config.PeerCodecs != nil {
		n.PeerCodecs = p.config.PeerCodecs(c.Peer) // its process may be of another version
		n.Shadow = p.trials.Watch(c.Peer, n.PeerCodecs)
	}
	return n
}

package proxy

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/handover"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/send"
)

// A carried is a connection with its seat, from its opening to its end. It sleeps until either side has sent something:
// it has no goroutine, and the state of the two directions is made at the first byte. Jobs open more connections than
// they use.
type carried struct {
	proxy *Proxy
	conn  *path.Conn
	seat  *handover.Seat
	own   parser.Side
	rests bool // it has no stream

	newPassage func() *passage
	leave      func() // takes the connection out of its peer's quota
	ended      func() // gives back everything else; called last
}

// carry carries k, which is nil if the connection has ended already. It returns when the connection sleeps or has
// ended. It calls finished once the connection has ended.
func (p *Proxy) carry(k *carried, finished func()) {
	if k == nil {
		finished()
		return
	}
	rest := k.ended
	k.ended = func() {
		rest()
		finished()
	}
	send.Prepare(k.conn)
	if !k.conn.Sleep(&p.sleepers, k.run) {
		k.run()
	}
}

// run carries the bytes of both directions until both have ended.
func (k *carried) run() {
	p, c := k.proxy, k.conn
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
	if how != handedOver { // the peer must not hear of the end of a connection that goes on in another process
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

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A HandingOver is the time in which a Proxy's connections are at rest, so that another process can take them over. It ends with CarryOn or Leave.
type HandingOver struct {
	proxy *Proxy
	*handing
}

// A Handed is a connection as another process takes it over.
type Handed struct {
	Peer   string         // "": the connection is not open yet, and is to be served as if it came only now
	Client netip.AddrPort // as the app sees them
	Server netip.AddrPort
	Number int    // of the opening
	Tag    uint64 // of the opening
	Opener bool   // this side has opened it
	FIN    bool   // the far app's FIN was passed on

	File *os.File `json:"-"` // the app's socket
}

// openGrace is how long openings that are under way at the begin of a hand-over may take; the others are withdrawn, and begin anew in the new process.
const openGrace = 2 * time.Second

// HandOver brings all connections to rest. It fails, and everything goes on as before, if that is not done when ctx ends, or if it cannot be done: a peer
// is of a version that knows no rest, or a connection bypasses the tunnel.
func (p *Proxy) HandOver(ctx context.Context) (*HandingOver, error) {
	h := &HandingOver{p, &handing{decided: make(chan struct{}), waiting: map[*net.TCPConn]frame.Opening{}, shut: map[string]bool{}}}
	p.mu.Lock()
	busy := p.handing != nil || p.draining
	if !busy {
		p.handing = h.handing
		close(p.begun)
	}
	p.mu.Unlock()
	if busy {
		return nil, errors.New("proxy: it ends, or is being replaced already")
	}
	if err := h.rest(ctx); err != nil {
		h.CarryOn()
		return nil, err
	}
	return h, nil
}

// rest asks peers and connections for rest, and waits for it.
func (h *HandingOver) rest(ctx context.Context) error {
	p := h.proxy
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	peers, err := h.askable()
	if err != nil {
		return err
	}
	atRest := make(chan struct{}) // closed once all connections are, here
	asked, answers := make(chan error, len(peers)), make(chan error, len(peers))
	for _, peer := range peers {
		go func() {
			s, err := h.ask(ctx, peer)
			asked <- err
			if s != nil {
				if err = h.answered(ctx, peer, s, atRest); err != nil {
					cancel(err)
				}
			}
			answers <- err
		}()
	}
	for range peers { // all of them: CarryOn must know each stream
		if e := <-asked; e != nil && err == nil {
			err = e
			cancel(e)
		}
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	for s := range p.live {
		p.askForRest(s)
	}
	p.mu.Unlock()
	grace := time.AfterFunc(openGrace, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.handing == h.handing {
			p.stopAsking(errMoving)
		}
	})
	defer grace.Stop()
	if err := h.awaitRest(ctx); err != nil {
		return err
	}
	close(atRest)
	for range peers {
		select {
		case err := <-answers:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("proxy: the connections at a peer did not come to rest in time: does an app there not read? %w", context.Cause(ctx))
		}
	}
	return nil
}

// ask opens the stream on which a peer is asked for rest. It returns nil without an error if there is no session with the peer, or if no connection with it is
// open and it does not answer within openGrace: such a peer must not hold a hand-over up.
func (h *HandingOver) ask(ctx context.Context, peer string) (Stream, error) {
	p, began := h.proxy, time.Now()
	for pause := firstAgain; ; pause = min(2*pause, lastAgain) {
		s, err := h.askOnce(ctx, peer)
		waits := p.carriesTo(peer) || time.Since(began) < openGrace
		var refused *tunnel.RefusedError
		switch {
		case err == nil:
			p.mu.Lock()
			h.streams = append(h.streams, s)
			p.mu.Unlock()
			return s, nil
		case errors.Is(err, tunnel.ErrPeerDown):
			return nil, nil
		case ctx.Err() == nil && waits && errors.As(err, &refused) && refused.Code == frame.RefusedBusy: // the end of the last hand-over has not reached it
			wait(ctx, pause)
		case ctx.Err() == nil && refused != nil && wilful(refused.Code):
			h.shutOut(peer, err)
			return nil, nil
		case ctx.Err() == nil && !p.carriesTo(peer):
			h.goesWithout(peer, err)
			return nil, nil
		default:
			return nil, fmt.Errorf("proxy: asking %s for rest: %w (if it never answers, take it out of the configuration, reload, and try again)", peer, err)
		}
	}
}

// askOnce is one attempt of ask. One at a peer with which there is no connection lasts at most openGrace.
func (h *HandingOver) askOnce(ctx context.Context, peer string) (Stream, error) {
	if !h.proxy.carriesTo(peer) {
		within, cancel := context.WithTimeout(ctx, openGrace)
		defer cancel()
		ctx = within
	}
	return h.proxy.config.Open(ctx, peer, []byte{frame.OpeningRest})
}

// carriesTo reports whether there are connections with a peer.
func (p *Proxy) carriesTo(peer string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.live {
		if s.key.peer == peer {
			return true
		}
	}
	return false
}

func (h *HandingOver) goesWithout(peer string, err error) {
	h.proxy.config.Log.Warn("a peer did not answer the request for rest; the hand-over goes on, since no connection with it is open", "peer", peer, "err", err)
}

// wilful reports whether no peer that knows hand-overs refuses rest by this code, whatever its state.
func wilful(code tunnel.Code) bool {
	switch code {
	case tunnel.CodeDraining, tunnel.CodeMemory, frame.RefusedBusy:
		return false
	}
	return true
}

// shutOut resets all connections of a peer that said it knows hand-overs, and acts against them: no peer may keep this process, perhaps with a hole that
// the next one has not, in its place. It gets new connections from the process that runs after the hand-over.
func (h *HandingOver) shutOut(peer string, why error) {
	p := h.proxy
	p.mu.Lock()
	h.shut[peer] = true
	n := 0
	for s := range p.live {
		if s.key.peer == peer {
			n++
			go s.conn.Abort(frame.ResetByApp)
		}
	}
	p.changed()
	p.mu.Unlock()
	p.config.Log.Warn("a peer's connections are reset: it has refused them the rest that a hand-over needs", "peer", peer, "connections", n, "err", why)
}

// answered waits until a peer's connections are at rest, once all are here. A peer with which none is open has openGrace for its answer.
func (h *HandingOver) answered(ctx context.Context, peer string, s Stream, atRest <-chan struct{}) error {
	p := h.proxy
	rests := make(chan error, 1)
	go func() { rests <- resting(ctx, s, atRest) }()
	var late <-chan time.Time
	for here := atRest; ; {
		select {
		case err := <-rests:
			if err == nil || p.carriesTo(peer) {
				if err != nil {
					err = fmt.Errorf("%w (peer %s)", err, peer)
				}
				return err
			}
			h.goesWithout(peer, err)
			return nil
		case <-here:
			if here = nil; !p.carriesTo(peer) {
				late = time.After(openGrace)
			}
		case <-late:
			h.goesWithout(peer, errors.New("no answer"))
			return nil
		}
	}
}

// resting tells a peer once all connections are at rest here, and waits until they are there.
func resting(ctx context.Context, s Stream, atRest <-chan struct{}) error {
	told := make(chan error, 1)
	go func() {
		var err error
		select {
		case <-atRest:
			_, err = s.Write(frame.Append(nil, frame.Frame{Kind: frame.Rest}))
		case <-ctx.Done():
		}
		told <- err
	}()
	f, err := restReader(s).Next()
	if err == nil && f.Kind != frame.Rest {
		err = frame.ErrFrame
	}
	if err != nil {
		return fmt.Errorf("proxy: the session with a peer was lost meanwhile: %w", noEOF(err))
	}
	if err := <-told; err != nil {
		return fmt.Errorf("proxy: asking for rest: %w", err)
	}
	return nil
}

// askable returns the peers whose connections can rest. Some may have none open, but some under way.
func (h *HandingOver) askable() (peers []string, err error) {
	p := h.proxy
	for _, peer := range p.settings.Load().Peers {
		if p.canRest(peer.Name) {
			peers = append(peers, peer.Name)
		}
	}
	p.mu.Lock()
	unnamed := map[string]bool{}
	for s := range p.live {
		if !s.named && p.canRest(s.key.peer) {
			unnamed[s.key.peer] = true
		}
	}
	p.mu.Unlock()
	for peer := range unnamed {
		h.shutOut(peer, errUnnamed)
	}
	peers = slices.DeleteFunc(peers, func(peer string) bool { return unnamed[peer] })
	p.mu.Lock()
	defer p.mu.Unlock()
	return peers, p.cannotRest()
}

// errUnnamed is what a peer has done that versions with hand-overs do not do.
var errUnnamed = errors.New("it has opened connections with no tag, or with one that another connection has")

// cannotRest returns an error if there are connections that cannot rest. mu is held.
func (p *Proxy) cannotRest() error {
	if p.bypass.count > 0 {
		return fmt.Errorf("proxy: %d connections bypass the tunnel, and cannot be handed over", p.bypass.count)
	}
	for s := range p.live {
		switch {
		case s.resting, p.handing != nil && p.handing.shut[s.key.peer]: // or about to leave
		case !s.conn.Rests() && !p.canRest(s.key.peer):
			return fmt.Errorf("proxy: peer %s has connections here, and is of a version that knows no hand-over: upgrade it first", s.key.peer)
		}
	}
	return nil
}

// awaitRest waits until all connections are at rest here, and no opening is under way.
func (h *HandingOver) awaitRest(ctx context.Context) error {
	p := h.proxy
	for {
		p.mu.Lock()
		n, underWay, change, cannot := p.loose(), p.underWay, p.change, p.cannotRest()
		if n+underWay == 0 {
			p.stopAsking(errMoving) // openings that begin now are the other process's
		}
		p.mu.Unlock()
		if cannot != nil {
			return cannot
		}
		if n+underWay == 0 {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return fmt.Errorf("proxy: %d connections did not come to rest in time, and %d were being opened: does an app not read? %w", n, underWay, context.Cause(ctx))
		}
	}
}

// Connections returns the connections, with descriptors that the caller must close.
func (h *HandingOver) Connections() (all []Handed, err error) {
	p := h.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	h.listed = true
	for s := range p.live {
		o := &s.opening
		f, err := s.conn.App.File()
		if err != nil {
			return all, err
		}
		all = append(all, Handed{Peer: s.key.peer, Client: o.Client, Server: o.Server, Number: o.Number, Tag: s.key.tag.Number, Opener: s.own == parser.Client,
			FIN: s.conn.FINSent(), File: f})
	}
	for c, o := range h.waiting {
		f, err := app.Plain(c).File()
		if err != nil {
			return all, err
		}
		all = append(all, Handed{Client: o.Client, Server: o.Server, File: f})
	}
	return all, nil
}

// CarryOn has this process carry its connections on.
func (h *HandingOver) CarryOn() {
	p := h.proxy
	p.mu.Lock()
	p.handing, p.begun = nil, make(chan struct{})
	for s := range p.live {
		s.conn.RestNext(false)
	}
	p.asking, p.stopAsking = context.WithCancelCause(context.Background())
	p.mu.Unlock()
	for _, s := range h.streams {
		s.Close()
	}
	close(h.decided)
}

// Leave ends the connections here, which another process has taken over, without a sign to the apps or the peers.
func (h *HandingOver) Leave() {
	h.moved = true
	close(h.decided)
}

// Idle reports whether no connection is carried, or being opened, or waits to be handed over.
func (p *Proxy) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := 0
	if p.handing != nil {
		waiting = len(p.handing.waiting)
	}
	return len(p.live)+p.underWay+p.bypass.count+waiting == 0
}

// begins notes an opening that is under way, until ends.
func (p *Proxy) begins() *underway {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.underWay++
	return &underway{}
}

// ends notes the end of an opening. It may be called more than once.
func (p *Proxy) ends(u *underway) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(u)
}

// end is ends; mu is held.
func (p *Proxy) end(u *underway) {
	if !u.ended {
		u.ended = true
		p.underWay--
		p.changed()
	}
}

// askingNow returns the context of openings that begin now and that another process can begin anew: it ends when that process is about to take over.
func (p *Proxy) askingNow() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asking
}

// moved hands an app's connection that is not open yet to another process, if that takes over; false: this one serves it on. One that comes after
// Connections is in neither process, and is reset.
func (p *Proxy) moved(c *net.TCPConn, o frame.Opening, u *underway, peer string, log *slog.Logger) bool {
	p.mu.Lock()
	h := p.handing
	if h == nil {
		p.mu.Unlock()
		return false
	}
	h.waiting[c] = o
	missed := h.listed
	p.end(u)
	p.mu.Unlock()
	<-h.decided
	if h.moved && missed {
		p.config.Metrics.opens(peer, "failed")
		log.Warn("connection reset: it came while another process was taking over; on_death: hold has such connections wait")
	}
	if !h.moved {
		p.mu.Lock()
		p.underWay++
		u.ended = false
		p.mu.Unlock()
	}
	return h.moved
}

// Adopt takes over a connection that another process has handed over, and returns at once. ended is called when the connection has ended. The bytes of the
// app travel verbatim: no parser knows where in the stream it is. After an error nothing has happened to f.
func (p *Proxy) Adopt(f Handed, ended func()) error {
	conn, err := net.FileConn(f.File)
	if err != nil {
		return fmt.Errorf("proxy: taking a connection over: %w", err)
	}
	c, ok := conn.(*net.TCPConn)
	if !ok {
		conn.Close()
		return fmt.Errorf("proxy: taking a connection over: a %T", conn)
	}
	f.File.Close()
	o := frame.Opening{Client: frame.Unmap(f.Client), Server: frame.Unmap(f.Server), Number: f.Number, Tag: f.Tag}
	if f.Peer == "" {
		go func() {
			defer ended()
			p.Serve(context.Background(), c, o.Server)
		}()
		return nil
	}
	own := parser.Server
	if f.Opener {
		own = parser.Client
		pair := addrPair{p.settings.Load().jobOf(o.Client.Addr(), o.Server.Addr()).Name, o.Client.Addr(), o.Server.Addr()}
		p.numbers.keep(pair, o.Number)
		over := ended
		ended = func() {
			p.numbers.give(pair, o.Number)
			over()
		}
	}
	p.config.Metrics.opens(f.Peer, "taken over")
	log := p.config.Log.With("peer", f.Peer, "client", o.Client, "server", o.Server)
	p.prepare(c)
	end, done := p.gate(c, log)
	sits := make(chan struct{})
	once := sync.OnceFunc(func() { close(sits) })
	go func() {
		defer ended()
		defer done()
		defer app.Reset(c)
		defer once()
		p.resume(end, f.Peer, log, o, own, f.FIN, once)
	}()
	<-sits
	return nil
}

// noEOF makes the end of a stream an error where more must come.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

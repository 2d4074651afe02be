package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/upgrade"
	"github.com/gradproxy/gradproxy/proxy/intercept"
)

// givenWithin is how long the old process may take, beyond upgrade.within, to hand everything over.
const givenWithin = 10 * time.Second

// takeOver takes the connections of the process that runs with the same upgrade.socket, if there is one; nil: there is
// none.
func (s *Site) takeOver(c *config.Config) (*upgrade.Parcel, error) {
	if c.Upgrade.Socket == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Upgrade.Within+givenWithin)
	defer cancel()
	places := s.shares(slog.New(slog.DiscardHandler)).places
	p, err := upgrade.TakeOver(ctx, c.Upgrade.Socket, upgrade.Request{Site: c.Site, Version: s.version, Reset: c.Upgrade.Reset}, func(p *upgrade.Parcel) error { return checkOpen(c, places, p) }, func() {
		s.log.Warn("the old process has handed everything over and has not ended yet: this one goes on once it has")
	})
	switch {
	case errors.Is(err, upgrade.ErrNobody):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("upgrade.socket %s: %w", c.Upgrade.Socket, err)
	}
	s.log.Info("taking over from another process", "pid", p.PID, "version", p.Version, "connections", len(p.Connections), "listeners", len(p.Listeners))
	return p, nil
}

// inherited returns the listener of that address which another process has handed over; nil: there is none.
func inherited(p *upgrade.Parcel, addr netip.AddrPort) (*net.TCPListener, error) {
	if p == nil {
		return nil, nil
	}
	for i, a := range p.Listeners {
		if a != addr.String() || p.Files[i] == nil {
			continue
		}
		f := p.Files[i]
		p.Files[i] = nil
		defer f.Close()
		l, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("forward %v: taking its listener over: %w", addr, err)
		}
		if t, ok := l.(*net.TCPListener); ok {
			return t, nil
		}
		l.Close()
	}
	return nil, nil
}

// inherit takes over the residuals of tensors, and reports whether it did: they are newer than the ones in state.dir.
func (s *Site) inherit(p *upgrade.Parcel) bool {
	if p == nil {
		return false
	}
	err := s.proxy.Residuals().Load(bytes.NewReader(p.State))
	p.State = nil // it may be as large as state.memory
	if err != nil {
		s.log.Warn("the state of tensors that the other process has handed over is not used, and is lost", "err", err)
	}
	return err == nil
}

// adopt has the proxy carry on the connections that another process has handed over. It must come before the tunnel:
// the peers resume them at once.
func (s *Site) adopt(p *upgrade.Parcel) {
	if p == nil {
		return
	}
	verbatim := 0
	for i, h := range p.Connections {
		at := len(p.Listeners) + i
		if !s.places.TryEnter() {
			s.log.Error("connection reset: there is no place for it in this process; raise the limits of descriptors (ulimit -n, LimitNOFILE=) and of memory", "client", h.Client, "server", h.Server)
			continue
		}
		h.File = p.Files[at]
		if err := s.proxy.Adopt(h, s.places.Leave); err != nil {
			s.places.Leave()
			s.log.Error("connection reset: it cannot be taken over", "client", h.Client, "server", h.Server, "err", err)
			continue
		}
		p.Files[at] = nil
		if h.Peer != "" {
			verbatim++
		}
	}
	if verbatim > 0 {
		s.log.Info("the apps' bytes of connections that were taken over travel verbatim from here, until the apps connect anew", "connections", verbatim)
	}
}

// errHandedOver ends Run: another process has everything.
var errHandedOver = errors.New("another process has taken over")

// serveUpgrades hands everything over to the first process that takes it, and returns errHandedOver then. It returns
// nil once the listener is closed.
func (s *Site) serveUpgrades(cut context.Context, a *acceptor) error {
	for {
		g, err := s.upgrades.Accept(s.started.Site, func(err error) { s.log.Warn("upgrade.socket", "err", err) })
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("upgrade.socket: %w", err)
		}
		s.log.Info("another process asks to take over", "pid", g.PID, "version", g.Version)
		if s.giveTo(cut, g, a) {
			return errHandedOver
		}
	}
}

// giveTo hands everything over to a process, and reports whether that has it. Otherwise this process carries on.
func (s *Site) giveTo(cut context.Context, g *upgrade.Giver, a *acceptor) bool {
	s.handing.Lock()
	defer s.handing.Unlock()
	if s.ending {
		_ = g.Refuse(errDraining) // it may be gone
		return false
	}
	err := a.pause()
	if err == nil {
		err = s.handOver(cut, g, a)
	}
	if err == nil {
		s.giver = g
		a.forget()
		return true
	}
	s.log.Error("another process could not take over: this one carries on", "pid", g.PID, "err", err)
	a.goOn()
	s.kept = time.Now()
	_ = g.Refuse(err) // it may be gone
	return false
}

// handOver brings the connections to rest and gives them to the new process, unless cut ends first. After an error they
// go on here.
func (s *Site) handOver(cut context.Context, g *upgrade.Giver, accepts *acceptor) (err error) {
	ctx, cancel := context.WithTimeout(cut, s.started.Upgrade.Within)
	defer cancel()
	began := time.Now()
	patience := time.Duration(0)
	if g.Reset {
		patience = s.started.Upgrade.Within / 2
	}
	h, err := s.proxy.HandOverBy(ctx, patience)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			h.CarryOn()
		}
	}()
	a := &upgrade.Answer{Version: s.version, Held: s.held()}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, k := range accepts.kept {
		f, err := k.listener.File()
		if err != nil {
			return fmt.Errorf("handing a listener over: %w", err)
		}
		a.Listeners, files = append(a.Listeners, k.Addr().String()), append(files, f)
	}
	a.Connections, err = h.Connections()
	for _, c := range a.Connections {
		files = append(files, c.File)
	}
	if err != nil {
		return fmt.Errorf("handing connections over: %w", err)
	}
	s.saveRecords() // the bytes that connections sent until they came to rest count too
	if err = g.Give(ctx, a, files, func(w io.Writer) error { return s.proxy.Residuals().Save(w) }); err != nil {
		return err
	}
	h.Leave()
	s.log.Info("another process has taken over", "pid", g.PID, "connections", len(a.Connections), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// awaitSuccessor carries on, after the signal to end, until another process takes over, nothing is left to carry, a
// part fails, cut ends or half of limit is over: the other half is the drain's. It returns the time left of limit, and
// the error of the part.
func (s *Site) awaitSuccessor(cut context.Context, limit time.Duration, failed <-chan error) (left time.Duration, err error) {
	if s.upgrades == nil || limit == 0 {
		return limit, nil
	}
	s.log.Info("this proxy waits for another process to take over, and then drains; a second signal ends it", "limit", limit/2)
	end := time.NewTimer(limit / 2)
	defer end.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); ; {
		select {
		case <-look.C:
			if s.proxy.Idle() {
				return max(limit-time.Since(began), limit-limit/2), nil
			}
		case err := <-failed:
			return max(limit-time.Since(began), limit-limit/2), err
		case <-cut.Done():
			return 0, nil
		case <-end.C:
			return limit - limit/2, nil
		}
	}
}

// resumeWithin is how long connections that were at rest for a hand-over may take to go on before the drain, in which
// they could not: no stream is opened then.
const resumeWithin = 2 * time.Second

// endHandOvers waits for a hand-over that has begun, so that no connection is reset which another process has. If it
// fails, the connections may go on, unless cut ends. No other one begins.
func (s *Site) endHandOvers(cut context.Context) {
	s.handing.Lock()
	s.ending = true
	resuming := time.Until(s.kept.Add(resumeWithin))
	s.handing.Unlock()
	if resuming <= 0 || s.giver != nil {
		return
	}
	select {
	case <-time.After(resuming):
	case <-cut.Done():
	}
}

// An upgradable interceptor can be left to another process.
type upgradable interface {
	Pause() error // has new connections wait, if it can
	GoOn() error
	Leave() error // is Close, without an effect on connections
}

// An acceptor serves the forwards, and can stop and go on with no connection lost: connections wait in the listeners
// meanwhile.
type acceptor struct {
	site   *Site
	ctx    context.Context
	handle intercept.Handler
	part   func(serve func() error)

	stop    context.CancelFunc
	running *sync.WaitGroup
	serving []*intercept.Forward
	paused  bool   // the redirect is
	kept    []kept // of serving, while nothing is accepted
}

// A kept is a forward that does not accept, and another descriptor of its listener.
type kept struct {
	*intercept.Forward
	listener *net.TCPListener
}

// start accepts the connections of forwards.
func (a *acceptor) start(forwards []*intercept.Forward) {
	ctx, stop := context.WithCancel(a.ctx)
	a.stop, a.serving, a.running = stop, forwards, new(sync.WaitGroup)
	for _, f := range forwards {
		a.running.Add(1)
		running := a.running
		a.part(func() error {
			defer running.Done()
			return f.Serve(ctx, a.handle)
		})
	}
}

// pause stops accepting.
func (a *acceptor) pause() error {
	a.kept = nil
	for _, f := range a.serving {
		file, err := f.Listener().File()
		var l net.Listener
		if err == nil {
			l, err = net.FileListener(file)
			file.Close()
		}
		if err != nil {
			a.forget()
			return fmt.Errorf("second descriptor of a listener: %w", err)
		}
		a.kept = append(a.kept, kept{f, l.(*net.TCPListener)})
	}
	a.stop()
	a.running.Wait()
	if u, ok := a.site.redirect.(upgradable); ok {
		a.paused = true
		return u.Pause()
	}
	return nil
}

// goOn accepts again after pause, which may have failed.
func (a *acceptor) goOn() {
	if len(a.kept) > 0 {
		var again []*intercept.Forward
		for _, k := range a.kept {
			again = append(again, k.Reopened(k.listener))
		}
		a.kept = nil
		a.start(again)
	}
	if u, ok := a.site.redirect.(upgradable); ok && a.paused {
		a.paused = false
		if err := u.GoOn(); err != nil { // the rules are refreshed again soon
			a.site.log.Error("after another process could not take over", "err", err)
		}
	}
}

// forget closes the second descriptors.
func (a *acceptor) forget() {
	for _, k := range a.kept {
		k.listener.Close()
	}
	a.kept = nil
}

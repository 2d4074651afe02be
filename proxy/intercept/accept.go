package intercept

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"
)

// Back-off of an accept loop that is out of descriptors: doubled from the first to the last at each failure.
const (
	firstBackOff = 5 * time.Millisecond
	lastBackOff  = time.Second
)

// Places bound how many connections are open at once, over all listeners that share them. Intercepted connections
// without a place wait in the listeners' backlogs; each listener takes a place of its own to wait for the next. The
// zero Places never end.
type Places struct {
	tickets  chan struct{}
	withheld *withheld
}

// withheld are the places that nobody may have.
type withheld struct {
	mu     sync.Mutex
	n      int  // that are withheld
	want   int  // that are to be
	taking bool // a goroutine waits for places that connections leave
}

// NewPlaces returns n Places, at least one.
func NewPlaces(n int) Places { return Places{make(chan struct{}, max(n, 1)), &withheld{}} }

// Bound lets at most n connections be open at once from now on, at least one, and no more than there are Places. Of the
// open ones none ends: where there are more, the next ones wait until enough have left. The zero Places stay without an
// end.
func (p Places) Bound(n int) {
	if p.tickets == nil {
		return
	}
	w := p.withheld
	w.mu.Lock()
	defer w.mu.Unlock()
	w.want = cap(p.tickets) - min(max(n, 1), cap(p.tickets))
	for ; w.n > w.want; w.n-- {
		<-p.tickets
	}
	for w.n < w.want && !w.taking && p.TryEnter() {
		w.n++
	}
	if w.n < w.want && !w.taking {
		w.taking = true
		go p.withhold()
	}
}

// withhold takes places until as many are withheld as are to be.
func (p Places) withhold() {
	w := p.withheld
	for {
		p.tickets <- struct{}{}
		w.mu.Lock()
		switch w.n++; {
		case w.n > w.want: // more may be open again
			<-p.tickets
			w.n--
			fallthrough
		case w.n == w.want:
			w.taking = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// Enter waits for a place and reports false if ctx ends first. Leave gives it back.
func (p Places) Enter(ctx context.Context) bool {
	if p.tickets == nil {
		return ctx.Err() == nil
	}
	select {
	case p.tickets <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// TryEnter takes a place if there is one, without waiting, and reports whether it did. Leave gives it back.
func (p Places) TryEnter() bool {
	if p.tickets == nil {
		return true
	}
	select {
	case p.tickets <- struct{}{}:
		return true
	default:
		return false
	}
}

// Leave gives back the place that an Enter or a TryEnter took.
func (p Places) Leave() {
	if p.tickets != nil {
		<-p.tickets
	}
}

// A tcpListener is the part of a *net.TCPListener that the accept loop needs.
type tcpListener interface {
	AcceptTCP() (*net.TCPConn, error)
	Close() error
}

// acceptAll calls handle for each connection of l on a goroutine of its own, until ctx ends or l fails for good. handle
// must call ended when the connection has ended. acceptAll closes l, does not wait for the handlers, and returns nil if
// ctx ended. Where the process is out of descriptors it waits rather than spins; the connections stay in the backlog
// meanwhile.
func acceptAll(ctx context.Context, l tcpListener, places Places, log *slog.Logger, handle func(c *net.TCPConn, ended func())) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer func() {
		if stop() {
			_ = l.Close()
		}
	}()
	pause := firstBackOff
	for places.Enter(ctx) {
		c, err := l.AcceptTCP()
		if err == nil {
			pause = firstBackOff
			go handle(c, places.Leave)
			continue
		}
		places.Leave()
		if ctx.Err() != nil {
			return nil
		}
		if !Transient(err) {
			return err
		}
		log.Warn("intercept: cannot accept connections: they wait", "err", err, "pause", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastBackOff)
	}
	return nil
}

// Transient reports whether an accept that failed with err may succeed later: descriptors or memory are short, or the
// connection died in the backlog.
func Transient(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

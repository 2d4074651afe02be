package app

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/gradproxy/gradproxy/proxy/frame"
)

// While an opening waits for the peer's answer its app waits too, and may leave: the server must then not be dialled
// for it later. How apps leave, and how Linux shows it:
//
//   - An RST: the opening is withdrawn at once (TCP_CLOSE, epoll's EPOLLERR).
//   - A FIN of an app that goes on reading is no leaving: the opening goes on, and the FIN follows the app's bytes.
//   - A FIN of an app that has closed its socket, or was killed. It may have sent everything that it wanted to, as `nc
//     -N` does, so the opening has time for a few round trips (LeaveGrace); then it is withdrawn. The two FINs look
//     alike on the wire, but where the app is in this network namespace sock_diag tells them apart.
//   - Elsewhere (a gateway's clients) keep-alives do: the app's host forgets a closed socket (after tcp_fin_timeout, 60
//     s), and then answers with an RST.

// LeaveGrace is how long an opening goes on whose app has closed its connection.
const LeaveGrace = 5 * time.Second

// leaveCheck is how often an app that has sent a FIN is looked at.
const leaveCheck = 250 * time.Millisecond

// ErrLeft is why an opening ends whose app has left.
var ErrLeft = errors.New("proxy: the app has left before the connection was open")

// A Watcher watches apps whose openings wait.
type Watcher struct {
	Grace  time.Duration                         // LeaveGrace
	Closed func(app, server netip.AddrPort) bool // ClosedByApp
}

// NewWatcher returns a Watcher as it is outside of tests.
func NewWatcher() Watcher { return Watcher{LeaveGrace, ClosedByApp} }

// Watch returns a context that ends, with the cause ErrLeft, when the app of c leaves. Nothing must have been read from
// c. server is the address that the app connected to. The caller must call stop before it reads.
func (w *Watcher) Watch(ctx context.Context, c *net.TCPConn, server netip.AddrPort) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	raw, err := c.SyscallConn()
	if err != nil {
		return watched, func() { cancel(nil) }
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var state tcpState
		raw.Read(func(fd uintptr) bool { // called whenever an event has come; nothing is read
			state = stateOf(fd)
			return state.reset() || state.halfClosed()
		})
		if state.reset() || state.halfClosed() && w.leaves(watched, c, frame.Unmap(server)) {
			cancel(ErrLeft)
		}
	}()
	return watched, func() {
		cancel(nil)
		c.SetReadDeadline(time.Unix(1, 0)) // raw.Read ends
		<-ended
		c.SetReadDeadline(time.Time{})
	}
}

// leaves reports whether an app that has sent a FIN leaves before ctx ends.
func (w *Watcher) leaves(ctx context.Context, c *net.TCPConn, server netip.AddrPort) bool {
	app, local := frame.Unmap(AddrOf(c.RemoteAddr())), frame.Unmap(AddrOf(c.LocalAddr()))
	tick := time.NewTicker(leaveCheck)
	defer tick.Stop()
	var since time.Time // when it was seen that it had closed
	for {
		now := time.Now()
		switch {
		case ClosedByReset(c):
			return true
		case !since.IsZero():
			if now.Sub(since) >= w.Grace {
				return true
			}
		case w.Closed(app, server) || w.Closed(app, local): // redirected, or not
			since = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

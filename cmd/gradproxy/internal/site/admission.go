package site

import (
	"log/slog"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/intercept"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// refusedFull is the code with which an opening is refused while there are too many connections. Package proxy uses the
// codes from tunnel.CodeApp on.
const refusedFull = tunnel.CodeApp + 64

// An admission decides whether peers' openings find a place. They cannot wait there as intercepted connections do: a
// peer may have more openings than there are descriptors, and the app behind each would take the silence for a slow
// network.
type admission struct {
	places intercept.Places
	log    *slog.Logger

	mu      sync.Mutex
	logged  time.Time // when a refusal was logged last
	refused int       // refusals since logged
}

// admit calls carry, which must call ended when the connection is over, or refuses in. Openings that need no place are
// never refused: else a proxy that is full could not carry on the connections of a peer whose process is replaced.
func (a *admission) admit(peer string, opening []byte, in proxy.Incoming, carry func(ended func())) {
	if !proxy.TakesPlace(opening) {
		carry(func() {})
		return
	}
	if !a.places.TryEnter() {
		a.note(peer)
		in.Refuse(refusedFull, "too many connections")
		return
	}
	carry(a.places.Leave)
}

// note logs refusals, at most once a second.
func (a *admission) note(peer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused++
	now := time.Now()
	if now.Sub(a.logged) < time.Second {
		return
	}
	a.log.Warn("too many connections: peers' are refused; raise the limits of descriptors (ulimit -n, LimitNOFILE=) and of memory", "peer", peer, "refused", a.refused)
	a.logged, a.refused = now, 0
}

// maxStreams returns how many streams each of some peers may have: together they have at most as many as there are
// places, and each at most the tunnel's own default.
func maxStreams(places, peers int) int {
	return min(max(places/max(peers, 1), 1), 16384)
}

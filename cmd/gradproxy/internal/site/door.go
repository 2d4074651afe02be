package site

import (
	"log/slog"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/intercept"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// refusedFull is the code with which an opening is refused while there are too many connections. The package proxy has
// those from tunnel.CodeApp on.
const refusedFull = tunnel.CodeApp + 64

// A door lets peers' openings to the connections that share a gate. They cannot wait there as intercepted ones do: a
// peer may have more of them than there are descriptors, and the app behind each would take the silence for a slow
// network.
type door struct {
	gate intercept.Gate
	log  *slog.Logger

	mu      sync.Mutex
	said    time.Time // when a refusal was logged last
	refused int       // since then
}

// admit calls carry, which returns when the connection is over, or refuses in.
func (d *door) admit(peer string, in proxy.Incoming, carry func()) {
	if !d.gate.TryEnter() {
		d.note(peer)
		in.Refuse(refusedFull, "too many connections")
		return
	}
	defer d.gate.Leave()
	carry()
}

// note logs refusals, at most once a second.
func (d *door) note(peer string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused++
	now := time.Now()
	if now.Sub(d.said) < time.Second {
		return
	}
	d.log.Warn("too many connections: peers' are refused; raise the limit of descriptors (ulimit -n, LimitNOFILE=)", "peer", peer, "refused", d.refused)
	d.said, d.refused = now, 0
}

// maxStreams returns how many streams each of some peers may have, so that all of them have no more than there are
// places; never over the tunnel's own default.
func maxStreams(places, peers int) int {
	return min(max(places/max(peers, 1), 1), 16384)
}

package datagram

import "time"

// Datagrams begin with minDatagram bytes, which every path carries, and grow to the largest of these sizes that a probe
// shows to pass: the sizes of Ethernet less tunnels and IPv6, of Ethernet, of jumbo frames, and a quarter of the bytes
// of one call. See RFC 8899.
var datagramSizes = [...]int{1200, 1352, 1392, 1432, 1452, 1472, 4000, 8192, 8952, 16250}

const (
	minDatagram = 1200
	probeTries  = 3                // probes of a size that stay without an answer, before it is held not to pass
	searchAgain = 10 * time.Minute // until a path is searched again: it may have changed
)

// An mtuSearch finds the largest datagram that the path carries.
type mtuSearch struct {
	at      int           // index of the size in use
	largest int           // bytes that the caller allows
	tries   int           // of the next size
	flying  bool          // a probe is out
	dueAt   time.Duration // when the next probe may leave
}

// size is the length of datagrams that are known to pass.
func (m *mtuSearch) size() int { return datagramSizes[m.at] }

// due returns the size to probe at now; 0: none.
func (m *mtuSearch) due(now time.Duration) int {
	if m.flying || m.at+1 >= len(datagramSizes) || datagramSizes[m.at+1] > m.largest || now < m.dueAt {
		return 0
	}
	return datagramSizes[m.at+1]
}

func (m *mtuSearch) sent() { m.flying = true }

// acked notes that the probe has arrived.
func (m *mtuSearch) acked(size int) {
	m.flying = false
	if m.at+1 < len(datagramSizes) && datagramSizes[m.at+1] == size {
		m.at++
		m.tries = 0
	}
}

// lost notes that the probe was lost.
func (m *mtuSearch) lost(now time.Duration) {
	m.flying = false
	if m.tries++; m.tries >= probeTries {
		m.tries, m.dueAt = 0, now+searchAgain
	}
}

// blackHole returns to the smallest size after probes for lost packets have stayed without an answer.
func (m *mtuSearch) blackHole(now time.Duration) {
	if m.at > 0 {
		m.at, m.tries, m.dueAt = 0, 0, now+time.Minute
	}
}

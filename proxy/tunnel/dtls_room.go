package tunnel

import (
	"errors"

	"github.com/gradproxy/gradproxy/proxy/tunnel/datagram"
)

// The memory of records over datagrams: records that have come and wait for earlier ones, and records that have left
// and have not arrived. All Links with one site share it in each direction, since the other site says how many Links
// there are.
const (
	// datagramWindow is how many bytes of records may be under way on one Link in one direction: 1 Gbit/s over 250 ms.
	// They take memory only where records are lost and later ones wait for them.
	datagramWindow = 32 << 20
	smallestWindow = datagram.MaxRecord // of each Link, however many there are
	maxLinks       = 2 * maxSlots       // with one site, leaving ones included

	// linkNotes is the memory for a Link's notes about packets and records, and for its buffers.
	linkNotes = 3 << 20
)

// roomOf returns the memory for records of the Links with one site in one direction, beside the least of each. memory
// is Config.Memory.
func roomOf(memory int64) int { return int(min(max(memory/8, 2*smallestWindow), 2*datagramWindow)) }

// DatagramMemory returns how many bytes the carriers over datagrams take at most beside Config.Memory: records of each
// peer, which depend on that, and the rest, for each peer and for handshakes.
func DatagramMemory(memory int64, peers int) (records, more int64) {
	// A window's bytes are held when they come and when they leave, an eighth of these more where memory is longer than
	// its record, half a window in notes on their pieces, a quarter in datagrams.
	of := func(window int) int64 { return int64(window) * 3 }
	return int64(peers) * of(roomOf(memory)), int64(peers)*maxLinks*(of(smallestWindow)+linkNotes) + maxHalfOpenDatagrams*handshakeMemory
}

var errManyLinks = errors.New("the site has too many carriers already")

// A recordRoom is the memory that the Links with one site share.
type recordRoom struct {
	size  int
	mu    innermostLock
	used  int // promised to Links
	links int
}

// enter returns the window of a new Link, which keeps it until leave.
func (r *recordRoom) enter() (window int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.links == maxLinks {
		return 0, errManyLinks
	}
	r.links++
	window = min(datagramWindow, max((r.size-r.used)/2, smallestWindow))
	r.used += window
	return window, nil
}

// more returns the window of a Link that can use a larger one than it has.
func (r *recordRoom) more(has int) (window int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	window = min(datagramWindow, has+max(r.size-r.used, 0))
	r.used += window - has
	return window
}

// leave gives back the window of a Link.
func (r *recordRoom) leave(window int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.links--
	r.used -= window
}

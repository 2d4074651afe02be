package tunnel

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

// Bounds of one handshake over datagrams, in bytes and in pieces of messages: pion keeps each piece, and counts neither
// empty pieces nor its own notes on them. A flight with long chains of certificates has 5 KiB in 6 pieces, and leaves
// at most 16 times within handshakeWithin.
const (
	handshakeBytes  = 96 << 10
	handshakePieces = 256
	handshakeMemory = 384 << 10 // of one handshake, all in all
	earlyBytes      = 40 << 10  // of records with data that overtake the end of the handshake: a first window of the other end's
	maxEarly        = 64        // of these records
	// maxControl is how many bytes of a record are kept for pion while it is opened to see its type: alerts and the end
	// of a handshake are shorter.
	maxControl = 128
	// maxHalfOpenDatagrams is how many handshakes over datagrams may be under way: they take memory, and handshakes
	// over TCP take descriptors.
	maxHalfOpenDatagrams = 256
)

var errLongHandshake = errors.New("more bytes than a handshake takes")

// A recordGate is the connection of datagrams below pion/dtls. Records with data never reach pion: the gate opens them,
// and hands them on itself. Nor do others that may not pass: pion goes on to take records in clear once a connection is
// up, so that a host that writes its addresses into a datagram could end it by an alert, or fill the buffer of
// handshake messages. The gate lets them pass no longer than the handshake takes, and bounds that. RFC 6347, 4.1.2.7:
// invalid records are discarded.
type recordGate struct {
	*udp.Conn
	form    recordForm   // of the records that come
	secrets *dtlsSecrets // of the connection; nil: openBy brings the opener
	secured atomic.Bool  // the handshake is over here: nothing in clear passes. The other end may repeat its last flight, whose end is under the key
	settled atomic.Bool  // and there
	bytes   int          // of the handshake
	pieces  int

	mu         gateLock
	open       *opener // nil: the handshake goes on
	take       func([]packetCame)
	opening    openingBatch // records with data that came, not yet opened,
	marks      []udp.Mark   // and the mark of each
	came       []packetCame // opened before them, and not yet handed on
	early      []packetCame // records that came before open was there, in memory of their own
	earlyBytes int
}

// A packetCame is the content of a record with data, and the mark with which it came.
type packetCame struct {
	data []byte
	mark udp.Mark
}

// openBy has records with data be opened from now on, and handed to take, in the order in which they came. take must
// not retain them.
func (g *recordGate) openBy(o *opener, take func([]packetCame)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	early := g.early
	g.open, g.take, g.early = o, take, nil
	if g.Conn != nil {
		g.Conn.SetFilter(o.worth)
	}
	for _, r := range early {
		g.openRecord(r.data, r.mark)
	}
	g.handOn()
}

// Read returns the records for pion of the next datagram that has some.
func (g *recordGate) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		d, mark, more, e := g.Conn.Next()
		if e != nil {
			return 0, e
		}
		g.mu.Lock()
		n, err = g.admit(p, d, mark)
		if !more || n > 0 || err != nil {
			g.handOn()
		}
		g.mu.Unlock()
	}
	return n, err
}

// SetReadDeadline has no effect once the handshake is over here: reads last until Close. pion's Close disturbs its
// reader by a deadline before it writes the alert that tells the other end, and a reader that is disturbed closes the
// connection.
func (g *recordGate) SetReadDeadline(t time.Time) error {
	if g.secured.Load() {
		return nil
	}
	return g.Conn.SetReadDeadline(t)
}

// handOn opens the records that came, and hands all packets on. The lock is held.
func (g *recordGate) handOn() {
	g.openWaiting(g.handOnOpened)
	g.handOnOpened()
}

// openWaiting opens the records that came, and calls done several times meanwhile. The lock is held.
func (g *recordGate) openWaiting(done func()) {
	stays := false
	g.opening.each(g.open, func(i int, kind byte, content []byte, newest bool) {
		stays = stays || newest
		if kind == dtlsData {
			g.came = append(g.came, packetCame{content, g.marks[i]})
		}
	}, done)
	g.marks = g.marks[:0]
	if stays && g.Conn != nil { // no record that waits has come from elsewhere
		g.Conn.Stays()
	}
}

// handOnOpened hands the opened packets on. The lock is held.
func (g *recordGate) handOnOpened() {
	if len(g.came) > 0 {
		g.take(g.came)
		g.came = g.came[:0]
	}
}

// admit takes a datagram apart. Records that may pass go to p, and it returns their length. The lock is held.
func (g *recordGate) admit(p, b []byte, mark udp.Mark) (n int, err error) {
	settled := g.settled.Load()
	handshake := len(b) // bytes of records without data, which anybody who forges the other end's address can send: they have a bound of their own
	for len(b) >= dtlsHeader {
		length := g.form.length(b)
		if length > len(b) {
			break
		}
		r := b[:length]
		b = b[length:]
		keyed := r[epochAt] != 0 || r[epochAt+1] != 0
		switch kind := r[0]; {
		case keyed && !g.form.has(r), !keyed && alwaysKeyed(kind):
			r = nil
		case alwaysKeyed(kind):
			r = g.underKey(r, mark)
		case settled && g.open != nil && !g.open.authentic(r): // pion takes longer to find that out
			continue
		}
		if r == nil {
			handshake -= length
			continue
		}
		if !g.passes(r[0], keyed) || len(r) > len(p)-n {
			continue
		}
		if !settled && r[0] == dtlsHandshake {
			if g.pieces += pieces(r[dtlsHeader:], keyed); g.pieces > handshakePieces {
				return 0, fmt.Errorf("%w: over %d pieces", errLongHandshake, handshakePieces)
			}
		}
		n += copy(p[n:], r)
	}
	if !settled {
		if g.bytes += handshake; g.bytes > handshakeBytes {
			return 0, fmt.Errorf("%w: over %d", errLongHandshake, handshakeBytes)
		}
	}
	return n, nil
}

// alwaysKeyed reports whether no record of a type is in clear.
func alwaysKeyed(kind byte) bool {
	return kind == dtlsData || kind == dtlsRouting || kind == dtlsWithID
}

// underKey takes a record under the key that may have data, and returns the record that pion reads instead, if it has
// none. The lock is held.
func (g *recordGate) underKey(r []byte, mark udp.Mark) (forPion []byte) {
	if g.open == nil {
		return g.beforeOpen(r, mark)
	}
	if g.mayWait(r) {
		g.marks = append(g.marks, mark)
		if g.opening.add(g.open, r); g.opening.full() {
			g.handOn()
		}
		return nil
	}
	g.openWaiting(func() {})
	var control []byte
	if r[0] == dtlsWithID && len(r) <= maxControl { // its type is encrypted, and pion opens it by itself
		control = append(make([]byte, 0, maxControl), r...)
	}
	kind, newest := g.openRecord(r, mark)
	if kind != 0 && g.Conn != nil {
		g.Conn.Arrived(newest)
	}
	if control != nil && (kind == dtlsAlert || kind == dtlsHandshake) {
		return g.form.plain(control, kind)
	}
	return nil
}

// mayWait reports whether a record under the key may wait to be opened together with others: it can have nothing but
// data, and nothing depends on it.
func (g *recordGate) mayWait(r []byte) bool {
	data := r[0] == dtlsData || r[0] == dtlsWithID && len(r) > maxControl
	return data && g.settled.Load() && (g.Conn == nil || !g.Conn.Strays())
}

// beforeOpen is underKey before openBy. Data that comes so early waits.
func (g *recordGate) beforeOpen(r []byte, mark udp.Mark) (forPion []byte) {
	kind := r[0]
	if kind == dtlsWithID {
		keys := g.secrets.keys.Load()
		if keys == nil { // so the record ends the handshake: the other end has no data before it has heard of the end here
			return g.form.plain(r, dtlsHandshake)
		}
		var err error
		if kind, _, err = keys.open.record(append([]byte(nil), r...)); err != nil {
			return nil
		}
		if kind == dtlsHandshake || kind == dtlsAlert {
			return g.form.plain(r, kind)
		}
	}
	if kind == dtlsData && len(g.early) < maxEarly && g.earlyBytes+len(r) <= earlyBytes {
		g.early = append(g.early, packetCame{append([]byte(nil), r...), mark})
		g.earlyBytes += len(r)
	}
	return nil
}

// openRecord opens a record under the key, once, and returns its type, 0 if it is not authentic. Data is handed on. The
// lock is held.
func (g *recordGate) openRecord(r []byte, mark udp.Mark) (kind byte, newest bool) {
	kind, content, newest, err := g.open.fresh(r, nil)
	if err != nil {
		return 0, false
	}
	switch kind {
	case dtlsData:
		g.settled.Store(true) // the other end has data to send: the handshake is over there
		g.came = append(g.came, packetCame{content, mark})
	case dtlsRouting:
		if g.Conn != nil && len(content) == len(udp.RoutingMessage{}) {
			g.Conn.Route(udp.RoutingMessage(content))
		}
	}
	return kind, newest
}

// passes reports whether a record of a type may pass to pion now. keyed: it is under a key.
func (g *recordGate) passes(kind byte, keyed bool) bool {
	switch {
	case g.settled.Load():
		return keyed && kind == dtlsAlert
	case g.secured.Load():
		return keyed && kind != dtlsCipherSpec
	}
	return true
}

// pieces returns how many pieces of handshake messages a record has. Pieces under a key cannot be seen, and are few.
func pieces(b []byte, keyed bool) (n int) {
	if keyed {
		return 1
	}
	for len(b) >= messageHeader {
		n++
		length := messageHeader + int(b[1])<<16 + int(b[2])<<8 + int(b[3])
		b = b[min(length, len(b)):]
	}
	return n
}

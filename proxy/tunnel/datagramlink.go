package tunnel

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/datagram"
	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

const (
	// datagramUnsent is how many bytes may wait in an Engine: the bytes behind them wait in the tunnel, where small
	// messages overtake them.
	datagramUnsent = 128 << 10
	// datagramJoin is the maximum of bytes of records that the Engine is given as one message. They fit a packet, so
	// that no record waits for another packet.
	datagramJoin = 1200
)

// A packetWriter encrypts and authenticates packets, and sends them.
type packetWriter interface {
	Room() []byte                     // where the next packet is to be written, empty, with room for a datagram; nil: Flush must come first
	Put(packet []byte, mark udp.Mark) // has a packet that was written at the last Room leave at Flush, with a mark
	Flush() error
	Overhead() int // bytes that encryption adds to a packet
}

// A mover is the connection below. It may go on from another address.
type mover interface {
	SetAlone(bool)
	SetRoom(bytes int)
	Network() (sent, received uint64)
	Heard()     // a packet has come
	Doubt()     // nothing comes back
	Lost() bool // the other host does not know the connection
}

// The dialing side looks for another way when packets have been under way, and nothing has come back, for doubtAfter or
// three times LinkState.Patience, whichever is longer. An end that only receives would not notice that a NAT has
// forgotten it: when data came and then nothing for idleAfter, or four times Patience, it sends one packet that asks
// for an acknowledgement, at most every idleEvery.
const (
	doubtAfter = 500 * time.Millisecond
	idleAfter  = 1 * time.Second
	idleEvery  = 2 * time.Second
)

// A datagramLink is a Link over encrypted and authenticated packets, some of them lost, by a datagram.Engine.
type datagramLink struct {
	net.Conn // the handshake's: it closes, and says when the other end has. Data comes by take
	writer   packetWriter
	mover    mover
	packets  atomic.Uint64 // sent and received
	received atomic.Uint64 // bytes of packets, which are authentic: anybody can send other datagrams
	heard    atomic.Int64  // when a packet last came, by now

	mu       linkLock
	engine   *datagram.Engine
	room     *recordRoom
	window   int // of the room's
	start    time.Time
	readable sync.Cond // a record is there, or the end
	writable sync.Cond // little is unsent, or all has arrived, or the end
	err      error     // the Link has ended
	deadline time.Time // of Read and Flush
	alarm    *time.Timer
	record   []byte        // that Read returns in parts
	left     []byte        // of it
	checked  time.Duration // when it was last looked whether the other end is there
	waits    time.Duration // since when packets have waited for an answer; 0: none do

	kick    chan struct{} // the sender has something to do
	once    sync.Once
	closed  chan struct{}
	pending atomic.Int64 // bytes written since the last Flush

	// Of the sender's goroutine.
	heavy      uint64        // Engine.Heavy, as last seen
	alone      bool          // packets leave one by one,
	aloneFor   time.Duration // for so long,
	aloneUntil time.Duration // until then
}

// Where very many packets are lost, they leave one by one for minAlone, and twice as long each further time, maxAlone
// at most: see udp.Conn.SetAlone.
const (
	minAlone = time.Minute
	maxAlone = time.Hour
)

// part has packets leave one by one where very many are lost. heavy is Engine.Heavy.
func (l *datagramLink) part(heavy uint64) {
	now := l.now()
	switch {
	case heavy != l.heavy:
		l.heavy = heavy
		if l.alone {
			return
		}
		l.aloneFor = min(max(2*l.aloneFor, minAlone), maxAlone)
		l.alone, l.aloneUntil = true, now+l.aloneFor
	case l.alone && now >= l.aloneUntil:
		l.alone = false
	default:
		return
	}
	l.mover.SetAlone(l.alone)
}

// newDatagramLink returns a Link whose packets leave by w, and come by take. c and m are the connections above and
// below that encryption. room is that of the Links with the same site.
func newDatagramLink(c net.Conn, m mover, w packetWriter, room *recordRoom) (*datagramLink, error) {
	window, err := room.enter()
	if err != nil {
		return nil, err
	}
	l := &datagramLink{Conn: c, writer: w, mover: m, start: time.Now().Add(-time.Second), kick: make(chan struct{}, 1), closed: make(chan struct{}),
		room: room, window: window}
	l.engine = datagram.New(datagram.Config{Overhead: w.Overhead(), MaxDatagram: dtlsDatagramBytes, Window: l.window,
		Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Make: newRecord, Free: freeRecord})
	m.SetRoom(l.window / 4)
	l.readable.L, l.writable.L = &l.mu, &l.mu
	l.heard.Store(int64(l.now()))
	go l.watch()
	go l.send()
	return l, nil
}

func (l *datagramLink) now() time.Duration { return time.Since(l.start) }

// wake has the sender look for work.
func (l *datagramLink) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// watch ends the Link when the other end does.
func (l *datagramLink) watch() {
	_, err := l.Conn.Read(make([]byte, 1)) // it returns no data, since none gets there
	if err == nil {
		err = io.EOF
	}
	l.end(err)
}

// take gives the engine packets that have come together. It does not retain them.
func (l *datagramLink) take(packets []packetCame) {
	now, bytes := l.now(), 0
	for _, p := range packets {
		bytes += len(p.data)
	}
	l.packets.Add(uint64(len(packets)))
	l.received.Add(uint64(bytes))
	l.heard.Store(int64(now))
	l.mover.Heard()
	l.mu.Lock()
	err := l.err
	for _, p := range packets {
		if err == nil {
			err = l.engine.Handle(now, p.data, datagram.Mark(p.mark))
		}
	}
	l.readable.Broadcast()
	l.announce()
	l.mu.Unlock()
	if err != nil {
		l.end(err)
		return
	}
	l.wake()
}

// announce wakes writers that wait. The lock is held.
func (l *datagramLink) announce() {
	if l.engine.Unsent() < datagramUnsent {
		l.writable.Broadcast()
	}
}

// send sends the packets that the engine makes.
func (l *datagramLink) send() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		again, err := l.burst()
		if err != nil {
			l.end(err)
			return
		}
		if again < 0 { // at once
			continue
		}
		wait := l.look()
		if again > 0 {
			wait = min(wait, max(again-l.now(), 0))
		}
		timer.Reset(wait)
		select {
		case <-l.kick:
		case <-timer.C:
		case <-l.closed:
			return
		}
	}
}

// look judges the silence, and returns how long it need not be judged again.
func (l *datagramLink) look() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, heard := l.now(), time.Duration(l.heard.Load())
	s := l.engine.State()
	if s.InFlight > 0 {
		if l.waits == 0 {
			l.waits = now
		}
		due := max(heard, l.waits) + max(doubtAfter, 3*s.Patience)
		if now < due {
			return due - now
		}
		l.mover.Doubt()
		return doubtAfter
	}
	l.waits = 0
	if at := l.engine.HeardData(); at > l.checked {
		due := max(at+max(idleAfter, 4*s.Patience), l.checked+idleEvery)
		if now < due {
			return due - now
		}
		l.checked = now
		l.engine.Check()
		return 0
	}
	return time.Hour
}

// moved notes that packets take another path from now on.
func (l *datagramLink) moved(far bool) {
	l.mu.Lock()
	if l.err == nil {
		l.engine.Moved(l.now(), far)
	}
	l.mu.Unlock()
	l.wake()
}

// burst sends the packets that may leave now. again is when further ones may; 0: when something changes; below 0: now.
func (l *datagramLink) burst() (again time.Duration, err error) {
	n := uint64(0)
	l.mu.Lock()
	for now := l.now(); l.err == nil; n++ {
		room := l.writer.Room()
		if room == nil {
			again = -1
			break
		}
		packet, at := l.engine.Next(now, room)
		if packet == nil {
			again = at
			break
		}
		mark := datagram.Unmarkable
		if l.engine.Marks() {
			mark = datagram.ECT0
		}
		l.writer.Put(packet, udp.Mark(mark))
	}
	heavy := l.engine.Heavy()
	l.announce()
	l.mu.Unlock()
	l.part(heavy)
	l.packets.Add(n)
	return again, l.writer.Flush()
}

// end ends the Link: Read and Flush fail with err.
func (l *datagramLink) end(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
		l.room.leave(l.window)
	}
	l.readable.Broadcast()
	l.writable.Broadcast()
	l.mu.Unlock()
	l.once.Do(func() {
		close(l.closed)
		go l.Conn.Close() // it sends an alert, and waits for its own goroutines; the caller may hold locks
	})
}

// Close ends the Link at once, and drops the bytes that have not left.
func (l *datagramLink) Close() error {
	l.end(net.ErrClosed)
	return nil
}

func (l *datagramLink) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.left) == 0 {
		if l.record = l.engine.Take(); l.record != nil {
			l.left = l.record
			if l.engine.MayTell() {
				l.widen()
				l.wake()
			}
			break
		}
		switch {
		case l.engine.Ended():
			return 0, io.EOF
		case l.err != nil:
			return 0, l.err
		case l.late():
			return 0, os.ErrDeadlineExceeded
		}
		l.readable.Wait()
	}
	n := copy(p, l.left)
	if l.left = l.left[n:]; len(l.left) == 0 {
		freeRecord(l.record)
		l.left, l.record = nil, nil
	}
	return n, nil
}

// widen takes more of the room, since the window is used. The lock is held.
func (l *datagramLink) widen() {
	if l.err != nil || l.window == datagramWindow {
		return
	}
	if w := l.room.more(l.window); w > l.window {
		l.window = w
		l.engine.Widen(w)
		l.mover.SetRoom(w / 4)
	}
}

// late reports whether the deadline has passed. The lock is held.
func (l *datagramLink) late() bool { return !l.deadline.IsZero() && !time.Now().Before(l.deadline) }

func (l *datagramLink) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = t
	if l.alarm != nil {
		l.alarm.Stop()
		l.alarm = nil
	}
	if !t.IsZero() {
		l.alarm = time.AfterFunc(time.Until(t), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.readable.Broadcast()
			l.writable.Broadcast()
		})
	}
	return nil
}

// Write queues records. It does not wait: Flush does.
func (l *datagramLink) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0, l.err
	}
	n := len(p)
	for len(p) > 0 {
		end, order := message(p)
		record := newRecord(end)
		copy(record, p)
		l.engine.Queue(record, order)
		p = p[end:]
	}
	l.pending.Add(int64(n))
	return n, nil
}

// message returns the length of the first of the messages in which the Engine is given the records of b, and its order.
// Several records share a message if all of them may overtake others.
func message(b []byte) (n int, order datagram.Order) {
	n, order = measure(b)
	for order == datagram.Free && n < len(b) {
		more, next := measure(b[n:])
		if next != order || n+more > datagramJoin {
			break
		}
		n += more
	}
	return n, order
}

// measure returns how long the record is that b begins with, and its order: the contract of Link says which records
// may overtake which. This side has made the record.
func measure(b []byte) (n int, order datagram.Order) {
	if b[0] >= shortMark {
		return shortRecord(b), datagram.Free
	}
	word := binary.BigEndian.Uint64(b[4:])
	n = headerLen + int(binary.BigEndian.Uint32(b))
	switch k := kind(word >> 56); {
	case k == kindHello || k == kindReady || k == kindLeave:
		return n, datagram.Fence
	case word&maxStream == 0:
		return n, datagram.Last
	}
	return n, datagram.Free
}

func (l *datagramLink) Pending() int { return int(l.pending.Load()) }

// Flush has the pending records leave, and waits until little is left of them.
func (l *datagramLink) Flush() error {
	l.wake()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && l.engine.Unsent() >= datagramUnsent && !l.late() {
		l.writable.Wait()
	}
	l.pending.Store(0)
	if l.err == nil && l.late() {
		return os.ErrDeadlineExceeded
	}
	return l.err
}

func (l *datagramLink) CanTry() bool { return true }

func (l *datagramLink) TryFlush() (full bool, err error) {
	l.wake()
	l.mu.Lock()
	defer l.mu.Unlock()
	if full = l.engine.Unsent() >= datagramUnsent; !full {
		l.pending.Store(0)
	}
	return full, l.err
}

// Idle does nothing: the engine sees by itself when nothing is left to send.
func (l *datagramLink) Idle() {}

// CloseWrite says that nothing follows, and waits until all has arrived.
func (l *datagramLink) CloseWrite() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = time.Time{}
	if l.err == nil {
		l.engine.Queue(append(newRecord(1)[:0], 0), datagram.End)
	}
	l.wake()
	until := time.Now().Add(handshakeWithin)
	alarm := time.AfterFunc(handshakeWithin, func() { l.mu.Lock(); l.writable.Broadcast(); l.mu.Unlock() })
	defer alarm.Stop()
	for l.err == nil && l.engine.Unacknowledged() {
		if !time.Now().Before(until) {
			return os.ErrDeadlineExceeded
		}
		l.writable.Wait()
	}
	return l.err
}

func (l *datagramLink) State() LinkState {
	l.mu.Lock()
	e := l.engine.State()
	l.mu.Unlock()
	lost := fraction(e.Lost, e.Lost+e.Arrived)
	sent, received := l.mover.Network()
	return LinkState{Network: Traffic{sent, received}, Loss: lost, RTT: e.RTT, Backlog: uint64(max(e.InFlight, 0)), Waits: e.InFlight > 0, Silence: max(l.now()-time.Duration(l.heard.Load()), 1), Patience: e.Patience,
		Received: l.received.Load(), Lost: l.mover.Lost(), Congestion: "bbr", Worn: l.packets.Load() >= rotateRecords}
}

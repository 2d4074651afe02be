package quota

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/tensor"
)

// The bounds of parsers' costs. A stream whose parser costs more travels verbatim from there on, in both directions:
// bytes can be made to cost a parser a hundred times as much as a tensor's do, and neither a peer nor a job may have a
// proxy's processor and memory so.
const (
	// heldFree is how many bytes a parser may hold beside it, as nearly all do.
	heldFree = 8 << 10
	// heldEvery is how many bytes a parser is given between two looks at its size.
	heldEvery = 16 << 10

	// timePerByte is the time of a parser that every byte pays for. A tensor's bytes take 0.1 to 2 ns.
	timePerByte = 8 * time.Nanosecond
	// timeFree is the time that each stream may take beyond that, however much the others of its peer take.
	timeFree = 2 * time.Millisecond
	// Further time is from the allowance of the stream's peer: timeBurst at once, and a part of each core, timeShare,
	// all the time.
	timeBurst = time.Second
	timeShare = 10
	// Pieces of timedAlways bytes are timed, and one in timedEvery of shorter ones.
	timedAlways = 4 << 10
	timedEvery  = 16
	// The thread's clock times so many long pieces after one that took too long by the wall clock.
	timedClosely = 64
)

// errTime and errMemory are why a stream is not understood any longer.
var (
	errTime   = errors.New("proxy: its parser takes more than its share of the processor")
	errMemory = errors.New("proxy: its parser holds more than its share of memory; raise memory if this is a job's own traffic")
)

// Metrics counts the costs of parsers.
type Metrics interface {
	// ParserSpent counts a connection whose parsers took more than their share of a resource, "time" or "memory".
	ParserSpent(peer, of string)
}

// metering holds the parts that the meters of a connection's two parsers share.
type metering struct {
	log     *slog.Logger
	metrics Metrics
	peer    string
	time    *account // the peer's
	memory  *memory.Budget
	now     func() time.Duration // a clock that only goes forward
	spent   atomic.Pointer[error]
}

// A meter is a parser that ends when it, or the one of the other direction, costs too much.
type meter struct {
	parser.Parser // nil once it has ended
	*metering
	watch *stopwatch
	share memory.Share
	taken int           // bytes of the budget
	bytes int           // given since the last look
	begun bool          // a short piece was given
	close int           // long pieces that the thread's clock still times
	over  time.Duration // time beyond that of the bytes; the time of up to heldEvery bytes may be saved
	used  time.Duration // of over, paid for
}

// Next implements parser.Parser.
func (m *meter) Next(b []byte) (parser.Segment, error) {
	if err := m.spent.Load(); err != nil {
		m.Parser = nil
		return parser.Segment{}, *err
	}
	seg, err := m.timed(b)
	if err != nil {
		return seg, err
	}
	if m.bytes += seg.Len; m.bytes >= heldEvery {
		m.bytes = 0
		if !m.holds(parser.Held(m.Parser)) {
			return parser.Segment{}, m.end(errMemory, "memory")
		}
	}
	return seg, nil
}

// timed has the parser classify b, and pays for the processor's time, in which a busy machine's other programs have no
// part. Its clock takes longer to read than a header to parse: of short pieces one in timedEvery is timed, by chance,
// for all. A long piece is timed by the wall clock, which costs little and shows at least the processor's time, until
// that is so much that the stream would pay: then the next timedClosely long pieces are timed by the processor's clock,
// and pay. Of the others one in timedEvery is, by chance, and pays for all, so that a stream which costs much now and
// then pays too.
func (m *meter) timed(b []byte) (parser.Segment, error) {
	weight := time.Duration(1)
	if len(b) < timedAlways {
		first := !m.begun // the parsers are made then, which must not count timedEvery times
		m.begun = true
		if weight = timedEvery; first || rand.Uint32N(timedEvery) != 0 {
			return m.Parser.Next(b)
		}
	}
	byWall := len(b) >= timedAlways && m.close == 0
	if byWall && rand.Uint32N(timedEvery) == 0 {
		byWall, weight = false, timedEvery
	}
	seg, took, err := m.measured(b, byWall)
	if err != nil {
		return seg, err
	}
	if byWall && m.over+took-time.Duration(seg.Len)*timePerByte > timeFree/8 {
		m.close = timedClosely
		return seg, nil
	}
	if len(b) >= timedAlways && m.close > 0 && !byWall {
		m.close--
	}
	m.over = max(m.over+weight*(took-time.Duration(seg.Len)*timePerByte), -heldEvery*timePerByte)
	if m.over <= timeFree/8 {
		return seg, nil
	}
	d := m.over
	m.used, m.over, m.close = m.used+d, 0, timedClosely
	if !m.time.spend(d.Seconds(), processStart.Add(m.now())) && m.used > timeFree {
		return parser.Segment{}, m.end(errTime, "time")
	}
	return seg, nil
}

// measured has the parser classify b, and returns the time that it took: by the wall clock, or of this thread and of
// the process that answers questions.
func (m *meter) measured(b []byte, byWall bool) (seg parser.Segment, took time.Duration, err error) {
	if byWall {
		began := m.now()
		seg, err = m.Parser.Next(b)
		return seg, m.now() - began, err
	}
	m.watch.sum = 0
	m.watch.start()
	seg, err = m.Parser.Next(b)
	m.watch.stop()
	return seg, m.watch.sum, err
}

// holds pays for the n bytes that the parser holds, and reports whether it could.
func (m *meter) holds(n int) bool {
	n = max(n-heldFree, 0)
	switch {
	case n > m.taken:
		if !m.memory.Take(&m.share, n-m.taken) {
			return false
		}
	case n < m.taken:
		m.memory.Give(&m.share, m.taken-n)
	}
	m.taken = n
	return true
}

// end ends both parsers of the connection: they share their state.
func (m *meter) end(why error, of string) error {
	err := fmt.Errorf("%w: %w", why, parser.ErrForeign) // no log needs to tell it again
	m.Parser = nil
	if m.spent.CompareAndSwap(nil, &err) {
		m.metrics.ParserSpent(m.peer, of)
		m.log.Warn("a connection costs its parser too much, and travels verbatim", "reason", "parser "+of, "err", why)
	}
	return *m.spent.Load()
}

// release gives back the memory that the parser has paid for. It must not be used any more.
func (m *meter) release() { m.holds(0) }

// Label implements parser.Labeler.
func (m *meter) Label(t tensor.Tensor) parser.Label {
	if m.Parser == nil {
		return parser.Label{}
	}
	return parser.LabelOf(m.Parser, t)
}

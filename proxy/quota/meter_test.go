package quota

import (
	"crypto/sha256"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/internal/allowance"
	"github.com/gradproxy/gradproxy/proxy/memory"
)

// A hog is a parser that takes time and memory for each byte.
type hog struct {
	clock *time.Duration
	takes time.Duration // for a byte
	keeps int           // of memory for a byte
	holds int
}

func (h *hog) Next(b []byte) (parser.Segment, error) {
	*h.clock += time.Duration(len(b)) * h.takes
	h.holds += len(b) * h.keeps
	return parser.Segment{Len: len(b)}, nil
}

func (h *hog) Held() int { return h.holds }

type noMetrics struct{}

func (noMetrics) ParserSpent(string, string) {}

// meters returns the meters of a connection's two parsers, whose clocks are *clock.
func meters(q *Quota, b *memory.Budget, clock *time.Duration, own, other parser.Parser) (a, z *meter) {
	now := func() time.Duration { return *clock }
	costs := &metering{metrics: noMetrics{}, log: slog.New(slog.DiscardHandler), time: &q.parserTime, memory: b, now: now}
	return &meter{Parser: own, metering: costs, watch: &stopwatch{worked: now}, share: memory.Share{Peer: &q.parserMemory}}, &meter{Parser: other, metering: costs, watch: &stopwatch{worked: now}, share: memory.Share{Peer: &q.parserMemory}}
}

func newQuota() *Quota {
	return &Quota{parserTime: account{allowance: allowance.New(2./timeShare, timeBurst.Seconds(), processStart)}}
}

// feed gives a parser so many pieces of 48 bytes, and returns how many it took.
func feed(p parser.Parser, pieces int) (took int, err error) {
	b := make([]byte, 48)
	for took < pieces {
		if _, err := p.Next(b); err != nil {
			return took, err
		}
		took++
	}
	return took, nil
}

// Streams whose bytes are made to cost a parser much get no more than their peer's allowance, however many there are;
// another peer's streams, and cheap ones of the same peer, go on.
func TestParserTimeIsBounded(t *testing.T) {
	var clock time.Duration
	b, mallory, honest := memory.NewBudget(64<<20), newQuota(), newQuota()
	const streams, each = 200, 100 << 10 // of bytes
	var cheap parser.Parser
	cheap, _ = meters(mallory, b, &clock, &hog{clock: &clock, takes: time.Nanosecond}, &hog{clock: &clock})
	spent, ended := time.Duration(0), 0
	for range streams {
		m, other := meters(mallory, b, &clock, &hog{clock: &clock, takes: 570 * time.Nanosecond}, &hog{clock: &clock})
		begin := clock
		if _, err := feed(m, each/48); err != nil {
			ended++
			if !errors.Is(err, errTime) || !errors.Is(err, parser.ErrForeign) {
				t.Fatal(err)
			}
			if _, err := other.Next([]byte{1}); !errors.Is(err, errTime) {
				t.Fatalf("the other direction goes on: %v", err)
			}
		}
		spent += clock - begin
		if _, err := feed(cheap, 100); err != nil {
			t.Fatalf("a cheap stream was ended: %v", err)
		}
	}
	limit := timeBurst + streams*(timeFree+timeFree/8) + 2*clock/timeShare
	if spent > limit || ended < streams/2 {
		t.Errorf("parsers of %d streams took %v, %d were ended; want at most %v", streams, spent, ended, limit)
	}
	m, _ := meters(honest, b, &clock, &hog{clock: &clock, takes: 60 * time.Nanosecond}, &hog{clock: &clock})
	if _, err := feed(m, each/48); err != nil {
		t.Errorf("another peer's stream was ended: %v", err)
	}
}

// A stream of small messages, which costs more for a byte than tensors do, is never ended while it takes a small part
// of the time.
func TestParserTimeOfSmallMessages(t *testing.T) {
	var clock time.Duration
	m, _ := meters(newQuota(), memory.NewBudget(64<<20), &clock, &hog{clock: &clock, takes: 100 * time.Nanosecond}, &hog{clock: &clock})
	for i := range 1_000_000 { // a thousand a second, of 5 us each
		clock += time.Millisecond
		if _, err := feed(m, 1); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
}

// slowCalls take their time to answer, in which their thread has nothing to do.
type slowCalls struct{ parser.Calls }

func (slowCalls) Of(dst []parser.Call, _ uint32) ([]parser.Call, bool) {
	time.Sleep(5 * time.Millisecond)
	return dst, true
}

// noCalls answer at once.
type noCalls struct{ parser.Calls }

func (noCalls) Of(dst []parser.Call, _ uint32) ([]parser.Call, bool) { return dst, true }

// An asking parser asks for the calls at each piece.
type asking struct {
	hog
	calls parser.Calls
}

func (a *asking) Next(b []byte) (parser.Segment, error) {
	a.calls.Of(nil, 1)
	return a.hog.Next(b)
}

// A stream pays for each question about its calls, which another process answers, and not for calls that are known
// without one.
func TestQuestionsAreParserTime(t *testing.T) {
	var clock, wall time.Duration
	for _, takes := range []time.Duration{0, answerTime / 1000, answerTime, time.Second} {
		asked := &asking{hog{clock: &clock}, nil}
		m, _ := meters(newQuota(), memory.NewBudget(64<<20), &clock, asked, &hog{clock: &clock})
		asked.calls = &questions{Calls: noCalls{}, watch: m.watch, now: func() time.Duration {
			wall += takes // each question reads the clock twice
			return wall
		}}
		if _, err := feed(m, 100_000); errors.Is(err, errTime) != (takes >= answerTime) {
			t.Errorf("answers take %v, and the parser ended with %v", takes, err)
		}
	}
	watch := &stopwatch{worked: func() time.Duration { return 0 }}
	watch.start()
	(&questions{Calls: noCalls{}, watch: watch, now: func() time.Duration { wall += time.Second; return wall }}).Of(nil, 1)
	if watch.stop(); watch.sum != answerTime {
		t.Errorf("an answer that takes a second costs %v, want %v", watch.sum, answerTime)
	}
}

// A stream is not ended because answers about its calls, or the processor, come late, as on a busy machine: the
// thread's own time counts. It is ended where that is too much.
func TestWaitsAreNoParserTime(t *testing.T) {
	var clock time.Duration
	q := newQuota()
	q.parserTime.allowance = allowance.New(1e-9, 0, processStart) // it stays spent
	m, _ := meters(q, memory.NewBudget(64<<20), &clock, &asking{hog{clock: &clock}, slowCalls{}}, &hog{clock: &clock})
	m.watch.worked, m.now = threadTime, sinceStart
	long := make([]byte, timedAlways)
	for range 10 { // 50 ms, 25 times timeFree
		if _, err := m.Next(long); err != nil {
			t.Fatalf("waits count as the parser's time: %v", err)
		}
	}
	m.Parser = &spinning{}
	for range 10_000 {
		if _, err := m.Next(long); errors.Is(err, errTime) {
			return
		}
	}
	t.Error("a parser that works longer than it may was not ended")
}

// Long pieces of a cheap stream never read the thread's clock, which is a system call. One that takes long has the next
// ones read it, and a stream that is cheap by it goes back to the wall clock.
func TestLongPiecesReadTheWallClock(t *testing.T) {
	var wall time.Duration
	readings := 0
	parser := &hog{clock: &wall, takes: time.Nanosecond}
	m, _ := meters(newQuota(), memory.NewBudget(64<<20), &wall, parser, &hog{clock: &wall})
	m.watch.worked = func() time.Duration { readings++; return 0 }
	long := make([]byte, timedAlways)
	// give gives pieces, of which the thread's clock must time closely, and of the others few.
	give := func(pieces, closely int) {
		t.Helper()
		readings = 0
		for range pieces {
			if _, err := m.Next(long); err != nil {
				t.Fatal(err)
			}
		}
		if few := 2 * 3 * (pieces - closely) / timedEvery; readings < 2*closely || readings > 2*closely+few {
			t.Errorf("%d pieces read the thread's clock %d times, want %d to %d", pieces, readings, 2*closely, 2*closely+few)
		}
	}
	give(1000, 0)
	parser.takes = time.Microsecond // 4 ms for a piece: another program had the processor
	for m.close == 0 {
		if _, err := m.Next(long); err != nil {
			t.Fatal(err)
		}
	}
	parser.takes = time.Nanosecond
	give(1000, timedClosely)
	if m.used != 0 {
		t.Errorf("the stream has paid for %v of another program's time", m.used)
	}
}

// A stream of long pieces that costs much only now and then, just when the thread's clock has stopped timing closely,
// is ended too.
func TestLongPiecesThatCostNowAndThen(t *testing.T) {
	var clock time.Duration
	parser := &hog{clock: &clock}
	m, _ := meters(newQuota(), memory.NewBudget(64<<20), &clock, parser, &hog{clock: &clock})
	long := make([]byte, timedAlways)
	for i := range 100_000 { // the costly ones take 15 s
		parser.takes = 0
		if i%(timedClosely+1) == 0 {
			parser.takes = 10 * time.Millisecond / timedAlways
		}
		if _, err := m.Next(long); err != nil {
			if !errors.Is(err, errTime) {
				t.Error(err)
			}
			return
		}
	}
	t.Errorf("the stream goes on after %v of its parser's time", clock)
}

// A spinning parser takes some 100 microseconds of the processor for each piece.
type spinning struct{ sum [32]byte }

func (s *spinning) Next(b []byte) (parser.Segment, error) {
	for range 1000 {
		s.sum = sha256.Sum256(s.sum[:])
	}
	return parser.Segment{Len: len(b)}, nil
}

// Parsers hold no more than the budget together; the ones that hold most travel verbatim, and give everything back.
func TestParserMemoryIsBounded(t *testing.T) {
	var clock time.Duration
	const size = 16 << 20
	b, mallory, honest := memory.NewBudget(size), newQuota(), newQuota()
	var all []*meter
	ended := 0
	for range 100 {
		m, other := meters(mallory, b, &clock, &hog{clock: &clock, keeps: 3}, &hog{clock: &clock})
		if _, err := feed(m, (600<<10)/48); err != nil {
			if !errors.Is(err, errMemory) || m.Parser != nil {
				t.Fatalf("%v, or the parser is still held", err)
			}
			if _, err := other.Next([]byte{1}); err == nil || other.Parser != nil {
				t.Fatal("the other direction's parser, which shares the memory, goes on")
			}
			ended++
			m.release() // as the end of the connection does; its state is garbage already
		} else {
			all = append(all, m)
		}
		all = append(all, other)
	}
	if held := b.Used(); held > size*4/5 || ended < 80 {
		t.Errorf("100 connections hold %d bytes, and %d were ended; at most %d are theirs", held, ended, size*4/5)
	}
	m, _ := meters(honest, b, &clock, &hog{clock: &clock, keeps: 1}, &hog{clock: &clock})
	if _, err := feed(m, (600<<10)/48); err != nil {
		t.Errorf("another peer's parser found nothing left: %v", err)
	}
	for _, m := range append(all, m) {
		m.release()
	}
	if b.Used() != 0 {
		t.Errorf("%d bytes are paid for, and no parser is left", b.Used())
	}
}

// The cost of a meter for each call of a parser.
func BenchmarkMeter(b *testing.B) {
	m, _ := meters(newQuota(), memory.NewBudget(64<<20), new(time.Duration), parser.Verbatim{}, parser.Verbatim{})
	m.now, m.watch.worked = sinceStart, threadTime
	m.time.allowance = allowance.New(1000, 1000, processStart) // as if nothing else took time
	piece := make([]byte, 48)
	for b.Loop() {
		if _, err := m.Next(piece); err != nil {
			b.Fatal(err)
		}
	}
}

package datagram

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/codecs/codectest/cputime"
)

// hostile returns an engine whose other end the test plays, and the time at which all happens.
func hostile(window int) (*Engine, time.Duration) {
	return New(Config{Overhead: overhead, MaxDatagram: 1472, Window: window, Random: rand.New(rand.NewPCG(1, 1))}), time.Second
}

// wholeRecord returns a fragment that is a record of n bytes.
func wholeRecord(number uint64, order Order, n int) fragment {
	return fragment{record: number, order: order, total: n, data: make([]byte, n)}
}

// TestRecordsThatWaitCostNothing: records that wait for a missing one are not looked at again for each record that
// comes. Here 15,000 wait and 15,000 come, 12 bytes each: one look at all for each of them takes seconds.
func TestRecordsThatWaitCostNothing(t *testing.T) {
	for name, attack := range map[string]func(i, n uint64) fragment{
		"behind one that never comes": func(i, n uint64) fragment {
			if i < n {
				return wholeRecord(2+i, Last, 1)
			}
			return wholeRecord(2+i%n, Free, 1) // doubles
		},
		"in order below them": func(i, n uint64) fragment {
			if i < n/2 {
				return wholeRecord(n/2+1+i, Last, 1)
			}
			return wholeRecord(i-n/2+1, Free, 1)
		},
		"fences below them": func(i, n uint64) fragment {
			if i < n/2 {
				return wholeRecord(n/2+1+i, Last, 1)
			}
			return wholeRecord(i-n/2+1, Fence, 1)
		},
		"freed behind them": func(i, n uint64) fragment {
			if i < n/2 {
				return wholeRecord(2+i, Last, 1)
			}
			return wholeRecord(2+i, Free, 1)
		},
		"backwards": func(i, n uint64) fragment {
			if i < n-1 {
				return wholeRecord(n-i, Last, 1)
			}
			return wholeRecord(1, Last, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, now := hostile(32 << 20)
			const n = 15000
			used := processorTime(t)
			for i := range uint64(2 * n) {
				f := attack(i, n)
				if err := e.Handle(now, f.append(putNumber(nil, i)), Unmarkable); err != nil {
					if !errors.Is(err, ErrPacket) {
						t.Fatal(err)
					}
					break
				}
				for e.Take() != nil {
				}
			}
			if d := used(); d > time.Second {
				t.Errorf("30,000 records of a byte took %v", d)
			}
		})
	}
}

// processorTime returns a function that tells how much processor time the test has used since, whatever else the
// machine does.
func processorTime(t *testing.T) (used func() time.Duration) {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	began := cputime.Now()
	return func() time.Duration { return cputime.Now() - began }
}

// TestCrumbsTakeNoMoreThanRecords: what an engine notes about pieces of records takes at most half as much memory as
// the records, whatever their length, and pieces that come backwards cost little time.
func TestCrumbsTakeNoMoreThanRecords(t *testing.T) {
	for _, size := range []int{64, 1 << 10, 16 << 10, MaxRecord} {
		e, now := hostile(32 << 20)
		number, used := uint64(0), processorTime(t)
	records:
		for record := uint64(1); record <= uint64(min(8<<20/size, maxAhead-1)); record++ {
			for i := (size - 2) / 2; i > 0; i-- { // the first bytes never come
				before := len(e.recv.records)
				if before > 0 && e.recv.records[record] != nil && len(e.recv.records[record].have) >= min(maxGaps, size/crumb) {
					continue records // it would be the end of the connection: TestRecordInCrumbs
				}
				f := fragment1(record, size, 2*i, 1)
				if err := e.Handle(now, f.append(putNumber(nil, number)), Unmarkable); err != nil {
					t.Fatalf("records of %d bytes: %v", size, err)
				}
				number++
			}
		}
		ranges := 0
		for _, x := range e.recv.records {
			ranges += 16 * len(x.have)
		}
		if ranges > e.recv.held*5/8 {
			t.Errorf("records of %d bytes: %d bytes of ranges for %d bytes of records", size, ranges, e.recv.held)
		}
		if d := used(); d > 3*time.Second {
			t.Errorf("records of %d bytes: %d pieces took %v", size, number, d)
		}
		// And a peer that goes on with the pieces is ended.
		e, now = hostile(32 << 20)
		var err error
		for i := size/2 - 1; i > 0 && err == nil; i-- {
			f := fragment1(1, size, 2*i, 1)
			err = e.Handle(now, f.append(putNumber(nil, uint64(i))), Unmarkable)
		}
		if size > 64 && !errors.Is(err, ErrPacket) {
			t.Errorf("a record of %d bytes may have %d pieces with gaps: %v", size, size/2, err)
		}
	}
}

// TestSentRecordsAreBounded: a peer that allows any number of bytes, and acknowledges all packets of each record but
// one, has no more than the window kept for it.
func TestSentRecordsAreBounded(t *testing.T) {
	const window = 4 << 20
	e, now := hostile(window)
	e.Queue(make([]byte, 1000), Free)
	number := uint64(0)
	for range 1000 {
		for e.Unsent() < 128<<10 {
			e.Queue(make([]byte, 256<<10), Free)
		}
		var acked spans
		for tick := now + 10*time.Millisecond; now < tick; {
			packet, again := e.Next(now, nil)
			if packet == nil {
				if now = again; again == 0 || again > tick {
					now = tick
				}
				continue
			}
			for e.Unsent() < 128<<10 {
				e.Queue(make([]byte, 256<<10), Free)
			}
			first := false
			if p := e.rec.sent[len(e.rec.sent)-1]; p != nil {
				for _, q := range p.parts {
					first = first || q.offset == 0 && q.record.number > 1
				}
			}
			if n := e.rec.next() - 1; !first {
				acked.add(n, n+1)
			}
		}
		if len(acked) > 64 {
			acked = acked[len(acked)-64:]
		}
		if len(acked) > 0 {
			a := ack{limit: 1 << 60, ranges: acked}
			if err := e.Handle(now, a.appendAck(putNumber(nil, number), 4000), Unmarkable); err != nil {
				t.Fatal(err)
			}
			number++
		}
		kept := 0
		for _, r := range e.send.records[:e.send.begun] {
			kept += len(r.data)
		}
		if kept > window+MaxRecord {
			t.Fatalf("%d bytes of records are kept for a peer, where its window is %d", kept, window)
		}
	}
}

// TestPacketsWithoutAnswerAreBounded: a peer that acknowledges nothing, and has each packet of its own acknowledged,
// costs no memory that grows for ever.
func TestPacketsWithoutAnswerAreBounded(t *testing.T) {
	e, now := hostile(1 << 20)
	e.Queue(make([]byte, 100), Free)
	for i := range uint64(1 << 18) {
		now += 10 * time.Microsecond
		if err := e.Handle(now, append(putNumber(nil, 2*i), framePing), Unmarkable); err != nil {
			if !errors.Is(err, ErrPacket) {
				t.Fatal(err)
			}
			return
		}
		for p, _ := e.Next(now, nil); p != nil; p, _ = e.Next(now, nil) {
		}
		if n := len(e.rec.sent); n > maxSent+1 {
			t.Fatalf("%d packets are noted for a peer that acknowledges none of them", n)
		}
	}
	t.Error("a peer that acknowledges nothing stays for ever")
}

// TestOneAckInAPacket: an ack frame has an engine go through the packets that have left, so a packet may have one.
func TestOneAckInAPacket(t *testing.T) {
	e, now := hostile(1 << 20)
	e.Queue(make([]byte, 100), Free)
	e.Next(now, nil)
	a := ack{ranges: spans{{0, 1}}}
	if err := e.Handle(now, a.appendAck(a.appendAck(putNumber(nil, 0), 1000), 1000), Unmarkable); !errors.Is(err, ErrPacket) {
		t.Errorf("two ack frames in a packet: %v", err)
	}
}

// TestWidened: records that wait for room on either side go on when there is more.
func TestWidened(t *testing.T) {
	w := newWorld(t, 1)
	there, back := path{delay: time.Millisecond}, path{delay: time.Millisecond}
	a, b := w.pair(&there, &back, MaxRecord)
	held, taking := 0, false
	b.takes = func() bool {
		held = max(held, b.recv.held)
		return taking
	}
	for range 100 {
		a.Queue(make([]byte, 60000), Free)
	}
	w.at(w.now, a.pump)
	w.run(w.now+time.Second, func() bool { return false })
	if held > MaxRecord {
		t.Fatalf("%d bytes are held", held)
	}
	a.Widen(2 << 20)
	b.Widen(2 << 20)
	w.at(w.now, b.pump)
	w.run(w.now+2*time.Second, func() bool { return false })
	if held > 2<<20 || held < 1<<20 {
		t.Errorf("%d bytes are held of a window of 2 MiB", held)
	}
	taking = true
	for b.Take() != nil {
	}
	w.at(w.now, b.pump)
	w.run(w.now+10*time.Second, func() bool { return !a.Unacknowledged() })
	if a.Unacknowledged() {
		t.Errorf("not all has come: %+v", a.State())
	}
}

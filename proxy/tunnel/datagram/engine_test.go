package datagram

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// shares returns the rates of n flows that share a path, as shares of its rate, between from and to.
func shares(t *testing.T, p path, n int, from, to time.Duration) []float64 {
	w := newWorld(t, 5)
	got := make([]int, n)
	for i := range n {
		back := path{delay: p.delay}
		a, b := w.pair(&p, &back, 32<<20)
		b.taken = func(r []byte) { got[i] += len(r) }
		w.at(time.Duration(i)*500*time.Millisecond, func() { a.bulk(32 << 10) })
	}
	never := func() bool { return false }
	w.run(from, never)
	before := append([]int(nil), got...)
	w.run(to, never)
	var all []float64
	for i := range got {
		all = append(all, float64(got[i]-before[i])/(to-from).Seconds()/p.rate)
	}
	return all
}

// TestFlowsShare: two flows over one bottleneck use it, neither starves, and they come to even shares.
func TestFlowsShare(t *testing.T) {
	p := path{rate: 6e6, delay: 20 * time.Millisecond, queue: 250e3}
	s := shares(t, p, 2, 10*time.Second, 40*time.Second)
	t.Logf("shares %.2f", s)
	if s[0]+s[1] < 0.85 || min(s[0], s[1]) < 0.2 {
		t.Errorf("shares %.2f", s)
	}
	s = shares(t, p, 2, 40*time.Second, 100*time.Second)
	t.Logf("later %.2f", s)
	if s[0]+s[1] < 0.85 || min(s[0], s[1]) < 0.35 {
		t.Errorf("later shares %.2f", s)
	}
}

// TestDatagramsGrow: an engine finds the largest datagram that passes, returns to the smallest when it no longer does,
// and loses nothing.
func TestDatagramsGrow(t *testing.T) {
	w := newWorld(t, 1)
	w.largest = 8952
	there := path{rate: 5e6, delay: 10 * time.Millisecond, largest: 1460}
	back := path{delay: 10 * time.Millisecond}
	a, b := w.pair(&there, &back, 32<<20)
	got := 0
	b.taken = func(r []byte) { got += len(r) }
	a.bulk(32 << 10)
	never := func() bool { return false }
	w.run(4*time.Second, never)
	if size := a.State().Datagram; size != 1452 {
		t.Fatalf("datagrams of %d bytes where 1,460 pass, want 1,452", size)
	}
	there.largest = 1250
	before := got
	w.run(10*time.Second, never)
	if size := a.State().Datagram; size != 1200 {
		t.Fatalf("datagrams of %d bytes where 1,250 pass", size)
	}
	if got-before < 10e6 {
		t.Errorf("%d bytes came in 6 s after the path became narrower", got-before)
	}
}

// TestFirstPacketIsLost: the packet with number 0 is declared lost when its time has come, as others are, and is not
// kept for ever.
func TestFirstPacketIsLost(t *testing.T) {
	e := New(Config{Overhead: overhead, MaxDatagram: 1200, Window: MaxRecord, Random: rand.New(rand.NewPCG(1, 1))})
	e.Queue(make([]byte, 3000), Free)
	now := time.Second
	send := func() (n int) {
		for p, _ := e.Next(now, nil); p != nil; p, _ = e.Next(now, nil) {
			n++
		}
		return n
	}
	came := uint64(0)
	acknowledge := func(first, end uint64) {
		if err := e.Handle(now, (&ack{limit: MaxRecord, ranges: spans{{first, end}}}).appendAck(putNumber(nil, came), 1000), Unmarkable); err != nil {
			t.Fatal(err)
		}
		came++
	}
	if n := send(); n != 3 {
		t.Fatalf("%d packets have 3,000 bytes", n)
	}
	now += 40 * time.Millisecond
	acknowledge(1, 3)
	if n := send(); n != 0 || e.State().Lost != 0 {
		t.Fatalf("%d packets leave again after one round trip", n)
	}
	now += 10 * time.Millisecond // a quarter of the round trip more
	again := send()
	if again != 1 || e.State().Lost == 0 {
		t.Fatalf("%d packets leave again, %d bytes are lost", again, e.State().Lost)
	}
	now += 40 * time.Millisecond
	acknowledge(3, 4)
	now += time.Second
	e.Queue(make([]byte, 10), Free)
	send()
	if s := e.State(); s.InFlight > 1000 || len(e.rec.sent) != 1 {
		t.Errorf("%d packets are kept, %d bytes are under way, of one packet", len(e.rec.sent), s.InFlight)
	}
}

// TestLossHoldsUpItsRecordsAlone: the two records that have a part in a lost packet come later, and so does one that
// must not overtake them. All others come when they come without the loss.
func TestLossHoldsUpItsRecordsAlone(t *testing.T) {
	const away, records, size = 20 * time.Millisecond, 20, 1000
	send := func(lost int) (came [records]time.Duration) {
		w := newWorld(t, 1)
		packets := 0
		there := path{rate: 10e6, delay: away, cut: func(time.Duration) bool {
			packets++
			return packets == lost
		}}
		back := path{delay: away}
		a, b := w.pair(&there, &back, 4<<20)
		n := 0
		b.taken = func(r []byte) {
			came[binary.BigEndian.Uint64(r)] = w.now
			n++
		}
		for i := range uint64(records) {
			r, order := make([]byte, size), Free
			binary.BigEndian.PutUint64(r, i)
			if i == records-1 {
				order = Last
			}
			a.Queue(r, order)
		}
		w.at(w.now, a.pump)
		if w.run(time.Minute, func() bool { return n == records }); n != records {
			t.Fatalf("%d records came of %d", n, records)
		}
		return came
	}
	without, with := send(0), send(1)
	for i := range without {
		late := with[i] - without[i]
		if held := i < 2 || i == records-1; held != (late >= away) || !held && late > time.Millisecond {
			t.Errorf("record %d came %v later than without the loss", i, late)
		}
	}
	if last := with[records-1]; last < with[0] || last < with[1] {
		t.Errorf("the last record came at %v, before the lost ones at %v and %v", last, with[0], with[1])
	}
}

// TestOutage: after an outage the records that were under way leave again, soon, and only so often meanwhile.
func TestOutage(t *testing.T) {
	w := newWorld(t, 1)
	down := func(now time.Duration) bool { return now > 3*time.Second && now < 8*time.Second }
	there := path{rate: 5e6, delay: 20 * time.Millisecond, cut: down}
	back := path{delay: 20 * time.Millisecond, cut: down}
	a, b := w.pair(&there, &back, 32<<20)
	got, last, gap := 0, time.Duration(0), time.Duration(0)
	b.taken = func(r []byte) {
		got += len(r)
		if w.now > 2*time.Second {
			gap = max(gap, w.now-last)
		}
		last = w.now
	}
	a.bulk(16 << 10)
	w.run(4*time.Second, func() bool { return false })
	before := a.packets
	w.run(7900*time.Millisecond, func() bool { return false })
	if n := a.packets - before; n > 20 {
		t.Errorf("%d packets left in 4 s of an outage", n)
	}
	w.run(20*time.Second, func() bool { return false })
	if gap > 8*time.Second {
		t.Errorf("nothing came for %v, and the outage was 5 s", gap)
	}
	if rate := float64(got) / 15 / 5e6; rate < 0.75 {
		t.Errorf("%.2f of the rate outside the outage", rate)
	}
}

// TestReaderThatStops: no more than the window comes to an end whose records nobody takes, and all of it once they are
// taken.
func TestReaderThatStops(t *testing.T) {
	w := newWorld(t, 1)
	there, back := path{rate: 20e6, delay: 5 * time.Millisecond}, path{delay: 5 * time.Millisecond}
	const window = 1 << 20
	a, b := w.pair(&there, &back, window)
	for i := range 100 {
		r := make([]byte, 60000)
		binary.BigEndian.PutUint64(r, uint64(i))
		a.Queue(r, Free)
	}
	held, taking := 0, false
	b.takes = func() bool {
		held = max(held, b.recv.held)
		return taking
	}
	w.at(w.now, a.pump)
	w.run(3*time.Second, func() bool { return false })
	if held > window || held < window/2 {
		t.Fatalf("%d bytes are held of a window of %d", held, window)
	}
	taking = true
	for b.Take() != nil {
	}
	w.at(w.now, b.pump)
	w.run(10*time.Second, func() bool { return !a.Unacknowledged() })
	if a.Unacknowledged() {
		t.Errorf("the window has not opened again: %+v", a.State())
	}
}

// TestBrokenPackets: an authentic packet that this package would not write ends the connection.
func TestBrokenPackets(t *testing.T) {
	fragment := func(f fragment) []byte { return f.append(putNumber(nil, 0)) }
	for name, packet := range map[string][]byte{
		"short":                    {0, 0},
		"unknown frame":            append(putNumber(nil, 0), 99),
		"ack of what was not sent": (&ack{ranges: spans{{0, 9}}}).appendAck(putNumber(nil, 0), 1000),
		"ack cut off":              append(putNumber(nil, 0), frameAck, 0),
		"record 0":                 fragment(fragment1(0, 10, 0, 10)),
		"end behind the record":    fragment(fragment1(1, 10, 5, 6)),
		"empty":                    fragment(fragment1(1, 10, 5, 0)),
		"too long":                 fragment(fragment1(1, MaxRecord+1, 0, 10)),
		"far ahead":                fragment(fragment1(maxAhead+1, 10, 0, 10)),
		"over the window":          fragment(fragment1(1, MaxRecord, 0, 10)),
		"fence behind":             append(putNumber(nil, 0), frameFragment|flagFence, 3, 3, 1, 0, 1, 'x'),
		"marks cut off":            append(putNumber(nil, 0), framePadding, trailerMarks, 1),
		"repair of too many":       append(putNumber(nil, 0), framePadding, trailerRepair, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0),
		"repair cut off":           append(putNumber(nil, 0), framePadding, trailerRepair, 1, 1, 0),
		"repair of no fragment":    append(putNumber(nil, 0), framePadding, trailerRepair, 1, 1, 0, 1, framePing),
		"fence at the record":      append(putNumber(nil, 0), frameFragment|flagFence, 3, 0, 1, 0, 1, 'x'),
		"a fragment's next kind":   append(putNumber(nil, 0), 2*frameFragment, 3, 1, 0, 1, 'x'),
		"no rest":                  append(putNumber(nil, 0), frameFragment|flagRest, 3, 1, 0),
		"rest behind the record":   append(putNumber(nil, 0), frameFragment|flagRest, 3, 1, 0, 'x', 'y'),
	} {
		e := New(Config{Overhead: overhead, MaxDatagram: 1472, Window: MaxRecord - 1, Random: rand.New(rand.NewPCG(1, 1))})
		if err := e.Handle(time.Second, packet, Unmarkable); !errors.Is(err, ErrPacket) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRecordInCrumbs: a peer that sends every second byte of a record costs a bounded number of ranges.
func TestRecordInCrumbs(t *testing.T) {
	e := New(Config{Overhead: overhead, MaxDatagram: 1472, Window: MaxRecord, Random: rand.New(rand.NewPCG(1, 1))})
	for i := range uint64(2 * maxGaps) {
		f := fragment1(1, MaxRecord, 2*int(i), 1)
		if err := e.Handle(time.Second, f.append(putNumber(nil, i)), Unmarkable); err != nil {
			if !errors.Is(err, ErrPacket) || i < maxGaps {
				t.Fatalf("piece %d: %v", i, err)
			}
			return
		}
	}
	t.Errorf("%d pieces with gaps are kept", 2*maxGaps)
}

func fragment1(record uint64, total, offset, n int) fragment {
	return fragment{record: record, total: total, offset: offset, data: make([]byte, n)}
}

// FuzzPackets gives an engine packets that lie: it takes them or fails, and holds no more than its window.
func FuzzPackets(f *testing.F) {
	w := newWorld(f, 1)
	there, back := path{delay: time.Millisecond}, path{delay: time.Millisecond}
	a, _ := w.pair(&there, &back, 1<<20)
	for range 3 {
		a.Queue(make([]byte, 3000), Last)
	}
	for p, _ := a.Next(w.now, nil); p != nil; p, _ = a.Next(w.now, nil) {
		f.Add(p, p)
	}
	f.Add((&ack{ranges: spans{{0, 1}, {3, 5}}}).appendAck(putNumber(nil, 7), 1000), []byte{})
	f.Add((&markCount{ect0: 3, ce: 1}).appendMarks((&ack{ranges: spans{{0, 4}}}).appendAck(putNumber(nil, 7), 1000)), []byte{})
	whole := fragment1(1, 3, 0, 3)
	r := repairing{}
	r.noted(0, 0, 9, whole.append(nil))
	f.Add(r.next(putNumber(nil, 8)), whole.append(putNumber(nil, 9)))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		e := New(Config{Overhead: overhead, MaxDatagram: 1472, Window: MaxRecord, Random: rand.New(rand.NewPCG(1, 1))})
		for range 8 {
			e.Queue(make([]byte, 2000), Free)
		}
		now := time.Second
		for _, p := range [][]byte{one, two} {
			for out, _ := e.Next(now, nil); out != nil; out, _ = e.Next(now, nil) {
			}
			if e.Handle(now, p, CE) != nil {
				return
			}
			now += 50 * time.Millisecond
			if e.recv.held > MaxRecord {
				t.Fatalf("%d bytes are held", e.recv.held)
			}
		}
	})
}

// TestPacketsLeaveTogether: packets that must wait for their turn leave together as far as a millisecond of them goes,
// so that one call sends them.
func TestPacketsLeaveTogether(t *testing.T) {
	w := newWorld(t, 1)
	packets, calls, last := 0, 0, time.Duration(0)
	there, back := path{rate: 25e6, delay: 40 * time.Millisecond, queue: 2e6}, path{delay: 40 * time.Millisecond}
	there.cut = func(now time.Duration) bool {
		if packets++; now != last {
			calls, last = calls+1, now
		}
		return false
	}
	a, _ := w.pair(&there, &back, 32<<20)
	a.bulk(64 << 10)
	w.run(4*time.Second, func() bool { return false })
	if packets < 8*calls {
		t.Errorf("%d packets left in %d calls", packets, calls)
	}
}

// TestVeryManyLosses: an engine says when more than a quarter of its packets is lost, or nothing comes back, and not at
// losses that links have, nor after a pause of the other host.
func TestVeryManyLosses(t *testing.T) {
	for _, c := range []struct {
		loss float64
		cut  time.Duration
		want bool
	}{{0, 0, false}, {0.03, 0, false}, {0.6, 0, true}, {0, time.Hour, true}, {0, 300 * time.Millisecond, false}} {
		w := newWorld(t, 1)
		there, back := path{rate: 5e6, delay: 10 * time.Millisecond, queue: 1e6, loss: c.loss}, path{delay: 10 * time.Millisecond}
		if c.cut > 0 {
			there.cut = func(now time.Duration) bool { return now > time.Second && now < time.Second+c.cut }
		}
		a, _ := w.pair(&there, &back, 32<<20)
		a.bulk(32 << 10)
		w.run(4*time.Second, func() bool { return false })
		if got := a.Heavy() > 0; got != c.want {
			t.Errorf("%v of loss, cut %v: very many losses %v", c.loss, c.cut, got)
		}
	}
}

// TestSpans checks the set of numbers against a plain one.
func TestSpans(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var s spans
		var plain [100]bool
		for range 30 {
			first := random.Uint64N(100)
			end := min(first+random.Uint64N(8), 100)
			s.add(first, end)
			for n := first; n < end; n++ {
				plain[n] = true
			}
		}
		for n := range uint64(100) {
			if s.contains(n) != plain[n] {
				t.Fatalf("%d: %v", n, s)
			}
		}
		for i := 1; i < len(s); i++ {
			if s[i-1].end >= s[i].first {
				t.Fatalf("ranges touch: %v", s)
			}
		}
	}
}

// TestMoves: an end whose path becomes another one, and which is told of that a while later, loses no record, and soon
// has the new path's rate: when only a port has changed, at once.
func TestMoves(t *testing.T) {
	for name, far := range map[string]bool{"port": false, "host": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			cut := func(now time.Duration) bool { return now > 3*time.Second && now < 3200*time.Millisecond } // datagrams to the address before, and from it
			there := path{rate: 5e6, delay: 20 * time.Millisecond, queue: 400e3, cut: cut}
			back := path{delay: 20 * time.Millisecond, cut: cut}
			a, b := w.pair(&there, &back, 32<<20)
			sent := w.records(a, 4000)
			check := newChecker(t, name, sent)
			got, before, after := 0, 0, 0
			b.taken = func(r []byte) {
				got += len(r)
				switch {
				case w.now < 3*time.Second:
					before = got
				case w.now < 3700*time.Millisecond:
					after = got
				}
				check.take(r)
			}
			w.at(w.now, a.pump)
			w.at(3200*time.Millisecond, func() {
				if far {
					there.rate, there.delay, there.busyUntil = 10e6, 5*time.Millisecond, 0
				}
				a.Moved(w.now, far)
				b.Moved(w.now, far)
				a.pump()
				b.pump()
			})
			w.run(time.Minute, func() bool { return b.Ended() && !a.Unacknowledged() })
			if !b.Ended() {
				t.Fatalf("not at the end after %v: %+v", w.now, a.State())
			}
			check.all()
			t.Logf("%d bytes until the move, %d in the half second after it, the end after %v", before, after-before, w.now)
			if after-before < 5e6/4 {
				t.Errorf("%d bytes came in the half second after the move", after-before)
			}
		})
	}
}

// TestWholeNumber: a packet's number is known by its low bytes, however many packets before it were lost or came late,
// within half of the numbers that these bytes tell apart.
func TestWholeNumber(t *testing.T) {
	const half = 1 << (8*numberLen - 1)
	random := rand.New(rand.NewPCG(1, 2))
	for _, next := range []uint64{0, 1, half - 1, half, half + 1, 2 * half, 2*half + 1, 5*half - 1, 1<<40 + 12345, 1<<47 - half} {
		for _, off := range []int64{-half + 1, -half + 2, -4096, -1, 0, 1, 2, maxSent, half - 1, half, random.Int64N(2*half) - half + 1} {
			number := int64(next) + off
			if number < 0 {
				continue
			}
			r := packetReader{rest: putNumber(nil, uint64(number))}
			if got := wholeNumber(r.number(), next); got != uint64(number) {
				t.Errorf("number %d is taken for %d where %d is awaited", number, got, next)
			}
		}
	}
	if maxSent >= half {
		t.Errorf("%d packets may be under way", maxSent)
	}
}

// TestLongConnection: packets are known by their low bytes on a connection whose numbers need more.
func TestLongConnection(t *testing.T) {
	w := newWorld(t, 5)
	there, back := path{rate: 1e7, delay: 5 * time.Millisecond, loss: 0.01, jitter: time.Millisecond}, path{delay: 5 * time.Millisecond, loss: 0.01}
	a, b := w.pair(&there, &back, 1<<20)
	const before = 1<<(8*numberLen) - 500 // packets that have come
	a.rec.base, a.rec.largest, a.rec.checked = before, before, before
	b.received = spans{{0, before}}
	c := newChecker(t, "b", w.records(a, 300))
	b.taken = c.take
	w.at(w.now, a.pump)
	w.run(time.Minute, func() bool { return !a.Unacknowledged() })
	c.all()
	if n := a.rec.next(); n < 1<<(8*numberLen) {
		t.Errorf("the last packet has the number %d", n)
	}
}

// TestFullPackets: long records fill packets to the size that the path carries, and a packet spends few bytes on its
// own fields.
func TestFullPackets(t *testing.T) {
	w := newWorld(t, 1)
	there, back := path{rate: 1e7, delay: 5 * time.Millisecond}, path{delay: 5 * time.Millisecond}
	a, b := w.pair(&there, &back, 1<<20)
	data := 0
	b.taken = func(r []byte) { data += len(r) }
	a.bulk(1 << 16)
	never := func() bool { return false }
	w.run(w.now+2*time.Second, never)
	bytes, packets, before := a.bytes, a.packets, data
	w.run(w.now+10*time.Second, never)
	bytes, packets, data = a.bytes-bytes, a.packets-packets, data-before
	if full := packets * a.mtu.size(); bytes < full-full/1000 {
		t.Errorf("%d packets have %d bytes, want about %d", packets, bytes, full)
	}
	if fields := float64(bytes-data)/float64(packets) - overhead; fields > 12 {
		t.Errorf("a packet's own fields take %.1f bytes of it", fields)
	} else {
		t.Logf("%.1f bytes", fields)
	}
}

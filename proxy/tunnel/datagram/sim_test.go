package datagram

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// A path is one direction of a bottleneck in virtual time: a rate, a queue that drops at its end, a delay, and faults.
type path struct {
	rate    float64       // bytes per second; 0: no limit
	delay   time.Duration // one way
	queue   int           // bytes; 0: no limit
	loss    float64       // share of datagrams
	double  float64
	jitter  time.Duration // further delay of each datagram, at random
	largest int           // bytes of the largest datagram that passes; 0: all
	cut     func(now time.Duration) bool
	mark    int                     // bytes in the queue above which a router marks datagrams that may be marked; 0: it marks none
	marks   func(Mark) (Mark, bool) // the mark with which a datagram comes; false: the datagram is lost; nil: its own mark
	wan     *wansim.Path            // a link that datagrams pass instead, with headers of IP and UDP; nil: none

	busyUntil time.Duration
	carried   uint64 // bytes that reached the end
}

const (
	overhead = 29
	headers  = 28 // of IP and UDP
)

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// A world runs engines in virtual time.
type world struct {
	t       testing.TB
	now     time.Duration
	seq     int
	queue   events
	largest int // bytes of the largest datagram
	random  *rand.Rand
}

func newWorld(t testing.TB, seed uint64) *world {
	return &world{t: t, largest: 1472, now: time.Millisecond, random: rand.New(rand.NewPCG(seed, 7))}
}

func (w *world) at(at time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{max(at, w.now), w.seq, do})
}

// run runs until stop says so, or until the time is over.
func (w *world) run(until time.Duration, stop func() bool) {
	for len(w.queue) > 0 && w.queue[0].at <= until && !stop() {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
}

func (w *world) send(p *path, datagram []byte, mark Mark, deliver func([]byte, Mark)) {
	size := len(datagram) + overhead
	if p.wan != nil {
		if at, ok := p.wan.Admit(time.Time{}.Add(w.now), size+headers); ok {
			w.at(at.Sub(time.Time{}), func() { p.carried += uint64(size); deliver(datagram, mark) })
		}
		return
	}
	if p.cut != nil && p.cut(w.now) || p.largest > 0 && size > p.largest || w.random.Float64() < p.loss {
		return
	}
	start := max(w.now, p.busyUntil)
	end := start
	if p.rate > 0 {
		if p.queue > 0 && (start-w.now).Seconds()*p.rate+float64(size) > float64(p.queue) {
			return
		}
		if p.mark > 0 && mark == ECT0 && (start-w.now).Seconds()*p.rate > float64(p.mark) {
			mark = CE
		}
		end = start + time.Duration(float64(size)/p.rate*1e9)
		p.busyUntil = end
	}
	if p.marks != nil {
		ok := false
		if mark, ok = p.marks(mark); !ok {
			return
		}
	}
	times := 1
	if w.random.Float64() < p.double {
		times = 2
	}
	for range times {
		at := end + p.delay
		if p.jitter > 0 {
			at += time.Duration(w.random.Int64N(int64(p.jitter)))
		}
		w.at(at, func() { p.carried += uint64(size); deliver(datagram, mark) })
	}
}

// An end is an Engine in a world.
type end struct {
	*Engine
	w       *world
	out     *path
	peer    *end
	wakeAt  time.Duration
	packets int
	bytes   int
	// refill is called when little is left to send.
	refill func()
	taken  func(record []byte)
	takes  func() bool // false: records stay
}

// pair returns two connected ends. there carries a's datagrams, back b's.
func (w *world) pair(there, back *path, window int) (a, b *end) {
	make := func(p *path) *end {
		return &end{Engine: New(Config{Overhead: overhead, MaxDatagram: w.largest, Window: window, Random: w.random}), w: w, out: p}
	}
	a, b = make(there), make(back)
	a.peer, b.peer = b, a
	return a, b
}

func (e *end) pump() {
	if e.refill != nil {
		e.refill()
	}
	for range 1 << 14 {
		packet, again := e.Next(e.w.now, nil)
		if packet == nil {
			if again != 0 {
				e.wake(again)
			}
			return
		}
		if len(packet)+overhead > e.mtu.size() && !bytes.HasSuffix(packet, []byte{framePadding}) {
			e.w.t.Fatalf("a packet of %d bytes over %d", len(packet)+overhead, e.mtu.size())
		}
		e.packets++
		e.bytes += len(packet) + overhead
		mark := Unmarkable
		if e.Marks() {
			mark = ECT0
		}
		e.w.send(e.out, packet, mark, e.peer.arrive)
		if e.refill != nil {
			e.refill()
		}
	}
	e.w.t.Fatalf("at %v an end sends for ever: %+v", e.w.now, e.State())
}

func (e *end) wake(at time.Duration) {
	if e.wakeAt != 0 && e.wakeAt <= at && e.wakeAt > e.w.now {
		return
	}
	e.wakeAt = at
	e.w.at(at, func() {
		if e.wakeAt == at {
			e.wakeAt = 0
			e.pump()
		}
	})
}

func (e *end) arrive(packet []byte, mark Mark) {
	if err := e.Handle(e.w.now, packet, mark); err != nil {
		e.w.t.Fatal(err)
	}
	if e.takes != nil && !e.takes() {
		e.pump()
		return
	}
	for b := e.Take(); b != nil; b = e.Take() {
		if e.taken != nil {
			e.taken(b)
		}
	}
	e.pump()
}

// bulk keeps an end busy with records of size bytes.
func (e *end) bulk(size int) {
	e.refill = func() {
		for e.Unsent() < 128<<10 {
			e.Queue(make([]byte, size), Free)
		}
	}
	e.w.at(e.w.now, e.pump)
}

// TestRecordsArrive sends records of all orders over bad paths, both ways: each arrives once, unaltered, in an order
// that is allowed.
func TestRecordsArrive(t *testing.T) {
	for name, p := range map[string]path{
		"clean":     {rate: 10e6, delay: 10 * time.Millisecond},
		"loss":      {rate: 10e6, delay: 10 * time.Millisecond, loss: 0.05},
		"heavy":     {rate: 2e6, delay: 40 * time.Millisecond, loss: 0.3, double: 0.1},
		"reordered": {rate: 10e6, delay: 5 * time.Millisecond, jitter: 20 * time.Millisecond, double: 0.05},
		"queue":     {rate: 1e6, delay: 20 * time.Millisecond, queue: 6000},
		"all":       {rate: 5e6, delay: 20 * time.Millisecond, queue: 50000, loss: 0.02, double: 0.02, jitter: 3 * time.Millisecond, largest: 1432},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2) {
				w := newWorld(t, seed)
				there, back := p, p
				a, b := w.pair(&there, &back, 4<<20)
				ends := []*end{a, b}
				for i, e := range ends {
					sent := w.records(e, 400)
					check := newChecker(t, fmt.Sprintf("seed %d, end %d", seed, i), sent)
					e.peer.taken = func(r []byte) { check.take(r) }
					defer check.all()
					w.at(w.now, e.pump)
				}
				w.run(10*time.Minute, func() bool { return a.Ended() && b.Ended() && !a.Unacknowledged() && !b.Unacknowledged() })
				if !a.Ended() || !b.Ended() {
					t.Fatalf("seed %d: not at the end after %v: %+v %+v", seed, w.now, a.State(), b.State())
				}
				if a.recv.held != 0 || b.recv.held != 0 || a.Unsent() != 0 {
					t.Errorf("something is left: %+v", a.State())
				}
			}
		})
	}
}

type sentRecord struct {
	order Order
	data  []byte
}

// records queues n records of random lengths and orders, and an End.
func (w *world) records(e *end, n int) (sent []sentRecord) {
	for i := range n {
		size := 9 + w.random.IntN(60)
		if w.random.IntN(4) == 0 {
			size = 9 + w.random.IntN(60000)
		}
		r := sentRecord{data: make([]byte, size)}
		for j := range r.data {
			r.data[j] = byte(w.random.Uint32())
		}
		switch w.random.IntN(20) {
		case 0:
			r.order = Fence
		case 1, 2, 3:
			r.order = Last
		}
		binary.BigEndian.PutUint64(r.data, uint64(i))
		sent = append(sent, r)
		e.Queue(bytes.Clone(r.data), r.order)
	}
	e.Queue([]byte{0}, End)
	return sent
}

// A checker compares the records that come with the records that were sent.
type checker struct {
	t     *testing.T
	name  string
	sent  []sentRecord
	came  []bool
	first int // not come
}

func newChecker(t *testing.T, name string, sent []sentRecord) *checker {
	return &checker{t: t, name: name, sent: sent, came: make([]bool, len(sent))}
}

func (c *checker) take(r []byte) {
	i := int(binary.BigEndian.Uint64(r))
	switch {
	case i >= len(c.sent) || !bytes.Equal(c.sent[i].data, r):
		c.t.Fatalf("%s: record %d is altered", c.name, i)
	case c.came[i]:
		c.t.Fatalf("%s: record %d came twice", c.name, i)
	}
	c.came[i] = true
	for c.first < len(c.came) && c.came[c.first] {
		c.first++
	}
	if c.sent[i].order != Free && c.first < i {
		c.t.Fatalf("%s: record %d of order %d overtakes record %d", c.name, i, c.sent[i].order, c.first)
	}
	for j := c.first; j < i; j++ {
		if !c.came[j] && c.sent[j].order == Fence {
			c.t.Fatalf("%s: record %d overtakes the fence %d", c.name, i, j)
		}
	}
}

func (c *checker) all() {
	if c.first < len(c.sent) {
		c.t.Errorf("%s: record %d of %d has not come", c.name, c.first, len(c.sent))
	}
}

// goodput returns the share of the path's rate at which records arrive, after warm, for a while.
func goodput(t testing.TB, p path, seed uint64, warm, during time.Duration) float64 {
	w := newWorld(t, seed)
	back := path{delay: p.delay, loss: p.loss}
	a, b := w.pair(&p, &back, 32<<20)
	got := 0
	b.taken = func(r []byte) { got += len(r) }
	a.bulk(64 << 10)
	never := func() bool { return false }
	w.run(w.now+warm, never)
	before := got
	w.run(w.now+during, never)
	return float64(got-before) / during.Seconds() / p.rate
}

// TestGoodput: random loss below BBR's threshold costs little more than the bytes that are sent again.
func TestGoodput(t *testing.T) {
	const mbit = 1e6 / 8
	for _, c := range []struct {
		name    string
		p       path
		minimum float64
	}{
		{"no loss", path{rate: 50 * mbit, delay: 40 * time.Millisecond, queue: 1e6}, 0.90},
		{"0.1 % of loss", path{rate: 50 * mbit, delay: 40 * time.Millisecond, queue: 1e6, loss: 0.001}, 0.90},
		{"1 % of loss", path{rate: 100 * mbit, delay: 40 * time.Millisecond, queue: 2e6, loss: 0.01}, 0.90},
		{"small queue", path{rate: 50 * mbit, delay: 25 * time.Millisecond, queue: 64e3}, 0.75},
		{"slow", path{rate: 5 * mbit, delay: 10 * time.Millisecond, queue: 64e3}, 0.88},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := goodput(t, c.p, 1, 3*time.Second, 12*time.Second)
			t.Logf("%.3f of the rate", got)
			if got < c.minimum {
				t.Errorf("%.3f of the path's rate, want %.2f", got, c.minimum)
			}
		})
	}
}

// TestOverWANSim: the links of wan-sim, whose packets keep their order, carry as much.
func TestOverWANSim(t *testing.T) {
	const mbit = 1e6 / 8
	for _, c := range []struct {
		name    string
		link    wansim.Link
		minimum float64
	}{
		{"no loss", wansim.Link{Rate: 50 * mbit, Delay: 40 * time.Millisecond, Queue: 1e6}, 0.90},
		{"1 % of loss and jitter", wansim.Link{Rate: 50 * mbit, Delay: 40 * time.Millisecond, Jitter: 2 * time.Millisecond, Loss: 0.01, Queue: 1e6, Seed: 1}, 0.90},
		{"small queue", wansim.Link{Rate: 50 * mbit, Delay: 25 * time.Millisecond, Queue: 64e3}, 0.75},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1)
			over := func(l wansim.Link) *path { return &path{wan: wansim.NewPath(l)} }
			way := c.link
			way.Seed++
			a, b := w.pair(over(c.link), over(way), 32<<20)
			got := 0
			b.taken = func(r []byte) { got += len(r) }
			a.bulk(64 << 10)
			never := func() bool { return false }
			w.run(3*time.Second, never)
			before := got
			w.run(15*time.Second, never)
			share := float64(got-before) / 12 / float64(c.link.Rate)
			t.Logf("%.3f of the rate", share)
			if share < c.minimum {
				t.Errorf("%.3f of the link's rate, want %.2f", share, c.minimum)
			}
		})
	}
}

// sharesOverWANSim returns the rates of two flows behind one bottleneck of wan-sim, as shares of its rate, between from
// and to. The second one begins later.
func sharesOverWANSim(t *testing.T, seed uint64, rate int64, queue int, delay, later, from, to time.Duration) (shares [2]float64) {
	t.Helper()
	bottleneck, err := wansim.NewBottleneck(rate, queue)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, seed)
	var got [2]int
	for i := range got {
		l := wansim.Link{Delay: delay}
		back := path{wan: wansim.NewPath(l)}
		l.Shared = bottleneck
		a, b := w.pair(&path{wan: wansim.NewPath(l)}, &back, 32<<20)
		b.taken = func(r []byte) { got[i] += len(r) }
		w.at(time.Duration(i)*later, func() { a.bulk(32 << 10) })
	}
	never := func() bool { return false }
	w.run(from, never)
	before := got
	w.run(to, never)
	for i := range got {
		shares[i] = float64(got[i]-before[i]) / (to - from).Seconds() / float64(rate)
	}
	return shares
}

// TestFlowsShareOverWANSim: two flows behind one bottleneck of wan-sim use it, and come to even shares.
func TestFlowsShareOverWANSim(t *testing.T) {
	shares := sharesOverWANSim(t, 5, 6e6, 250e3, 20*time.Millisecond, 500*time.Millisecond, 40*time.Second, 80*time.Second)
	t.Logf("shares %.2f", shares)
	if shares[0]+shares[1] < 0.85 || min(shares[0], shares[1]) < 0.35 {
		t.Errorf("shares %.2f", shares)
	}
}

// TestLaterFlowGetsItsShare: a flow that begins when another one has filled the path for a while comes to nearly as
// much within some seconds, in the mean of several runs. Flows that always look for more at the same time do not.
func TestLaterFlowGetsItsShare(t *testing.T) {
	require.OneGoroutine(t)
	const runs = 12
	var mean [2]float64
	for seed := range uint64(runs) {
		shares := sharesOverWANSim(t, seed, 6e6, 250e3, 20*time.Millisecond, 10*time.Second, 20*time.Second, 40*time.Second)
		t.Logf("seed %d: shares %.2f", seed, shares)
		mean[0] += shares[0] / runs
		mean[1] += shares[1] / runs
	}
	t.Logf("mean %.2f", mean)
	if mean[1] < 0.355 || mean[0]+mean[1] < 0.85 {
		t.Errorf("from 10 to 30 s after the later flow began the shares are %.2f in the mean", mean)
	}
}

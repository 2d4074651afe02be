package tunnel

import (
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

// testWorkers returns n workers that end with the test, also where the process has none, and how many units they have
// done.
func testWorkers(t testing.TB, n int) (asked chan *spread, helped *atomic.Int64) {
	asked, helped = make(chan *spread), new(atomic.Int64)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for s := range asked {
				helped.Add(int64(s.help()))
			}
		})
	}
	t.Cleanup(func() { close(asked); all.Wait() })
	return asked, helped
}

// everyBatch returns a policy by which workers are asked for each batch; noBatch one by which none is.
func everyBatch(workers chan *spread) spreadPolicy {
	return spreadPolicy{workers: workers, state: spreadHolds, pays: true, until: time.Now().Add(24 * time.Hour)}
}

func noBatch() spreadPolicy {
	return spreadPolicy{state: spreadHolds, until: time.Now().Add(24 * time.Hour)}
}

// A watchedAEAD counts its calls and the nonces that it seals under, and lets other goroutines run in each call.
type watchedAEAD struct {
	cipher.AEAD
	mu     sync.Mutex
	sealed map[[suiteNonce]byte]int
	opened int
}

func (a *watchedAEAD) Seal(dst, nonce, content, data []byte) []byte {
	runtime.Gosched()
	a.mu.Lock()
	a.sealed[[suiteNonce]byte(nonce)]++
	a.mu.Unlock()
	return a.AEAD.Seal(dst, nonce, content, data)
}

func (a *watchedAEAD) Open(dst, nonce, content, data []byte) ([]byte, error) {
	runtime.Gosched()
	a.mu.Lock()
	a.opened++
	a.mu.Unlock()
	return a.AEAD.Open(dst, nonce, content, data)
}

// A keptBatches is the batches that a sealedWriter has sent.
type keptBatches struct {
	batches [][]byte
	each    []int
	marks   []udp.Mark
	fails   int // the call that fails, from 1 on; 0: none
}

func (k *keptBatches) WriteBatch(b []byte, each int, mark udp.Mark) error {
	if k.fails == len(k.batches)+1 {
		return errors.New("no network")
	}
	k.batches, k.each, k.marks = append(k.batches, bytes.Clone(b)), append(k.each, each), append(k.marks, mark)
	return nil
}

// records returns the records that were sent, and fails the test where the kernel would not take a batch.
func (k *keptBatches) records(t *testing.T, form *recordForm) (all [][]byte, marks []udp.Mark) {
	for i, b := range k.batches {
		if n := (len(b) + k.each[i] - 1) / k.each[i]; len(b) > udp.MaxBatchBytes || n > udp.MaxBatch {
			t.Fatalf("a call sends %d bytes in %d datagrams", len(b), n)
		}
		for len(b) > 0 {
			n := form.length(b)
			if n > len(b) || n != min(k.each[i], len(b)) {
				t.Fatalf("a record of %d bytes where datagrams have %d and %d bytes are left", n, k.each[i], len(b))
			}
			all, marks = append(all, b[:n]), append(marks, k.marks[i])
			b = b[n:]
		}
	}
	return all, marks
}

// write has a writer send packets as a Link does.
func write(w *sealedWriter, packets [][]byte, mark func(i int) udp.Mark) error {
	for i, p := range packets {
		room := w.Room()
		if room == nil {
			if err := w.Flush(); err != nil {
				return err
			}
			room = w.Room()
		}
		w.Put(append(room, p...), mark(i))
	}
	return w.Flush()
}

// TestBatchesAreSealedInOrder: packets of all sizes leave in the order in which they were put, each with its mark and
// each under a nonce of its own, however many cores seal them.
func TestBatchesAreSealedInOrder(t *testing.T) {
	for name, connection := range connectionIDs {
		t.Run(name, func(t *testing.T) {
			client, server := suitePair(t, suiteAES256, connection)
			seal, open := &client.keys.Load().seal, &server.keys.Load().open
			watched := &watchedAEAD{AEAD: seal.aead, sealed: map[[suiteNonce]byte]int{}}
			seal.aead = watched
			kept := &keptBatches{}
			workers, helped := testWorkers(t, 3)
			w := &sealedWriter{conn: kept, seal: seal, policy: everyBatch(workers)}
			random := rand.New(rand.NewPCG(1, 2))
			sum := 0
			for range 60 {
				*kept = keptBatches{}
				var packets [][]byte
				size := random.IntN(dtlsDatagramBytes - w.Overhead() + 1)
				for left := random.IntN(1 << 20); left > 0; left -= 1 + size {
					if random.IntN(20) == 0 {
						size = random.IntN(dtlsDatagramBytes - w.Overhead() + 1)
					}
					packets = append(packets, bytes.Repeat([]byte{byte(len(packets))}, size))
				}
				mark := func(i int) udp.Mark { return udp.Mark(i / 50 % 2) }
				w.policy = everyBatch(workers)
				if err := write(w, packets, mark); err != nil {
					t.Fatal(err)
				}
				records, marks := kept.records(t, &seal.recordForm)
				if len(records) != len(packets) {
					t.Fatalf("%d records of %d packets", len(records), len(packets))
				}
				for i, r := range records {
					number := binary.BigEndian.Uint64(r[epochAt:])
					if want := dataEpoch<<48 | uint64(sum+i); number != want || marks[i] != mark(i) {
						t.Fatalf("record %d has number %#x, want %#x, and mark %d", i, number, want, marks[i])
					}
					kind, content, _, err := open.fresh(r, nil)
					if err != nil || kind != dtlsData || !bytes.Equal(content, packets[i]) {
						t.Fatalf("record %d: %v, type %d, %d bytes, want %d", i, err, kind, len(content), len(packets[i]))
					}
				}
				sum += len(packets)
			}
			if len(watched.sealed) != sum {
				t.Errorf("%d nonces of %d records", len(watched.sealed), sum)
			}
			for nonce, n := range watched.sealed {
				if n != 1 {
					t.Errorf("nonce %x is used %d times", nonce, n)
				}
			}
			if helped.Load() == 0 {
				t.Error("no worker has sealed anything")
			}
		})
	}
}

// TestBatchFails: a batch that cannot be sent, or whose key is worn, ends, and nobody works on it any more: the batch
// behind it is as it was put. A worn key seals nothing.
func TestBatchFails(t *testing.T) {
	client, server := suitePair(t, suiteAES256, connectionIDs["with an id"])
	seal, open := &client.keys.Load().seal, &server.keys.Load().open
	watched := &watchedAEAD{AEAD: seal.aead, sealed: map[[suiteNonce]byte]int{}}
	seal.aead = watched
	kept := &keptBatches{}
	workers, _ := testWorkers(t, 3)
	w := &sealedWriter{conn: kept, seal: seal, policy: everyBatch(workers)}
	packets := make([][]byte, 300)
	noMark := func(int) udp.Mark { return 0 }
	for round := range 40 {
		for i := range packets {
			packets[i] = bytes.Repeat([]byte{byte(round), byte(i)}, 700)
		}
		*kept = keptBatches{fails: round % 8}
		w.policy = everyBatch(workers)
		if err := write(w, packets, noMark); (err != nil) != (kept.fails > 0) {
			t.Fatalf("call %d fails, and a batch with %v", kept.fails, err)
		}
		if err := w.Flush(); err != nil {
			t.Fatalf("behind a batch that failed: %v", err)
		}
		records, _ := kept.records(t, &seal.recordForm)
		for i, r := range records {
			if _, content, _, err := open.fresh(r, nil); err != nil || !bytes.Equal(content, packets[i]) {
				t.Fatalf("round %d, packet %d: %v, %d bytes", round, i, err, len(content))
			}
		}
		if len(records) < len(packets) && kept.fails == 0 {
			t.Fatalf("%d of %d packets left", len(records), len(packets))
		}
	}
	sum := len(watched.sealed)
	seal.next = maxSealed - 150
	*kept = keptBatches{}
	if err := write(w, packets, noMark); !errors.Is(err, errWornKey) {
		t.Errorf("a worn key: %v", err)
	}
	if n := len(watched.sealed) - sum; n > 150 || seal.next != maxSealed {
		t.Errorf("a key that may seal 150 records has sealed %d, up to number %d", n, seal.next)
	}
	for nonce, n := range watched.sealed {
		if n != 1 {
			t.Errorf("nonce %x is used %d times", nonce, n)
		}
	}
}

// TestBlocksLeaveWhole: packets of one length leave in as few calls as the kernel takes them in.
func TestBlocksLeaveWhole(t *testing.T) {
	client, _ := suitePair(t, suiteAES256, nil)
	kept := &keptBatches{}
	w := &sealedWriter{conn: kept, seal: &client.keys.Load().seal, policy: noBatch()}
	for _, size := range []int{1200, 1448, 8952, dtlsDatagramBytes} {
		*kept = keptBatches{}
		perCall := min(udp.MaxBatchBytes/size, udp.MaxBatch)
		if err := write(w, slices.Repeat([][]byte{make([]byte, size-w.Overhead())}, 10*perCall), func(int) udp.Mark { return 0 }); err != nil {
			t.Fatal(err)
		}
		if len(kept.batches) != 10 {
			t.Errorf("%d calls for ten times %d datagrams of %d bytes", len(kept.batches), perCall, size)
		}
	}
}

// TestOpenedAsOneByOne: of records that come in any order, some of them forged, changed or doubled, a batch that
// several cores open brings the same ones as one core that opens one by one, decrypts as many, and refuses as many.
func TestOpenedAsOneByOne(t *testing.T) {
	for name, connection := range connectionIDs {
		t.Run(name, func(t *testing.T) { testOpenedAsOneByOne(t, connection) })
	}
}

func testOpenedAsOneByOne(t *testing.T, connection []byte) {
	const rounds = 60
	client, server := suitePair(t, suiteAES256, connection)
	_, twin := suitePair(t, suiteAES256, connection)
	seal, open, alone := &client.keys.Load().seal, &server.keys.Load().open, &twin.keys.Load().open
	opened, openedAlone := &watchedAEAD{AEAD: open.aead}, &watchedAEAD{AEAD: alone.aead}
	open.aead, alone.aead = opened, openedAlone
	workers, helped := testWorkers(t, 3)
	b := openingBatch{policy: everyBatch(workers)}
	random := rand.New(rand.NewPCG(3, 4))
	var old [][]byte // sealed ones, of earlier rounds too
	for round := range rounds {
		var records [][]byte
		hostile := round % 3 // how much so
		for range 100 + random.IntN(300) {
			if hostile > 0 && random.IntN(30) == 0 {
				seal.next += uint64(random.IntN(2 * dtlsReplayWindow)) // records that were lost
			}
			size := random.IntN(2000)
			r := sealed(t, seal, dtlsData, string(bytes.Repeat([]byte{byte(round)}, size)))
			old = append(old, bytes.Clone(r))
			records = append(records, r)
		}
		for range hostile * 40 {
			at := random.IntN(len(records))
			r := bytes.Clone(records[at])
			switch random.IntN(6) {
			case 0: // doubled
			case 1:
				r = bytes.Clone(old[random.IntN(len(old))])
			case 2: // of a number that may come
				binary.BigEndian.PutUint64(r[epochAt:], dataEpoch<<48|seal.next+uint64(random.IntN(maxAhead)))
			case 3: // of any number near
				binary.BigEndian.PutUint64(r[epochAt:], dataEpoch<<48|seal.next+2*maxAhead-uint64(random.IntN(4*maxAhead)))
			case 4:
				r[len(r)-1-random.IntN(suiteTag)] ^= 1
			case 5: // in place of the true one, which comes later
				forged := bytes.Clone(r)
				forged[len(forged)-1] ^= 1
				records[at] = forged
				at = random.IntN(len(records))
			}
			records = slices.Insert(records, at, r)
		}
		if hostile == 2 {
			for range len(records) / 4 {
				i := random.IntN(len(records))
				j := min(i+random.IntN(50), len(records)-1)
				records[i], records[j] = records[j], records[i]
			}
		}
		if round > rounds-4 { // with the last of them
			open.forged, alone.forged = maxForged-5, maxForged-5
		}
		var want, got []string
		for _, r := range records {
			if kind, content, newest, err := alone.fresh(bytes.Clone(r), nil); err == nil {
				want = append(want, fmt.Sprint(kind, content, newest))
			}
		}
		b.policy = everyBatch(workers)
		for i, r := range records {
			b.add(open, bytes.Clone(r))
			if b.full() || random.IntN(400) == 0 || i == len(records)-1 {
				b.each(open, func(_ int, kind byte, content []byte, newest bool) {
					got = append(got, fmt.Sprint(kind, content, newest))
				}, func() {})
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: %d records came, want %d", round, len(got), len(want))
		}
		if open.forged != alone.forged || open.came != alone.came || open.next.Load() != alone.next.Load() {
			t.Fatalf("round %d: %d were forged, want %d; the next number is %d, want %d", round, open.forged, alone.forged, open.came.next, alone.came.next)
		}
		if opened.opened != openedAlone.opened && open.forged < maxForged {
			t.Fatalf("round %d: %d records were decrypted, want %d", round, opened.opened, openedAlone.opened)
		}
	}
	if helped.Load() == 0 {
		t.Error("no worker has opened anything")
	}
}

// TestGateKeepsOrder: data comes in the order of its records, each with its mark, whether records wait to be opened
// together or, being short enough for an alert, do not.
func TestGateKeepsOrder(t *testing.T) {
	for name, connection := range connectionIDs {
		t.Run(name, func(t *testing.T) {
			g, seal, _ := gated(t, connection)
			workers, _ := testWorkers(t, 3)
			g.opening.policy = everyBatch(workers)
			var got, want []string
			g.take = func(packets []packetCame) {
				for _, p := range packets {
					got = append(got, fmt.Sprint(p.mark, len(p.data), p.data[0]))
				}
			}
			random := rand.New(rand.NewPCG(5, 6))
			p := make([]byte, 2000)
			for round := range 30 {
				g.opening.policy = everyBatch(workers)
				for i := range 300 {
					n := 2*maxControl + random.IntN(1000)
					if i%100 > 90 {
						n = 1 + random.IntN(maxControl)
					}
					mark := udp.Mark(random.IntN(4))
					d := sealed(t, seal, dtlsData, string(bytes.Repeat([]byte{byte(i)}, n)))
					want = append(want, fmt.Sprint(mark, n, byte(i)))
					if i == 250 {
						d = append(d, sealed(t, seal, dtlsAlert, "\x01\x00")...)
					}
					if n, err := g.admit(p, d, mark); (n > 0) != (i == 250) || err != nil {
						t.Fatalf("round %d, record %d: %d bytes for pion, %v", round, i, n, err)
					}
				}
				g.handOn()
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d packets came of %d, or in another order", len(got), len(want))
			}
		})
	}
}

// TestWorkersAreFew: the workers of the process are one fewer than its cores, and no goroutine stays behind for a
// connection.
func TestWorkersAreFew(t *testing.T) {
	spreadWorkers()
	count := func() int {
		stacks := make([]byte, 1<<20)
		return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("tunnel.takeSpreads"))
	}
	before := runtime.NumGoroutine()
	for range 20 {
		client, server := suitePair(t, suiteAES256, nil)
		kept := &keptBatches{}
		w := &sealedWriter{conn: kept, seal: &client.keys.Load().seal, policy: everyBatch(nil)}
		b := openingBatch{policy: everyBatch(nil)}
		if err := write(w, slices.Repeat([][]byte{make([]byte, 1400)}, 1000), func(int) udp.Mark { return 0 }); err != nil {
			t.Fatal(err)
		}
		records, _ := kept.records(t, &w.seal.recordForm)
		for _, r := range records[:maxOpened] {
			b.add(&server.keys.Load().open, r)
		}
		b.each(&server.keys.Load().open, func(int, byte, []byte, bool) {}, func() {})
	}
	for until := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d goroutines, and before %d", runtime.NumGoroutine(), before)
		}
	}
	if n, want := count(), runtime.GOMAXPROCS(0)-1; n > 2*want { // each stack names the function, and its maker's may
		t.Errorf("%d workers, want %d", n, want)
	}
}

// TestSpreadPolicy: workers are asked where that makes batches faster, and elsewhere only for trials, which become
// rare.
func TestSpreadPolicy(t *testing.T) {
	workers, _ := testWorkers(t, 1)
	const batch = 16 // units
	for name, c := range map[string]struct {
		all   time.Duration // that a batch takes by all cores; alone 200 µs
		share float64       // of the work for which they are asked, at most, or, where they help, at least
		helps bool
	}{
		"idle cores": {130 * time.Microsecond, 0.95, true}, "busy cores": {210 * time.Microsecond, 0.02, false}, "no gain": {195 * time.Microsecond, 0.02, false},
	} {
		p := spreadPolicy{workers: workers}
		asked, sum := time.Duration(0), time.Duration(0)
		for now := time.Now(); sum < time.Minute; {
			took := 200 * time.Microsecond
			if p.begin(now) != nil {
				took = c.all
				asked += took
			}
			now = now.Add(took)
			sum += took
			p.learn(now, batch, took, false)
		}
		if share := asked.Seconds() / sum.Seconds(); share < c.share == c.helps {
			t.Errorf("%s: workers are asked for %.3f of the work", name, share)
		}
		p = everyBatch(workers)
		now := time.Now()
		p.learn(now, batch, c.all, true)
		if p.begin(now.Add(holdTime/2)) != nil {
			t.Errorf("%s: workers are asked although one had to be waited for", name)
		}
	}
}

// A discarded is where packets go that nobody needs.
type discarded struct{}

func (discarded) WriteBatch([]byte, int, udp.Mark) error { return nil }

// BenchmarkCores seals and opens batches, by all cores and by one in turns. It reports the rate of all as a multiple of
// that of one, and their processor time as one of its.
func BenchmarkCores(b *testing.B) {
	ranktest.Unwatched(b)
	const turn = 8 << 20
	for _, size := range []int{1448, dtlsDatagramBytes} {
		client, server := suitePair(b, suiteAES256, connectionIDs["with an id"])
		seal, open := &client.keys.Load().seal, &server.keys.Load().open
		packet := make([]byte, size-seal.overhead())
		send := func(w *sealedWriter) {
			for n := 0; n < turn; n += size {
				room := w.Room()
				if room == nil {
					if err := w.Flush(); err != nil {
						b.Fatal(err)
					}
					room = w.Room()
				}
				w.Put(append(room, packet...), 0)
			}
			if err := w.Flush(); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("seal/datagram=%d", size), func(b *testing.B) {
			all, one := &sealedWriter{conn: discarded{}, seal: seal, policy: everyBatch(nil)}, &sealedWriter{conn: discarded{}, seal: seal, policy: noBatch()}
			compare(b, turn, func(alone bool) {
				seal.next = 0 // nothing leaves
				w := all
				if alone {
					w = one
				}
				send(w)
			})
		})
		b.Run(fmt.Sprintf("open/datagram=%d", size), func(b *testing.B) {
			kept := &keptBatches{}
			seal.next = 0
			send(&sealedWriter{conn: kept, seal: seal})
			var records [][]byte
			for _, batch := range kept.batches {
				for ; len(batch) > 0; batch = batch[min(size, len(batch)):] {
					records = append(records, batch[:min(size, len(batch))])
				}
			}
			memory := make([]byte, maxOpened*size)
			all, one := openingBatch{policy: everyBatch(nil)}, openingBatch{policy: noBatch()}
			compare(b, turn, func(alone bool) {
				batch := &all
				if alone {
					batch = &one
				}
				open.came, open.forged = replayWindow{}, 0
				open.next.Store(0)
				came, bytes := 0, 0
				for i, r := range records {
					r = memory[bytes : bytes+copy(memory[bytes:], r)]
					batch.add(open, r)
					if bytes += len(r); batch.full() || bytes > 8*(64<<10)-size || i == len(records)-1 {
						batch.each(open, func(int, byte, []byte, bool) { came++ }, func() {})
						bytes = 0
					}
				}
				if came != len(records) {
					b.Fatalf("%d of %d records came", came, len(records))
				}
			})
		})
	}
}

// compare runs run in turns for all cores and for one, which moves bytes each time.
func compare(b *testing.B, bytes int64, run func(alone bool)) {
	var wall, cpu [2]time.Duration
	turn := func(i int) {
		began, used := time.Now(), cpuTime()
		run(i == 1)
		wall[i] += time.Since(began)
		cpu[i] += cpuTime() - used
	}
	b.SetBytes(bytes)
	for b.Loop() {
		turn(0)
		b.StopTimer()
		turn(1)
		b.StartTimer()
	}
	b.ReportMetric(wall[1].Seconds()/wall[0].Seconds(), "rate/one")
	b.ReportMetric(cpu[0].Seconds()/cpu[1].Seconds(), "cpu/one")
}

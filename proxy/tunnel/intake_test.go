package tunnel

import (
	"bytes"
	"runtime"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// A peer that sends the shortest records without end is read at a rate, on all its carriers together, and the other
// peer feels nothing.
func TestRecordsHaveARate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := besiege(t, nil, nil)
		rate := recordRate * runtime.GOMAXPROCS(0)
		other := s.intrude(s.mallory.mine, func(h *hello) { h.place.slot = 1 })
		record := header{kind: kindDone, stream: s.mallory.id(0)}.appendShort(nil)
		many := bytes.Repeat(record, rate) // on each carrier: a second of them more than may come at once
		s.drain()
		begin := time.Now()
		for _, p := range []*puppet{s.mallory, other} {
			go p.conn.Write(many)
		}
		taken := func() (n int) {
			session := s.tokyo.peerByID("spiffe://lab/mallory").session()
			session.mu.Lock()
			defer session.mu.Unlock()
			for _, c := range session.carriers {
				n += int(c.records.Load())
			}
			return n
		}
		for second := 0.; second < 1; second = time.Since(begin).Seconds() {
			time.Sleep(100 * time.Millisecond)
			limit := float64(rate) * (recordBurst.Seconds() + time.Since(begin).Seconds())
			if n := taken(); float64(n) > limit {
				t.Fatalf("%d records were taken within %v, %.0f may be", n, time.Since(begin), limit)
			}
			echoes(t, s.honest)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := taken(); n < 2*rate {
			t.Errorf("%d records were taken in the end, of %d", n, 2*rate)
		}
		s.stands()
		other.conn.Close()
		s.lift()
	})
}

// Calls of a Link that bring a byte each count as records do: a record of TLS may be as short.
func TestShortReadsHaveARate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var i intake
		i.begin()
		rate := recordRate * runtime.GOMAXPROCS(0)
		r := pacedReader{link: iotest.OneByteReader(bytes.NewReader(make([]byte, 3*rate))), intake: &i}
		begin := time.Now()
		for b := make([]byte, 4096); ; {
			if _, err := r.Read(b); err != nil {
				break
			}
		}
		if took := time.Since(begin).Seconds(); took < 1.99 || took > 2.01 {
			t.Errorf("the bytes of three seconds, of which those of one may come at once, came within %.3f s", took)
		}
	})
}

package history

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

var link = Name{Peer: "tokyo", Link: true}

// at returns a Sample of the link whose counters are n.
func at(n int64) []Sample {
	return []Sample{{Name: link, Raw: 10 * n, Wire: 3 * n, Delivered: 5 * n, Sent: 4 * n, Received: 2 * n, RTT: 50 * time.Millisecond, Goodput: 1e6}}
}

// column returns a column of the link's series and its sum.
func column(t *testing.T, table Table, of func(*Series) []int64) (all []int64, sum int64) {
	t.Helper()
	for i := range table.Series {
		if table.Series[i].Name == link {
			all = of(&table.Series[i])
		}
	}
	for _, v := range all {
		sum += v
	}
	return all, sum
}

func sent(s *Series) []int64 { return s.Sent }

// A series takes as much memory as Memory counts for it.
func TestMemory(t *testing.T) {
	var r Recorder
	r.Add(time.Unix(1_000_000_080, 0), at(1))
	s := r.order[0]
	n := int(unsafe.Sizeof(*s)) + 2*maxName
	for _, slots := range s.slots {
		n += cap(slots) * int(unsafe.Sizeof(slot{}))
	}
	if n > seriesMemory || n < seriesMemory*9/10 {
		t.Errorf("%d bytes for a series, of which %d are counted", n, seriesMemory)
	}
}

// Each ring has the rises of the counters in its slots, so that their sum is the counter as long as the ring reaches;
// the memory does not grow.
func TestRingsHoldRises(t *testing.T) {
	var r Recorder
	begin := time.Unix(1_000_000_080, 0) // a multiple of all steps
	const seconds = 1000
	for n := range int64(seconds) {
		r.Add(begin.Add(time.Duration(n)*time.Second), at(n+1))
	}
	for step, want := range map[int]struct{ slots, sum int64 }{1: {300, 4 * 300}, 10: {100, 4 * seconds}, 240: {5, 4 * seconds}} {
		table := r.Table(step, 0)
		all, sum := column(t, table, sent)
		if int64(len(all)) != want.slots || sum != want.sum || len(table.Times) != len(all) {
			t.Errorf("steps of %d s: %d slots with %d bytes, want %d with %d", step, len(all), sum, want.slots, want.sum)
		}
	}
	if all, sum := column(t, r.Table(10, 2), sent); len(all) != 2 || sum != 80 {
		t.Errorf("the last two slots: %v", all)
	}
	if r.Table(7, 0).Step != 0 {
		t.Error("a table of a step that there is not")
	}
}

// A counter that begins anew does not make a slot negative; a pause of the process leaves a gap, and an outage is
// counted in seconds.
func TestGapsRestartsAndOutages(t *testing.T) {
	var r Recorder
	begin := time.Unix(1_000_000_080, 0)
	r.Add(begin, at(100))
	r.Add(begin.Add(time.Second), at(1))
	down := at(1)
	down[0].Down, down[0].RTT, down[0].Goodput = true, 0, 0
	r.Add(begin.Add(2*time.Second), down)
	r.Add(begin.Add(500*time.Millisecond), at(2)) // the clock goes back
	r.Add(begin.Add(40*time.Second), at(3))
	table := r.Table(10, 0)
	all, sum := column(t, table, sent)
	if len(all) != 2 || table.Times[1]-table.Times[0] != 40 || sum != 4*(100+1+1+1) {
		t.Errorf("slots %v at %v", all, table.Times)
	}
	if s := table.Series[0]; s.Down[0] < 1 || s.Down[1] != 0 || s.RTT[0] != 0.05 {
		t.Errorf("down for %v, RTT %v", s.Down, s.RTT)
	}
}

// An outage begins with the last sign of life, in all rings, though it is noted later; the slots since then are given
// again for a while.
func TestOutagesBeginWithTheLastSignOfLife(t *testing.T) {
	var r Recorder
	begin := time.Unix(1_000_000_080, 0)
	for i := range 20 {
		all := at(int64(i))
		if i >= 15 { // noted 4.5 s after the last sign of life
			all[0].Down, all[0].Outage = true, time.Duration(i-15)*time.Second+4500*time.Millisecond
		}
		r.Add(begin.Add(time.Duration(i)*time.Second), all)
		if i == 14 && len(r.Newest(1).Times) != 2 || i == 15 && len(r.Newest(1).Times) < 6 {
			t.Errorf("second %d: %d newest slots", i, len(r.Newest(1).Times))
		}
	}
	for step, want := range map[int][]float32{1: {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.5, 1, 1, 1, 1, 1, 1, 1, 1}, 10: {0, 8.5}, 240: {8.5}} {
		got := r.Table(step, 0).Series[0].Down
		if !slices.Equal(got, want) {
			t.Errorf("slots of %d s were down for %v, want %v", step, got, want)
		}
	}
	if len(r.Newest(1).Times) < 9 {
		t.Error("the slots of the outage are not given again")
	}
	r.Add(begin.Add(26*time.Second), at(30))
	if n := len(r.Newest(1).Times); n > 2 {
		t.Errorf("%d newest slots long after an outage was noted", n)
	}
}

// There are only so many series, however many peers and jobs there are.
func TestSeriesAreBounded(t *testing.T) {
	var r Recorder
	var many []Sample
	for i := range 10 * maxSeries {
		many = append(many, Sample{Name: Name{Peer: strings.Repeat("x", i)}})
	}
	r.Add(time.Unix(1000, 0), many)
	if n := len(r.Table(1, 0).Series); n != maxSeries {
		t.Errorf("%d series, want %d", n, maxSeries)
	}
}

// A history that was saved goes on in another process, and its slots that are too old are left out.
func TestHistoryOutlivesTheProcess(t *testing.T) {
	var first, second, third Recorder
	begin := time.Unix(1_000_000_080, 0)
	for n := range int64(100) {
		first.Add(begin.Add(time.Duration(n)*time.Second), at(n+1))
	}
	var file bytes.Buffer
	if err := first.Save(&file); err != nil {
		t.Fatal(err)
	}
	again := begin.Add(300 * time.Second)
	if err := second.Load(bytes.NewReader(file.Bytes()), again); err != nil {
		t.Fatal(err)
	}
	second.Add(again, at(7)) // its counters began with it
	table := second.Table(10, 0)
	all, sum := column(t, table, sent)
	if len(all) != 11 || sum != 4*(100+7) || all[10] != 28 {
		t.Errorf("%v", all)
	}
	if err := third.Load(bytes.NewReader(file.Bytes()), begin.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if n := len(third.Table(10, 0).Times); n != 1 { // of the time of Load
		t.Errorf("%d slots of two hours ago", n-1)
	}
	if _, sum := column(t, third.Table(240, 0), sent); sum != 400 {
		t.Errorf("the day has %d bytes, want 400", sum)
	}
}

// Any bytes are read without harm, and a history that was read can be saved again.
func FuzzLoad(f *testing.F) {
	var r Recorder
	begin := time.Unix(1_000_000_080, 0)
	r.Add(begin, at(3))
	var file bytes.Buffer
	if err := r.Save(&file); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add([]byte(`{"version":1,"tables":[{"step":10,"times":[-5,1,1000000080],"series":[{"peer":"x"}]}]}`))
	f.Add([]byte(`{"version":1,"tables":[{"step":240,"times":[9223372036854775807]}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r Recorder
		if err := r.Load(bytes.NewReader(text), begin); err != nil {
			if !errors.Is(err, ErrFile) {
				t.Fatal(err)
			}
			if len(r.order) != 0 {
				t.Fatal("a history that was refused has left series")
			}
			return
		}
		r.Add(begin.Add(time.Second), at(1))
		if err := r.Save(new(bytes.Buffer)); err != nil {
			t.Fatal(err)
		}
	})
}

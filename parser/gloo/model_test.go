package gloo

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
)

// int64s and int32s write numbers as DDP broadcasts them.
func int64s(numbers ...int64) (b []byte) {
	for _, x := range numbers {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

func int32s(numbers ...int32) (b []byte) {
	for _, x := range numbers {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return b
}

// These are the captured shapes and announcements of a model of 11 parameters, whose buckets are 9 and 2 of them.
var capturedOrder, capturedSizes = int32s(10, 9, 8, 7, 5, 6, 4, 3, 2, 1, 0, 2), int32s(9, 2)

// deliver gives a payload to m as a connection does.
func deliver(m *metadata, from parser.Side, k kind, tag uint32, b []byte) bool {
	o := op{code: sendUnboundBuffer, slot: slotOf(k, tag), length: len(b)}
	if !m.wants(from, o) {
		return false
	}
	m.take(from, o, b)
	return true
}

func TestLearnsAModel(t *testing.T) {
	shapes := [][]int64{{32, 40}, {32}, {9000, 32}, {96, 32}, {96}, {96}, {96}, {97, 96}, {97}, {10, 97}, {10}}
	numbers, counts := shapesOf(shapes)
	m := alone(new(facts))
	for range 2 { // three ranks: each sends the blocks of two
		deliver(m, parser.Client, allGather, 0, int32s(11))
		deliver(m, parser.Client, allGather, 0, int32s(0))
	}
	deliver(m, parser.Client, broadcast, 1, int64s(numbers...))
	if len(m.models) != 1 || !slices.Equal(m.models[0].counts, counts) {
		t.Fatalf("models %+v", m.models)
	}
	if n := m.ranks(m.models); n != 3 {
		t.Errorf("%d ranks, want 3", n)
	}
	if deliver(m, parser.Client, broadcast, 2, make([]byte, 1213012)) {
		t.Error("the parameters are kept")
	}
	if m.models[0].announced() != nil {
		t.Error("buckets before the announcement")
	}
	deliver(m, parser.Client, broadcast, 9, capturedOrder)
	deliver(m, parser.Client, broadcast, 10, capturedSizes)
	if got, want := m.models[0].announced(), []uint64{counts[10] + counts[9] + counts[8] + counts[7] + counts[5] + counts[6] + counts[4] + counts[3] + counts[2], counts[1] + counts[0]}; !slices.Equal(got, want) {
		t.Errorf("buckets %v, want %v", got, want)
	}

	// Another connection of the job hears the all-gather only, and knows the model all the same.
	other := alone(m.said[0])
	for range 2 {
		deliver(other, parser.Server, allGather, 0, int32s(11))
		deliver(other, parser.Server, allGather, 0, int32s(0))
	}
	if got := other.relevant(); len(got) != 1 || got[0] != m.models[0] || other.ranks(got) != 3 {
		t.Errorf("the other connection: %v, %d ranks", got, other.ranks(got))
	}
	if got := (alone(new(facts))).relevant(); len(got) != 0 {
		t.Error("another job knows the model")
	}
}

// A site hears of a model from the first rank's site alone, and knows it on connections with other sites too, beside
// the ones that hostile sites tell of for the same all-gather. Where one of the two ends' sites has told of a model
// there is no other, whatever a third peer has said before or says then.
func TestModelsOfTheTwoSitesComeFirst(t *testing.T) {
	numbers, counts := shapesOf([][]int64{{32, 40}, {32}})
	j := new(job)
	with := func(peer string) *metadata { // on a connection that ranks of this site have opened
		m := &newConnection(parser.Conn{Job: "job", Peer: peer}, j).meta
		deliver(m, parser.Client, allGather, 0, int32s(2))
		deliver(m, parser.Client, allGather, 0, int32s(0))
		return m
	}
	honest := func(x *model) bool { return slices.Equal(x.counts, counts) }
	hostile, early, first := with("hostile"), with("early"), with("first") // in this ring the first rank hears the all-gather from here
	if got := early.relevant(); len(got) != 0 {
		t.Fatalf("%d models, and nobody has told of one", len(got))
	}
	for i := range int64(2 * maxModels) {
		others, _ := shapesOf([][]int64{{16, 80}, {33 + i}})
		deliver(hostile, parser.Server, broadcast, 1, int64s(others...))
		if i == maxModels {
			deliver(first, parser.Server, broadcast, 1, int64s(numbers...))
		}
		if got := early.relevant(); slices.ContainsFunc(got, honest) != (i >= maxModels) || len(got) > 1+maxModels {
			t.Fatalf("%d models of other sites, the honest one is among them: %v", len(got), slices.ContainsFunc(got, honest))
		}
	}
	deliver(early, parser.Server, broadcast, 1, int64s(numbers...))
	silent := &newConnection(parser.Conn{Job: "job", Peer: "silent"}, j).meta
	for name, m := range map[string]*metadata{"that heard others first": early, "of the first rank": first, "that is new": with("early")} {
		if got := m.relevant(); len(got) != 1 || !honest(got[0]) {
			t.Errorf("%d models on a connection %s, want the honest one", len(got), name)
		}
	}
	if got := silent.relevant(); len(got) != 0 {
		t.Errorf("%d models on a connection that no all-gather has passed", len(got))
	}
}

// A run whose buckets are not announced has a model of its own, though an earlier run's with the same shapes were.
func TestEachRunHasItsModel(t *testing.T) {
	numbers, _ := shapesOf([][]int64{{32, 40}, {32}})
	j := new(job)
	run := func() *metadata {
		m := &newConnection(parser.Conn{Job: "job", Peer: "peer"}, j).meta
		deliver(m, parser.Server, allGather, 0, int32s(2))
		deliver(m, parser.Server, allGather, 0, int32s(0))
		deliver(m, parser.Server, broadcast, 1, int64s(numbers...))
		return m
	}
	m := run()
	deliver(m, parser.Server, broadcast, 9, int32s(1, 0, 1))
	if deliver(m, parser.Server, broadcast, 10, int32s(2)); m.models[0].announced() == nil {
		t.Fatal("the first run's buckets are not announced")
	}
	if again := run(); !slices.ContainsFunc(again.relevant(), func(x *model) bool { return x.announced() == nil }) {
		t.Error("the second run has the buckets of the first")
	}
}

// An announcement of more buckets than maxBuckets is none.
func TestBucketsAreBounded(t *testing.T) {
	m := &model{countGather: countGather{params: 2 * maxBuckets}}
	order := make([]int32, m.params)
	for i := range order {
		order[i] = int32(i)
	}
	for buckets, want := range map[int32]bool{maxBuckets: true, maxBuckets + 1: false} {
		if _, _, ok := m.parseOrder(int32s(append(slices.Clone(order), buckets)...)); ok != want {
			t.Errorf("%d buckets: %v", buckets, ok)
		}
	}
}

// Broadcasts that look a little like an announcement are none.
func TestRefusesWrongAnnouncements(t *testing.T) {
	numbers, _ := shapesOf([][]int64{{4, 3}, {4}, {2, 4}})
	for name, c := range map[string]struct{ order, sizes []byte }{
		"an index twice":         {int32s(0, 1, 1, 2), int32s(2, 1)},
		"an index too large":     {int32s(0, 1, 3, 2), int32s(2, 1)},
		"a negative index":       {int32s(0, 1, -1, 2), int32s(2, 1)},
		"no bucket":              {int32s(0, 1, 2, 0), nil},
		"more buckets than fit":  {int32s(0, 1, 2, 4), int32s(1, 1, 1, 0)},
		"too few in the buckets": {int32s(0, 1, 2, 2), int32s(1, 1)},
		"too many":               {int32s(0, 1, 2, 2), int32s(2, 2)},
		"an empty bucket":        {int32s(0, 1, 2, 2), int32s(3, 0)},
	} {
		m := alone(new(facts))
		deliver(m, parser.Client, allGather, 4, int32s(3))
		deliver(m, parser.Client, allGather, 4, int32s(0))
		deliver(m, parser.Client, broadcast, 5, int64s(numbers...))
		if len(m.models) != 1 {
			t.Fatal("no model")
		}
		deliver(m, parser.Client, broadcast, 6, c.order)
		deliver(m, parser.Client, broadcast, 7, c.sizes)
		if got := m.models[0].announced(); got != nil {
			t.Errorf("%s: buckets %v", name, got)
		}
	}
}

// However much is broadcast, little is kept.
func TestMetadataIsBounded(t *testing.T) {
	m := alone(new(facts))
	for tag := range uint32(1000) {
		deliver(m, parser.Client, allGather, 2*tag, int32s(3))
		deliver(m, parser.Client, allGather, 2*tag, int32s(0))
		numbers, _ := shapesOf([][]int64{{4, 3}, {int64(tag) + 2}, {2, 4}})
		deliver(m, parser.Client, broadcast, 2*tag+1, int64s(numbers...))
	}
	if len(m.gathers) > maxModels || len(m.models) > maxModels || len(m.said[0].gathers) > maxModels || len(m.said[0].models) > maxModels {
		t.Errorf("%d and %d all-gathers, %d and %d models", len(m.gathers), len(m.said[0].gathers), len(m.models), len(m.said[0].models))
	}
	if m.wants(parser.Client, op{code: sendUnboundBuffer, slot: slotOf(broadcast, 2001), length: 1 << 30}) {
		t.Error("a broadcast of 1 GiB is kept")
	}
}

// alone returns the metadata of a connection both of whose sides tell f.
func alone(f *facts) *metadata { return &metadata{job: new(job), said: [2]*facts{f, f}} }

package pslite

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// A key that was forgotten begins again, exactly.
func TestForgottenKeysAreExact(t *testing.T) {
	n := newNetwork(t, "job")
	w := n.connect(9, 8)
	n.protocol.facts.limits.pushed = 100
	w.say(of(3, 0))
	expect(t, "a gradient", w.say(of(3, 1)), tensor.Gradient, tensor.Float32)
	for k := range uint64(300) {
		w.say(of(1000+k, int32(2+k)))
	}
	expect(t, "a forgotten key", w.say(of(3, 400)), tensor.Exact, tensor.Float32)

	n.protocol.facts.limits.lives = 10
	for id := range 30 {
		n.connect(31+2*id, 8).say(say{kind: command, head: 3})
	}
	w.say(of(4, 500))
	expect(t, "a gradient", w.say(of(4, 501)), tensor.Gradient, tensor.Float32)
	for id := range 30 {
		n.connect(101+2*id, 8).say(say{kind: command, head: 3})
	}
	expect(t, "a forgotten life's key", w.say(of(4, 502)), tensor.Exact, tensor.Float32)
}

// A job that was forgotten counts as a job whose beginning was not seen.
func TestForgottenJobsAreUnknown(t *testing.T) {
	n := newNetwork(t, "")
	n.announce(9, all())
	back := n.connect(8, 9)
	expect(t, "a sum", back.say(pulled), tensor.Aggregate, tensor.Float32)
	for port := range 4 * production.places {
		a := netip.AddrPortFrom(netip.MustParseAddr("10.9.9.9"), uint16(1+port))
		n.protocol.facts.places.Keep(peerHash(""), placeKey{addr: a}, newJob(1, 1, 1), production.places)
	}
	expect(t, "an answer", back.say(pulled), tensor.Unknown, tensor.Float32)
}

// With more compressors than can be remembered, every key is taken to have one.
func TestTooManyCompressors(t *testing.T) {
	var j job
	for k := range uint64(3 * maxCoded) {
		j.code(k)
	}
	if len(j.coded) > maxCoded || j.plain(&meta{packed: true}, layout{dtype: tensor.Float32, key: 1 << 60}) {
		t.Errorf("%d keys; all coded: %v", len(j.coded), j.allCoded)
	}
}

// A table of too many nodes is none.
func TestTooManyNodes(t *testing.T) {
	n := newNetwork(t, "")
	var nodes []node
	for i := range maxNodes {
		nodes = append(nodes, node{id: 300 + i, host: "10.1.1.1", port: 1 + i})
	}
	n.announce(9, tableOf(false, append(nodes, nodeOf(1))...))
	expect(t, "an answer", n.connect(8, 9).say(pulled), tensor.Unknown, tensor.Float32)
	n.announce(9, tableOf(false, append(nodes[1:], nodeOf(1))...))
	expect(t, "a sum", n.connect(8, 9).say(pulled), tensor.Aggregate, tensor.Float32)
}

// Whatever a peer sends, memory is bounded: jobs, nodes and keys, and no room is kept for bytes that have not come.
func TestMemoryIsBounded(t *testing.T) {
	n := newNetwork(t, "")
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range 4 * production.tables {
		table := []node{{id: 1, host: fmt.Sprint("scheduler-", i), port: 1}}
		for k := range maxNodes - 1 {
			table = append(table, node{id: 8 + k, host: fmt.Sprintf("10.%d.%d.%d", i, k>>8, k&255), port: 1000 + k})
		}
		n.announce(9, tableOf(true, table...))
	}
	if grown := heap() - before; grown > 64<<20 {
		t.Errorf("tables take %d bytes", grown)
	}
	n = newNetwork(t, "job")
	n.announce(9, all())
	before = heap()
	for i := range 4 * maxNodes { // one node after the other has another address
		moved := node{id: 9, host: fmt.Sprintf("10.1.%d.%d", i>>8, i&255), port: 1 + i, recovery: true}
		n.announce(9, tableOf(false, moved))
		n.connect(9+2*i, 8).say(say{kind: command, head: 0})
	}
	if j := n.protocol.facts.named[scope{job: "job"}].job; len(j.table.nodes) > 2*maxNodes || len(j.table.at) > maxNodes || len(j.optimizers) > maxNodes {
		t.Errorf("%d addresses of %d nodes, %d workers with optimizers", len(j.table.nodes), len(j.table.at), len(j.optimizers))
	}
	if grown := heap() - before; grown > 32<<20 {
		t.Errorf("replaced nodes take %d bytes", grown)
	}
	w := n.connect(9, 8)
	w.send(0, []byte{3, 0, 0, 0, 0, 0, 0x0f, 0, 0}) // a meta of almost 1 MiB
	w.send(0, make([]byte, 1000))
	if s := w.parsers[parser.Client].(*stream); w.err[0] != nil || cap(s.undecided) > 4000 {
		t.Errorf("%d bytes for 1000; %v", cap(s.undecided), w.err[0])
	}
	w = n.connect(1, 8)
	long := multipart(meta{head: unset, command: addNode, nodes: make([]node, 5*maxNodes)}.proto())
	for _, b := range long {
		w.send(0, []byte{b})
	}
	if s := w.parsers[parser.Client].(*stream); w.err[0] != nil || s.count.messages != 1 || len(long) < 1<<16 || cap(s.undecided) > 1<<16 || s.msg.meta.nodes != nil {
		t.Errorf("after a meta of %d bytes %d are kept, and nodes; %v", len(long), cap(s.undecided), w.err[0])
	}
	runtime.KeepAlive(n)
}

// A peer that tells of jobs, nodes, processes and keys without end has its own facts forgotten, and none of another
// peer's.
func TestFloodOfAPeerForgetsNothingOfOthers(t *testing.T) {
	n := newNetwork(t, "")
	n.peer = "tokyo"
	n.announce(9, all())
	n.protocol.facts.limits = limits{tables: 4, places: 32, lives: 16, pushed: 64, indices: 16}
	back, w := n.connect(8, 9), n.connect(9, 8)
	w.say(of(3, 0))
	gradient := w.say(of(3, 1))
	expect(t, "a gradient", gradient, tensor.Gradient, tensor.Float32)

	n.peer = "osaka"
	for i := range 200 {
		boss, server := node{id: scheduler, host: "10.9.0.1", port: 1000 + i}, node{id: 8, host: "10.9.0.2", port: 1000 + i}
		n.announce(9, tableOf(false, nodeOf(9), server, boss))
		own := n.connectTo(9, netip.AddrPortFrom(netip.MustParseAddr("10.9.0.2"), uint16(1000+i)))
		for k := range uint64(4) {
			own.say(of(1000+k, int32(k)))
		}
	}
	f := &n.protocol.facts
	for what, x := range map[string]struct{ has, limit int }{"tables": {f.tables.Len(), f.limits.tables}, "places": {f.places.Len(), f.limits.places}, "lives": {f.lives.Len(), f.limits.lives},
		"pushed": {f.pushed.Len(), f.limits.pushed}} {
		if x.has != x.limit {
			t.Errorf("%d %s, want the limit %d, or the flood is none", x.has, what, x.limit)
		}
	}
	n.peer = "tokyo"
	again := w.say(of(3, 2))
	expect(t, "a gradient after the flood", again, tensor.Gradient, tensor.Float32)
	if again.Key != gradient.Key {
		t.Error("the tensor's key is another after the flood")
	}
	expect(t, "a sum after the flood", back.say(pulled), tensor.Aggregate, tensor.Float32)
	n.announce(11, all()) // the job's table is known
	expect(t, "a sum at another node", n.connect(8, 11).say(pulled), tensor.Aggregate, tensor.Float32)
	expect(t, "a gradient by another connection", n.connect(9, 8).say(of(3, 3)), tensor.Gradient, tensor.Float32)
}

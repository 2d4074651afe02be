package pslite

import (
	"net/netip"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// all is the table of a job of two servers and two workers.
func all() []byte { return tableOf(false, nodeOf(8), nodeOf(9), nodeOf(10), nodeOf(11), nodeOf(1)) }

// announce has the scheduler tell a node the table.
func (n *network) announce(to int, table []byte) { n.connect(1, to).send(0, table) }

var pulled = say{kind: answer, keys: []uint64{3}, vals: 40}

// Without configuration, connections are joined by the addresses in the scheduler's table, and facts stay within.
func TestTablesJoinConnections(t *testing.T) {
	n := newNetwork(t, "")
	before := n.connect(8, 9)
	expect(t, "an answer before the table", before.say(pulled), tensor.Unknown, tensor.Float32)
	n.announce(11, all())
	expect(t, "a sum", before.say(pulled), tensor.Aggregate, tensor.Float32)
	n.connect(11, 10).say(say{kind: command, head: 0})
	expect(t, "weights", before.say(pulled), tensor.State, tensor.Float32)
	expect(t, "weights to another", n.connect(10, 11).say(pulled), tensor.State, tensor.Float32)
	elsewhere := n.connectTo(8, netip.MustParseAddrPort("10.0.1.9:4009"))
	expect(t, "an answer elsewhere", elsewhere.say(pulled), tensor.Unknown, tensor.Float32)

	other := func(id int) node {
		m := nodeOf(id)
		m.host = "10.0.1." + m.host[len("10.0.0."):]
		return m
	}
	n.connectTo(1, netip.MustParseAddrPort("10.0.1.9:4009")).send(0, tableOf(false, other(8), other(9), other(1)))
	expect(t, "a sum elsewhere", elsewhere.say(pulled), tensor.Aggregate, tensor.Float32)
	expect(t, "weights still", before.say(pulled), tensor.State, tensor.Float32)
}

// Only the scheduler's table is one: a node that registers, or any other, joins nothing.
func TestTablesOfOthers(t *testing.T) {
	n := newNetwork(t, "")
	n.connect(9, 8).send(0, all())
	nodes := []node{nodeOf(8), nodeOf(9), nodeOf(1)}
	n.connect(1, 8).send(0, multipart(meta{head: unset, command: addNode, request: true, nodes: nodes}.proto()))
	n.connect(1, 8).send(0, multipart(meta{head: unset, command: 5, nodes: nodes}.proto()))
	expect(t, "an answer", n.connect(8, 9).say(pulled), tensor.Unknown, tensor.Float32)
}

// Two configured jobs, and two schedulers' jobs within one, know nothing of each other.
func TestJobsKnowNothingOfEachOther(t *testing.T) {
	n := newNetwork(t, "a")
	n.announce(8, all())
	n.connect(9, 8).say(say{kind: command, head: 0})
	expect(t, "weights", n.connect(8, 9).say(pulled), tensor.State, tensor.Float32)
	b := &network{t: t, protocol: n.protocol, job: "b"}
	b.announce(8, all())
	expect(t, "another job's sum", b.connect(8, 9).say(pulled), tensor.Aggregate, tensor.Float32)

	second := tableOf(false, nodeOf(28), nodeOf(29), node{id: 1, host: "10.0.0.1", port: 9999})
	n.announce(29, second)
	expect(t, "another scheduler's sum", n.connectTo(8, addressOf(29)).say(pulled), tensor.Aggregate, tensor.Float32)
	expect(t, "weights still", n.connect(8, 9).say(pulled), tensor.State, tensor.Float32)
}

// Where no job is configured, a peer that lists another's nodes as its own, or speaks for them, changes nothing for the
// other's tensors, and learns nothing of them.
func TestPeersKnowNothingOfEachOther(t *testing.T) {
	n := newNetwork(t, "")
	n.peer = "tokyo"
	n.announce(8, all())
	n.connect(9, 8).say(say{kind: command, head: 0})
	honest := n.connect(8, 9)
	expect(t, "weights", honest.say(pulled), tensor.State, tensor.Float32)
	mallory := &network{t: t, protocol: n.protocol, peer: "mallory"}
	mallory.announce(9, all())
	mallory.announce(8, tableOf(false, nodeOf(8), nodeOf(9), nodeOf(1)))
	mallory.announce(9, all())
	expect(t, "the other peer's sum", mallory.connect(8, 9).say(pulled), tensor.Aggregate, tensor.Float32)
	expect(t, "weights still", honest.say(pulled), tensor.State, tensor.Float32)
	expect(t, "weights on a new connection", n.connect(8, 9).say(pulled), tensor.State, tensor.Float32)
}

// A hostile peer of a configured job, which speaks for the job's nodes behind another peer, changes nothing for that
// one's tensors: neither by tables, nor as a worker that begins anew or gives an optimizer, nor by pushes.
func TestPeerSpeaksForItself(t *testing.T) {
	for _, table := range []bool{false, true} { // whether this site's scheduler has told a third peer the table before
		peerSpeaksForItself(t, table)
	}
}

func peerSpeaksForItself(t *testing.T, table bool) {
	n := newNetwork(t, "job")
	if table {
		(&network{t: t, protocol: n.protocol, job: "job", peer: "osaka", own: parser.Client}).announce(9, all())
	}
	n.peer, n.own = "tokyo", parser.Server // Tokyo's nodes dial this site's server
	n.connect(9, 8).say(say{kind: command, head: 3, time: 0})
	mallory := &network{t: t, protocol: n.protocol, job: "job", peer: "mallory", own: parser.Server}
	answers := func() *wire { // of this site's server, to Tokyo's worker
		c := *n
		c.own = parser.Client
		return c.connect(8, 9)
	}()
	expect(t, "a sum", answers.say(pulled), tensor.Aggregate, tensor.Float32)
	mallory.connect(9, 8).say(say{kind: command, head: 0, time: 0})
	expect(t, "a sum still", answers.say(pulled), tensor.Aggregate, tensor.Float32)
	n.connect(9, 8).say(say{kind: command, head: 0, time: 5})
	expect(t, "weights", answers.say(pulled), tensor.State, tensor.Float32)
	for _, to := range []int{9, 8, 9} {
		mallory.announce(to, all())
		mallory.announce(to, tableOf(false, nodeOf(8), nodeOf(9), nodeOf(1)))
	}
	mallory.connect(9, 8).say(say{kind: command, head: 3, time: 0})
	mallory.connect(9, 8).say(say{kind: command, head: 3, time: 0})
	got := answers.say(pulled)
	expect(t, "weights still", got, tensor.State, tensor.Float32)
	worker := n.connect(9, 8)
	expect(t, "Tokyo's first push", worker.say(of(3, 6)), tensor.Exact, tensor.Float32)
	mallory.connect(9, 8).say(of(3, 0))
	expect(t, "Tokyo's second push", worker.say(of(3, 7)), tensor.Gradient, tensor.Float32)
}

// The words of this site's nodes hold for all peers of a job, also for one that comes later: a table of a scheduler
// here, an optimizer that a worker here gives, and one of another peer's worker once a server here has answered it.
func TestThisSiteSpeaksForTheJob(t *testing.T) {
	for _, c := range []struct {
		name  string
		given func(n *network, as func(peer string, own parser.Side) *network)
	}{
		{"by a worker here", func(_ *network, as func(string, parser.Side) *network) {
			as("osaka", parser.Client).connect(9, 10).say(say{kind: command, head: 0, time: 0})
		}},
		{"by another peer's worker", func(_ *network, as func(string, parser.Side) *network) {
			asked := as("osaka", parser.Server).connect(9, 8)
			asked.say(say{kind: command, head: 0, time: 0})
			as("osaka", parser.Client).connect(8, 9).send(0, multipart(meta{head: 0, simple: true}.proto()))
		}},
	} {
		for _, late := range []bool{false, true} {
			n := newNetwork(t, "job")
			as := func(peer string, own parser.Side) *network {
				return &network{t: t, protocol: n.protocol, job: "job", peer: peer, own: own}
			}
			answers := func() *wire { return as("tokyo", parser.Client).connect(8, 11) }
			if !late {
				answers()
			}
			as("osaka", parser.Client).announce(9, all())
			expect(t, c.name+": a sum", answers().say(pulled), tensor.Aggregate, tensor.Float32)
			if late {
				n = newNetwork(t, "job")
				as("osaka", parser.Client).announce(9, all())
			}
			c.given(n, as)
			a := answers()
			if got := a.say(pulled); got.Role != tensor.State || a.parsers[0].(*stream).conn.job.table.node(addressOf(11)) != 11 {
				t.Errorf("%s, late %v: %+v", c.name, late, got)
			}
		}
	}
}

// A job that runs again begins again: with another table, with the same one on another connection, and, where no table
// is seen, when a worker counts its requests from the start again.
func TestRuns(t *testing.T) {
	run := func(n *network, what string, want [3]tensor.Role) {
		t.Helper()
		w := n.connect(9, 8)
		w.say(say{kind: command, head: 3, time: 0})
		expect(t, what+": the first push", w.say(of(3, 2)), want[0], tensor.Float32)
		expect(t, what+": the second push", w.say(of(3, 3)), want[1], tensor.Float32)
		expect(t, what+": an answer", n.connect(8, 9).say(pulled), want[2], tensor.Float32)
	}
	fresh := [3]tensor.Role{tensor.Exact, tensor.Gradient, tensor.Aggregate}
	for _, again := range []struct {
		name  string
		table []byte
		first int // the node that gets the table
	}{
		{"the same table", all(), 9},
		{"another table", tableOf(false, nodeOf(8), nodeOf(11), nodeOf(10), nodeOf(9), nodeOf(1)), 10},
	} {
		n := newNetwork(t, "job")
		for _, id := range []int{9, 11, 8} {
			n.announce(id, all())
		}
		run(n, "the first run", fresh)
		n.connect(9, 8).say(say{kind: command, head: 0, time: 5})
		n.announce(again.first, again.table)
		run(n, again.name, fresh)
		n.announce(11, again.table)
		expect(t, "the table told to the next", n.connect(9, 8).say(of(3, 4)), tensor.Gradient, tensor.Float32)
	}

	n := newNetwork(t, "job")
	run(n, "without a table", fresh)
	n.connect(9, 8).say(say{kind: command, head: 0, time: 5})
	expect(t, "weights", n.connect(8, 9).say(pulled), tensor.State, tensor.Float32)
	run(n, "without a table, again", fresh)
}

// A table that is sent again on its connection, as with PS_RESEND, is no new run.
func TestTablesSentAgain(t *testing.T) {
	n := newNetwork(t, "job")
	w := n.connect(1, 9)
	w.send(0, all())
	n.connect(9, 8).say(say{kind: command, head: 0})
	w.send(0, all())
	expect(t, "weights", n.connect(8, 9).say(pulled), tensor.State, tensor.Float32)
}

// A worker that connects again goes on with its keys.
func TestConnectingAgain(t *testing.T) {
	n := newNetwork(t, "job")
	w := n.connect(9, 8)
	w.say(say{kind: command, head: 0, time: 0})
	w.say(of(3, 1))
	key := w.say(of(3, 2)).Key
	again := n.connect(9, 8)
	got := again.say(of(3, 3))
	expect(t, "a gradient", got, tensor.Gradient, tensor.Float32)
	if got.Key != key || key == 0 {
		t.Errorf("key %x, and %x after a new connection", key, got.Key)
	}
	expect(t, "a new key's initial weights", again.say(of(4, 4)), tensor.Exact, tensor.Float32)
	expect(t, "weights", n.connect(8, 9).say(pulled), tensor.State, tensor.Float32)
}

// A worker that takes a dead one's place begins its keys, once, and the others go on.
func TestRecovery(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		n := newNetwork(t, "job")
		for _, id := range []int{8, 9, 10, 11} {
			n.announce(id, all())
		}
		nine, eleven := n.connect(9, 8), n.connect(11, 8)
		for time := range int32(4) {
			nine.say(of(3, time))
			eleven.say(of(3, time))
		}
		eleven.say(say{kind: command, head: 0, time: 5})
		back := nodeOf(9)
		if back.recovery = true; !fixed {
			back.port++
		}
		for _, id := range []int{8, 10, 11} {
			n.announce(id, tableOf(false, back))
		}
		listener, _ := back.address()
		n.connectTo(1, listener).send(0, tableOf(false, nodeOf(8), back, nodeOf(10), nodeOf(11), nodeOf(1)))

		first := int32(0)
		if !fixed {
			first = 1 // the table alone tells
		}
		nine = n.connect(9, 8)
		expect(t, "initial weights again", nine.say(of(3, first)), tensor.Exact, tensor.Float32)
		expect(t, "a gradient", nine.say(of(3, first+1)), tensor.Gradient, tensor.Float32)
		expect(t, "another worker's", eleven.say(of(3, 9)), tensor.Gradient, tensor.Float32)
		expect(t, "weights", n.connectTo(8, listener).say(pulled), tensor.State, tensor.Float32)
	}
}

// Keys tell workers, directions, customers and arrays apart. The parsing proxy and the connection make no
// difference.
func TestKeys(t *testing.T) {
	seen := map[uint64]string{}
	is := func(what string, got tensor.Tensor) {
		t.Helper()
		if seen[got.Key] != "" || got.Key == 0 {
			t.Errorf("%s and %s have key %x", what, seen[got.Key], got.Key)
		}
		seen[got.Key] = what
	}
	n := newNetwork(t, "job")
	n.announce(9, all())
	is("a push", n.connect(9, 8).say(of(3, 1)))
	is("another's push", n.connect(11, 8).say(of(3, 1)))
	is("another key's", n.connect(9, 8).say(of(4, 2)))
	is("another customer's", n.connect(9, 8).say(of(3, 3).with(func(s *say) { s.customer = 1 })))
	is("one with rows", n.connect(9, 8).say(say{kind: push, head: 1, keys: []uint64{3, 3}, vals: 40, lens: []int{0, 40}, time: 4}))
	is("an answer", n.connect(8, 9).say(pulled))
	is("another's answer", n.connect(8, 11).say(pulled))
	is("codes", n.connect(9, 8).say(say{kind: push, head: 3, keys: []uint64{9, 3}, vals: 40, lens: []int{0, 40}, time: 7}))
	is("an answer of BytePS's", n.connect(9, 8).say(pulled.with(func(s *say) { s.packed, s.back, s.keys = true, "ps8", []uint64{5} })))
	is("another's of BytePS's", n.connect(11, 8).say(pulled.with(func(s *say) { s.packed, s.back, s.keys = true, "ps8", []uint64{5} })))
	is("a list", n.connect(9, 8).say(say{kind: push, keys: []uint64{3}, vals: 40, types: [3]byte{8, 9}, frames: 2, time: 5}))
	is("a longer list", n.connect(9, 8).say(say{kind: push, keys: []uint64{3, 4}, vals: 40, types: [3]byte{8, 9}, frames: 2, time: 6}))

	other := newNetwork(t, "job") // the proxy at the other end, which saw more
	for range 5 {
		other.connect(9, 8)
	}
	other.announce(11, all())
	if seen[other.connect(8, 9).say(pulled).Key] != "an answer" || seen[other.connect(9, 8).say(of(3, 1)).Key] != "a push" {
		t.Error("another proxy has other keys")
	}
	is("another job's", newNetwork(t, "other").connect(9, 8).say(of(3, 1)))
	is("a job's without a name", newNetwork(t, "").connect(9, 8).say(of(3, 1)))
	named := newNetwork(t, "")
	named.announce(8, all())
	is("a scheduler's", named.connect(9, 8).say(of(3, 1)))

}

// Several nodes on one host differ by their ports, which the table knows; hosts can be names, and IPv6 addresses.
func TestNodesOnAHost(t *testing.T) {
	for _, c := range []struct {
		inTable, dialled string
		ports            bool // they alone tell
	}{
		{"10.0.0.7", "10.0.0.7", false}, {"fd00::7", "fd00::7", false}, {"[fd00::7]", "fd00::7", false}, {"10.0.0.7", "::ffff:10.0.0.7", false},
		{"::ffff:10.0.0.7", "10.0.0.7", false}, {"host.example", "10.0.0.7", true}, {"10.0.0.7", "192.0.2.1", true},
	} {
		n := newNetwork(t, "job")
		same := 1009 // another host's port
		if c.ports {
			same = 2000
		}
		at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(c.dialled), port) }
		n.connectTo(1, at(1009)).send(0, tableOf(false, node{id: 8, host: c.inTable, port: 1008}, node{id: 9, host: c.inTable, port: 1009},
			node{id: 10, host: c.inTable, port: 1010}, node{id: 11, host: c.inTable, port: 1011}, node{id: 13, host: "10.0.0.8", port: same}, node{id: 1, host: c.inTable, port: 1001}))
		first, second := n.connectTo(8, at(1009)).say(pulled), n.connectTo(8, at(1011)).say(pulled)
		again := n.connectTo(8, at(1009)).say(pulled)
		if first.Key == second.Key || first.Key != again.Key {
			t.Errorf("%s, dialled %s: keys %x, %x, and again %x", c.inTable, c.dialled, first.Key, second.Key, again.Key)
		}
		if other := n.connectTo(10, at(1009)).say(pulled.with(func(s *say) { s.keys = []uint64{1<<63 + 2} })); other.Key == first.Key {
			t.Errorf("%s: two servers' keys are one", c.inTable)
		}
	}
}

// A node that got the table at another address than its address in the table is of the job, and so are nodes that
// connect to it.
func TestTablesThroughAnAddress(t *testing.T) {
	n := newNetwork(t, "")
	outside := netip.MustParseAddrPort("192.0.2.1:80")
	n.connectTo(1, outside).send(0, all())
	expect(t, "a sum", n.connectTo(8, outside).say(pulled), tensor.Aggregate, tensor.Float32)
	mapped := netip.AddrPortFrom(netip.MustParseAddr("::ffff:10.0.0.9"), addressOf(9).Port())
	expect(t, "a sum", n.connectTo(8, mapped).say(pulled), tensor.Aggregate, tensor.Float32)
}

// A port that nodes of two hosts have says nothing by itself.
func TestPortsOfTwoHosts(t *testing.T) {
	var table table
	table.set(node{id: 9, host: "a.example", port: 5})
	table.set(node{id: 11, host: "b.example", port: 5})
	table.set(node{id: 9, host: "a.example", port: 5})
	table.set(node{id: 8, host: "10.0.0.1", port: 5})
	if id := table.node(netip.MustParseAddrPort("10.0.0.2:5")); id != 0 {
		t.Errorf("node %d", id)
	}
	if id := table.node(netip.MustParseAddrPort("10.0.0.1:5")); id != 8 {
		t.Errorf("node %d, want 8", id)
	}
}

// Where no table was seen, the worker that gets an answer is known by address and number, so that two on a host differ.
func TestAnswersWithoutATable(t *testing.T) {
	n := newNetwork(t, "job")
	if a, b := n.connect(8, 9).say(pulled), n.connectTo(8, netip.AddrPortFrom(addressOf(9).Addr(), 9999)).say(pulled); a.Key == b.Key || a.Key == 0 {
		t.Errorf("keys %x and %x", a.Key, b.Key)
	}
}

// Some captures do not show which side sent SYN: READY tells which side connected.
func TestSidesByReady(t *testing.T) {
	n := newNetwork(t, "job")
	n.announce(9, all())
	client, server := n.protocol.New(parser.Conn{Job: "job", Client: addressOf(8), Server: netip.MustParseAddrPort("10.0.0.9:33333")})
	w := &wire{t: t, parsers: [2]parser.Parser{client, server}}
	w.send(parser.Client, hello(0, "ROUTER", ""))
	w.send(parser.Server, hello(0, "DEALER", "ps9"))
	for time, want := range []tensor.Role{tensor.Exact, tensor.Gradient} {
		found := w.send(parser.Server, of(3, int32(time)).bytes())
		if len(found) != 1 {
			t.Fatalf("%d tensors, %v", len(found), w.err)
		}
		expect(t, "a push", found[0], want, tensor.Float32)
	}
}

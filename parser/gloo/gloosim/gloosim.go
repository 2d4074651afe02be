// Package gloosim makes the connections of a training job over Gloo, for tests: every rank's part of its collectives,
// byte for byte and in an order that could be, with the truth about every message beside it. It knows nothing of how
// package gloo finds that truth out.
//
// It follows gloo/allreduce.cc (ring), broadcast.cc, allgather.cc and transport/tcp/pair.cc.
package gloosim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// An Op is a collective operation. Its value is the kind in a slot.
type Op uint8

const (
	Skip      Op = 0 // a call that fails on every rank: it takes a tag and sends nothing
	AllGather Op = 2
	AllReduce Op = 4
	Broadcast Op = 6 // from rank 0
)

// A Call is a collective that every rank calls.
type Call struct {
	Op    Op
	Name  string // of the tensor; the same at each step
	Step  int
	Role  tensor.Role  // what the first phase of an all-reduce, or the message, is
	DType tensor.DType // of the elements
	Data  func(rank int) []byte
	Wait  bool // ranks wait for this and all earlier calls before they go on
}

// A Job is what to simulate.
type Job struct {
	Ranks   int
	Calls   []Call
	Tags    bool // calls are counted by their tags, and two run at a time (PyTorch); else tag 0, one at a time (JAX)
	FirstID bool // the side that connects first sends the pair's number (variant B)
	Seed    uint64
}

// A Message is the truth about a payload.
type Message struct {
	*Call
	Phase int // 1 or 2 of an all-reduce; else 0
	Rank  int // the sender
	Index int // among the messages of its call and sender
	Bytes []byte
}

// An Event is bytes that passed on one connection.
type Event struct {
	Conn    int
	From    parser.Side
	Bytes   []byte
	Message *Message // whose preamble and payload Bytes are; nil: something else
}

// A Conn is a connection between two ranks.
type Conn struct {
	Client, Server         int // ranks
	ClientAddr, ServerAddr netip.AddrPort
}

// A Trace is what passed on all connections, in an order that every rank could have seen.
type Trace struct {
	Conns  []Conn
	Events []Event
}

// Run simulates a job.
func Run(j Job) *Trace {
	s := &sim{job: j, rnd: rand.New(rand.NewPCG(j.Seed, 1)), pairs: map[[2]int]int{}}
	for a := range j.Ranks {
		for b := range a {
			client, server := a, b
			if s.rnd.IntN(2) == 0 {
				client, server = b, a
			}
			s.pairs[[2]int{a, b}] = len(s.trace.Conns)
			s.trace.Conns = append(s.trace.Conns, Conn{client, server, address(client, 40000+10*a+b), address(server, 5000+10*a+b)})
			if j.FirstID {
				s.emit(client, server, binary.LittleEndian.AppendUint64(nil, uint64(client)), nil)
			}
		}
	}
	s.ranks = make([]rank, j.Ranks)
	s.run()
	return &s.trace
}

func address(rank, port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rank + 1)}), uint16(port))
}

type sim struct {
	job   Job
	rnd   *rand.Rand
	pairs map[[2]int]int // connections by ranks, the greater first
	ranks []rank
	trace Trace
}

// A rank runs the program.
type rank struct {
	next   int // call
	active []*task
}

// emit notes bytes from one rank to another.
func (s *sim) emit(from, to int, b []byte, m *Message) {
	i := s.pairs[[2]int{max(from, to), min(from, to)}]
	side := parser.Client
	if s.trace.Conns[i].Server == from {
		side = parser.Server
	}
	s.trace.Events = append(s.trace.Events, Event{Conn: i, From: side, Bytes: b, Message: m})
}

// run lets ranks do what they can, in a random order, until all have returned from all calls.
func (s *sim) run() {
	workers := 1
	if s.job.Tags {
		workers = 2
	}
	for {
		var can []func()
		done := true
		for r := range s.ranks {
			k := &s.ranks[r]
			if k.next < len(s.job.Calls) || len(k.active) > 0 {
				done = false
			}
			if k.next < len(s.job.Calls) && len(k.active) < workers && (len(k.active) == 0 || !s.job.Calls[k.next-1].Wait) {
				can = append(can, func() { s.start(r) })
			}
			for _, t := range k.active {
				can = append(can, s.steps(t)...)
			}
		}
		if done {
			return
		}
		if len(can) == 0 {
			panic(fmt.Sprintf("gloosim: the ranks wait for each other, at calls %+v", s.ranks))
		}
		can[s.rnd.IntN(len(can))]()
	}
}

// start begins rank r's next call.
func (s *sim) start(r int) {
	k := &s.ranks[r]
	t := newTask(&s.job.Calls[k.next], k.next, r, s.job.Ranks)
	k.next++
	if len(t.sends)+len(t.recvs) > 0 {
		k.active = append(k.active, t)
	}
}

// slot returns the slot of a call.
func (s *sim) slot(t *task) uint64 {
	tag := 0
	if s.job.Tags {
		tag = t.index
	}
	return uint64(t.call.Op)<<56 | uint64(tag)<<24
}

// steps lists what a task can do now.
func (s *sim) steps(t *task) (can []func()) {
	if i := t.announced; i < len(t.sends) && t.received >= t.sends[i].after {
		can = append(can, func() {
			t.announced++
			s.emit(t.rank, t.sends[i].peer, preamble(2, s.slot(t), t.sends[i].size, false), nil)
		})
	}
	if i := t.posted; i < len(t.recvs) && t.received >= t.recvs[i].after {
		can = append(can, func() {
			t.posted++
			s.emit(t.rank, t.recvs[i].peer, preamble(3, s.slot(t), t.recvs[i].size, false), nil)
		})
	}
	if i := t.sent; i < t.announced {
		if to := s.peer(t, t.sends[i].peer); to != nil && to.posted > to.received && to.recvs[to.received].peer == t.rank {
			can = append(can, func() { s.transmit(t, to) })
		}
	}
	return can
}

// peer returns another rank's task of the same call, nil if that has not begun.
func (s *sim) peer(t *task, r int) *task {
	for _, p := range s.ranks[r].active {
		if p.index == t.index {
			return p
		}
	}
	return nil
}

// transmit sends t's next message, which its receiver takes at once.
func (s *sim) transmit(t, to *task) {
	x := t.sends[t.sent]
	b := append([]byte(nil), x.data()...)
	m := &Message{Call: t.call, Phase: x.phase, Rank: t.rank, Index: t.sent, Bytes: b}
	s.emit(t.rank, x.peer, append(preamble(1, s.slot(t), len(b), true), b...), m)
	t.sent++
	to.recvs[to.received].apply(b)
	to.received++
	s.retire(t)
	s.retire(to)
}

// retire takes a task that is done off its rank.
func (s *sim) retire(t *task) {
	if t.sent < len(t.sends) || t.received < len(t.recvs) {
		return
	}
	k := &s.ranks[t.rank]
	for i, x := range k.active {
		if x == t {
			k.active = append(k.active[:i:i], k.active[i+1:]...)
			return
		}
	}
}

// preamble returns the six integers that begin an op (transport/tcp/pair.h).
func preamble(opcode int, slot uint64, length int, payload bool) []byte {
	nbytes := 48
	if payload {
		nbytes += length
	}
	var b []byte
	for _, x := range []uint64{uint64(nbytes), uint64(opcode), slot, 0, uint64(length), 0} {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

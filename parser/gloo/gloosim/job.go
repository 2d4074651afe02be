package gloosim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Call is a collective that every rank calls.
type Call struct {
	Op    Op
	Name  string // of the tensor; the same at each step
	Step  int
	Role  tensor.Role  // of the message; in an all-reduce, of the first phase
	DType tensor.DType // of the elements
	Data  func(rank int) []byte
	Wait  bool // ranks wait for this and all earlier calls before they go on
}

// A Job is to be simulated.
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
	Rank  int // of the sender
	Index int // among the messages of its call and sender
	Bytes []byte
}

// An Event is bytes that passed on one connection.
type Event struct {
	Conn    int
	From    parser.Side
	Bytes   []byte
	Message *Message // Bytes are its preamble and payload; nil: Bytes are no message
}

// A Conn is a connection between two ranks.
type Conn struct {
	Client, Server         int // ranks
	ClientAddr, ServerAddr netip.AddrPort
}

// A Trace is the bytes of all connections, in an order that every rank could have seen.
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
	active []*running
}

// A running task is one rank's part of one call.
type running struct {
	*task
	call  *Call
	index int // of the call
	rank  int

	announced, sent  int // of sends
	posted, received int // of recvs
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

// run takes one possible step after another, in a random order, until all ranks have returned from all calls.
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
	call := &s.job.Calls[k.next]
	t := &running{task: newTask(call.Op, call.DType, s.buffer(call, r), r, s.job.Ranks, 0), call: call, index: k.next, rank: r}
	k.next++
	if len(t.sends)+len(t.recvs) > 0 {
		k.active = append(k.active, t)
	}
}

// buffer returns the buffer with which a rank begins a call.
func (s *sim) buffer(c *Call, r int) []byte {
	switch c.Op {
	case AllGather:
		own := c.Data(r)
		all := make([]byte, s.job.Ranks*len(own))
		copy(all[r*len(own):], own)
		return all
	case AllReduce, Broadcast:
		return bytes.Clone(c.Data(r))
	}
	return nil
}

// slot returns the slot of a call.
func (s *sim) slot(t *running) slotID {
	tag := 0
	if s.job.Tags {
		tag = t.index
	}
	return slot(t.call.Op, uint32(tag))
}

// steps lists the steps that a task can take now.
func (s *sim) steps(t *running) (can []func()) {
	head := func(o opcode, b []byte) []byte { return preamble{o, s.slot(t), uint64(len(b))}.appendTo(nil) }
	if i := t.announced; i < len(t.sends) && t.received >= t.sends[i].after {
		can = append(can, func() {
			t.announced++
			s.emit(t.rank, t.sends[i].peer, head(notifySendReady, t.sends[i].b), nil)
		})
	}
	if i := t.posted; i < len(t.recvs) && t.received >= t.recvs[i].after {
		can = append(can, func() {
			t.posted++
			s.emit(t.rank, t.recvs[i].peer, head(notifyRecvReady, t.recvs[i].into), nil)
		})
	}
	if i := t.sent; i < t.announced {
		if to := s.peer(t, t.sends[i].peer); to != nil && to.posted > to.received && to.recvs[to.received].peer == t.rank {
			can = append(can, func() { s.transmit(t, to, head(sendUnboundBuffer, t.sends[i].b)) })
		}
	}
	return can
}

// peer returns another rank's task of the same call, nil if that has not begun.
func (s *sim) peer(t *running, r int) *running {
	for _, p := range s.ranks[r].active {
		if p.index == t.index {
			return p
		}
	}
	return nil
}

// transmit sends t's next message behind head. Its receiver takes it at once.
func (s *sim) transmit(t, to *running, head []byte) {
	x := t.sends[t.sent]
	b := bytes.Clone(x.b)
	m := &Message{Call: t.call, Phase: x.phase, Rank: t.rank, Index: t.sent, Bytes: b}
	s.emit(t.rank, x.peer, append(head, b...), m)
	t.sent++
	to.recvs[to.received].take(t.call.DType, b)
	to.received++
	s.retire(t)
	s.retire(to)
}

// retire takes a task that is done off its rank.
func (s *sim) retire(t *running) {
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

package prober

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/bpf/probe"
)

// A host is a watcher whose processes are the apps of some connections.
type host struct {
	apps   map[netip.AddrPort]*process
	looked []netip.AddrPort // own and remotes of the last look
	memory *os.File         // of the newest calls; nil: there is none
}

type process struct {
	pid   int
	dead  atomic.Bool
	ended atomic.Value  // a string; none: it has not
	many  int           // calls
	held  chan struct{} // answers about calls wait until it is closed; nil: they do not
}

// gone is a process that has ended.
func gone(pid int) *process {
	p := &process{pid: pid}
	p.dead.Store(true)
	return p
}

func (p *process) Pid() int           { return p.pid }
func (p *process) Identity() uint64   { return 1<<63 + uint64(p.pid) }
func (p *process) Place() probe.Place { return probe.Place{Epoch: 1000 + uint32(p.pid)} }
func (p *process) Name() string       { return fmt.Sprint("rank", p.pid) }
func (p *process) Ended() string {
	reason, _ := p.ended.Load().(string)
	return reason
}

func (p *process) Calls(dst []probe.Call, tag uint32) []probe.Call {
	if p.held != nil {
		<-p.held
	}
	for i := range p.many {
		dst = append(dst, probe.Call{Source: uint64(i), Bucket: true, Elements: uint64(tag), Type: 6, Op: 1, Ranks: 3, Storage: 1 << 40, Freed: 5, Member: probe.Member{Rank: 2, Ranks: 4}})
	}
	return dst
}

func (p *process) Counts() (probe.Counts, error) {
	if p.dead.Load() {
		return probe.Counts{}, errors.New("it has ended")
	}
	return probe.Counts{Reduces: 4, Buckets: 3, ReducerBuckets: 2, Others: 1}, nil
}

func (h *host) Look(own netip.AddrPort, remotes ...netip.AddrPort) (watched, int, error) {
	h.looked = append([]netip.AddrPort{own}, remotes...)
	p := h.apps[own]
	switch {
	case p == nil:
		return nil, 0, fmt.Errorf("%w: nobody has it", probe.ErrSocket)
	case p.pid == 0:
		return nil, 0, probe.ErrNotAccepted
	case p.dead.Load():
		return nil, p.pid, errors.New("it has ended")
	}
	return p, p.pid, nil
}

func (h *host) Recent() int {
	if h.memory == nil {
		return -1
	}
	return int(h.memory.Fd())
}

func (h *host) Living(time.Time) (all []watched) {
	for _, p := range h.apps {
		if !p.dead.Load() {
			all = append(all, p)
		}
	}
	return all
}

func port(n uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), n) }

func serverOf(h *host) *server { return newServer(func() (watcher, error) { return h, nil }) }

// say has a server answer, and fails the test if it takes the request to be out of form.
func say(t *testing.T, s *server, r *request, own *connection) ([]byte, error) {
	t.Helper()
	answer, _, err := s.answer(r.encode(), own)
	if err != nil {
		t.Fatalf("request %+v: %v", r, err)
	}
	return open(answer)
}

// The server tells the calls and counts of a process that was found by a connection, and of no other process.
func TestAnswers(t *testing.T) {
	rank := &process{pid: 7, many: 5}
	h := &host{apps: map[netip.AddrPort]*process{port(1): rank, port(2): {}, port(3): gone(9)}}
	s := serverOf(h)
	for name := range uint32(4) { // nobody is known yet
		for _, o := range []op{opCalls, opCounts} {
			if _, err := say(t, s, &request{op: o, process: name}, nil); !errors.Is(err, errEnded) {
				t.Errorf("a process that was not found: %v", err)
			}
		}
	}
	body, err := say(t, s, &request{op: opLook, far: port(80)}, &connection{local: port(4000), app: port(1)})
	if err != nil {
		t.Fatal(err)
	}
	x, err := decodeSight(body)
	if want := (sight{1, 7, 1<<63 + 7, probe.Place{Epoch: 1007}, "rank7"}); err != nil || x != want {
		t.Fatalf("process %+v (%v), want %+v", x, err, want)
	}
	id := x.process
	if want := []netip.AddrPort{port(1), port(4000), port(80)}; fmt.Sprint(h.looked) != fmt.Sprint(want) {
		t.Errorf("looked for %v, want %v", h.looked, want)
	}
	body, err = say(t, s, &request{op: opCalls, process: id, tag: 12}, nil)
	calls, err2 := decodeCalls(nil, body)
	if err := errors.Join(err, err2); err != nil || fmt.Sprint(calls) != fmt.Sprint(rank.Calls(nil, 12)) {
		t.Errorf("calls %+v (%v), want %+v", calls, err, rank.Calls(nil, 12))
	}
	body, err = say(t, s, &request{op: opCounts, process: id}, nil)
	counts, err2 := decodeCounts(body)
	if want := (probe.Counts{Reduces: 4, Buckets: 3, ReducerBuckets: 2, Others: 1}); errors.Join(err, err2) != nil || counts != want {
		t.Errorf("counts %+v (%v), want %+v", counts, err, want)
	}
	rank.many = maxCalls + 1
	if _, err = say(t, s, &request{op: opCalls, process: id}, nil); !errors.Is(err, errEnded) {
		t.Errorf("too many calls: %v", err)
	}
	rank.many = 1
	rank.ended.Store("the map is gone")
	if _, err = say(t, s, &request{op: opCalls, process: id}, nil); !errors.Is(err, errEnded) || err.Error() != "the map is gone" {
		t.Errorf("a proof that has ended: %v", err)
	}
	if body, err = say(t, s, &request{op: opLiving}, nil); err != nil || !bytes.Equal(body, binary.BigEndian.AppendUint32(nil, id)) {
		t.Errorf("living %x: %v", body, err)
	}
	rank.dead.Store(true)
	if body, err = say(t, s, &request{op: opLiving}, nil); err != nil || len(body) != 0 {
		t.Errorf("living %x: %v", body, err)
	}
	for app, want := range map[netip.AddrPort]error{port(2): probe.ErrNotAccepted, port(4): probe.ErrSocket, {}: probe.ErrSocket} {
		if _, err := say(t, s, &request{op: opLook}, &connection{app: app}); !errors.Is(err, want) {
			t.Errorf("look for %v: %v, want %v", app, err, want)
		}
	}
	_, err = say(t, s, &request{op: opLook}, &connection{app: port(3)})
	if r := (*refusal)(nil); !errors.As(err, &r) || r.pid != 9 || errors.Is(err, probe.ErrSocket) {
		t.Errorf("look for a process that has ended: %v", err)
	}
}

// Programs that cannot be loaded are tried once.
func TestLoadFails(t *testing.T) {
	tries := 0
	s := newServer(func() (watcher, error) { tries++; return nil, errors.New("no such kernel") })
	for _, r := range []struct {
		*request
		own *connection
	}{{&request{op: opLoad}, nil}, {&request{op: opLook}, &connection{}}, {&request{op: opLiving}, nil}} {
		if _, err := say(t, s, r.request, r.own); err == nil || err.Error() != "no such kernel" {
			t.Errorf("op %d: %v", r.op, err)
		}
	}
	if tries != 1 {
		t.Errorf("loaded %d times", tries)
	}
}

// A proxy cannot have the prober keep more processes than a bound.
func TestProcessesAreBounded(t *testing.T) {
	h := &host{apps: map[netip.AddrPort]*process{}}
	s := serverOf(h)
	for i := range maxProcesses + 5 {
		h.apps[port(uint16(i+1))] = &process{pid: i + 1}
		_, err := say(t, s, &request{op: opLook}, &connection{app: port(uint16(i + 1))})
		if (err != nil) != (i >= maxProcesses) {
			t.Fatalf("process %d: %v", i, err)
		}
	}
	if body, err := say(t, s, &request{op: opLiving}, nil); err != nil || len(body) != 4*maxProcesses {
		t.Errorf("%d bytes: %v", len(body), err)
	}
}

// hostile are requests that no proxy makes.
func hostile() map[string][]byte {
	good := (&request{op: opLiving}).encode()
	change := func(at int, to byte) []byte { b := bytes.Clone(good); b[at] = to; return b }
	return map[string][]byte{"none": {}, "short": good[:requestLen-1], "long": append(bytes.Clone(good), 0), "op 0": change(0, 0), "op 6": change(0, 6), "op 255": change(0, 255),
		"padding": change(2, 1), "look without a connection": change(0, byte(opLook))}
}

func TestHostileRequests(t *testing.T) {
	for name, datagram := range hostile() {
		if answer, _, err := serverOf(&host{}).answer(datagram, nil); !errors.Is(err, errForm) {
			t.Errorf("%s: answer %x, %v", name, answer, err)
		}
	}
	for _, o := range []op{opLoad, opCalls, opCounts, opLiving} {
		if answer, _, err := serverOf(&host{}).answer((&request{op: o}).encode(), &connection{}); !errors.Is(err, errForm) {
			t.Errorf("op %d with a connection: answer %x, %v", o, answer, err)
		}
	}
}

// Whatever a proxy asks, the answer is bounded, is one that a proxy understands, and tells of no process that was not
// found by a connection.
func FuzzRequests(f *testing.F) {
	for _, datagram := range hostile() {
		f.Add(datagram, uint16(1))
	}
	for o := opLoad; o <= opLiving; o++ {
		f.Add((&request{op: o, process: 1, tag: 3, far: port(5)}).encode(), uint16(1))
	}
	f.Fuzz(func(t *testing.T, datagrams []byte, app uint16) {
		h := &host{apps: map[netip.AddrPort]*process{port(1): {pid: 7, many: 192}, port(2): {}, port(3): gone(8)}}
		s := serverOf(h)
		for len(datagrams) > 0 {
			n := min(len(datagrams), requestLen)
			for _, own := range []*connection{nil, {local: port(4000), app: port(app)}} {
				answer, _, err := s.answer(datagrams[:n], own)
				if err != nil {
					continue
				}
				if len(answer) > maxAnswer {
					t.Fatalf("an answer of %d bytes", len(answer))
				}
				if _, err := open(answer); errors.Is(err, errForm) {
					t.Fatalf("answer %x: %v", answer, err)
				}
			}
			datagrams = datagrams[n:]
		}
		if len(s.processes) > 1 || app != 1 && len(s.processes) > 0 {
			t.Fatalf("with connections of port %d the prober knows %d processes", app, len(s.processes))
		}
	})
}

// Answers out of form are errors, as from something else in the prober's place.
func FuzzAnswers(f *testing.F) {
	f.Add(head(statusDone))
	f.Add(failure(statusNotAccepted, 7, "not yet"))
	f.Add(appendCall(head(statusDone), &probe.Call{Elements: 4}))
	f.Add(encodeCounts(probe.Counts{Buckets: 3}))
	f.Fuzz(func(t *testing.T, answer []byte) {
		body, err := open(answer)
		if err != nil {
			if r := (*refusal)(nil); !errors.As(err, &r) && !errors.Is(err, errForm) {
				t.Fatal(err)
			}
			return
		}
		if calls, err := decodeCalls(nil, body); err == nil && len(calls)*callLen != len(body) {
			t.Errorf("%d calls of %d bytes", len(calls), len(body))
		}
		if _, err := decodeCounts(body); err == nil && len(body) != countsLen {
			t.Errorf("counts of %d bytes", len(body))
		}
		if x, err := decodeSight(body); err == nil && len(body) <= maxWords {
			if again := x.encode(); string(again[headLen:]) != string(body) {
				t.Errorf("sight %x, read and written again %x", body, again[headLen:])
			}
		}
	})
}

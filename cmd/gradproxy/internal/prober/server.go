package prober

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/bpf/probe"
)

// A watched process is one whose collectives are seen: a *probe.Process.
type watched interface {
	Pid() int
	Name() string
	Identity() uint64
	Place() probe.Place
	Calls(dst []probe.Call, tag uint32) []probe.Call
	Counts() (probe.Counts, error)
	Ended() string
}

// A watcher finds processes: *probe.Probes. Equal processes are the same one.
type watcher interface {
	Look(own netip.AddrPort, remotes ...netip.AddrPort) (watched, int, error)
	Living(now time.Time) []watched
	Recent() int // the descriptor of the newest calls' memory; -1: there is none
}

// A server answers the requests of one proxy. Methods are safe for concurrent use.
type server struct {
	load func() (watcher, error) // called once, at most

	mu        sync.Mutex // guards the fields below
	loaded    bool
	watcher   watcher
	failed    error // of load
	names     uint32
	processes map[uint32]watched
}

func newServer(load func() (watcher, error)) *server {
	return &server{load: load, processes: map[uint32]watched{}}
}

// A connection has the addresses of a TCP connection of the proxy: its own, and the one of the app's socket.
type connection struct{ local, app netip.AddrPort }

// answer returns the answer to a request, and the descriptor that goes with it; -1: none does. own is the connection
// that came with the request; nil: none. An error says that the request is out of form.
func (s *server) answer(datagram []byte, own *connection) (answer []byte, fd int, err error) {
	r, err := decodeRequest(datagram)
	if err != nil || (r.op == opLook) != (own != nil) {
		return nil, -1, errForm
	}
	switch r.op {
	case opLoad:
		w, err := s.open()
		if err != nil {
			return failure(statusFailed, 0, err.Error()), -1, nil
		}
		return head(statusDone), w.Recent(), nil
	case opLook:
		return s.look(own, r.far), -1, nil
	case opLiving:
		return s.living(), -1, nil
	}
	process, ok := s.process(r.process)
	if !ok {
		return failure(statusEnded, 0, "the process has ended"), -1, nil
	}
	if r.op == opCounts {
		return countsOf(process), -1, nil
	}
	return callsOf(process, r.tag), -1, nil
}

// open loads the programs, once.
func (s *server) open() (watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded {
		s.loaded = true
		s.watcher, s.failed = s.load()
	}
	return s.watcher, s.failed
}

// process returns the process that has that name here.
func (s *server) process(name uint32) (watched, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.processes[name]
	return p, ok
}

func countsOf(process watched) []byte {
	counts, err := process.Counts()
	if err != nil {
		return failure(statusEnded, process.Pid(), err.Error())
	}
	return encodeCounts(counts)
}

func callsOf(process watched, tag uint32) []byte {
	calls := process.Calls(nil, tag)
	if ended := process.Ended(); ended != "" {
		return failure(statusEnded, process.Pid(), ended)
	}
	if len(calls) > maxCalls {
		return failure(statusEnded, process.Pid(), "it has too many process groups")
	}
	b := head(statusDone)
	for i := range calls {
		b = appendCall(b, &calls[i])
	}
	return b
}

// look looks once for the process at the other end of a connection.
func (s *server) look(own *connection, far netip.AddrPort) []byte {
	w, err := s.open()
	if err != nil {
		return failure(statusFailed, 0, err.Error())
	}
	if !own.app.IsValid() {
		return failure(statusSocket, 0, "prober: the connection has ended")
	}
	remotes := []netip.AddrPort{own.local}
	if far.IsValid() {
		remotes = append(remotes, far)
	}
	process, pid, err := w.Look(own.app, remotes...)
	switch {
	case errors.Is(err, probe.ErrNotAccepted):
		return failure(statusNotAccepted, pid, err.Error())
	case errors.Is(err, probe.ErrSocket):
		return failure(statusSocket, pid, err.Error())
	case err != nil:
		return failure(statusFailed, pid, err.Error())
	}
	name, ok := s.name(process)
	if !ok {
		return failure(statusFailed, pid, "prober: too many processes")
	}
	x := sight{name, pid, process.Identity(), process.Place(), process.Name()}
	return x.encode()
}

// name returns the name of a process here, which no other process ever has.
func (s *server) name(process watched) (uint32, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range s.processes {
		if p == process {
			return name, true
		}
	}
	if len(s.processes) >= maxProcesses {
		return 0, false
	}
	s.names++
	s.processes[s.names] = process
	return s.names, true
}

// living forgets the processes that have ended, and names the others.
func (s *server) living() []byte {
	w, err := s.open()
	if err != nil {
		return failure(statusFailed, 0, err.Error())
	}
	lives := map[watched]bool{}
	for _, p := range w.Living(time.Now()) {
		lives[p] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := head(statusDone)
	for name, p := range s.processes {
		if !lives[p] {
			delete(s.processes, name)
			continue
		}
		b = binary.BigEndian.AppendUint32(b, name)
	}
	return b
}

package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gradproxy/gradproxy/bpf/probe"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/prober"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// A process that cannot be seen has no calls, which the log says once, when a connection of it has collectives.
func TestProcessThatIsNotSeen(t *testing.T) {
	require.Root(t)
	log := &buffer{}
	p := newProbed(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(log, nil)))
	p.begin(nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	for range 3 {
		c := &calls{probed: p}
		c.find(conn.(*net.TCPConn), netip.AddrPort{}) // the proxy itself has both ends
		for tag := range uint32(3) {
			if all, answered := c.Of(nil, tag); len(all) != 0 || !answered {
				t.Errorf("calls %+v", all)
			}
		}
		c.Contradicted("of a process that is not seen")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "not seen"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, log)
	}
	if n := testutil.ToFloat64(p.contradictions); n != 0 {
		t.Errorf("%v contradictions of a process that is not seen", n)
	}
}

// unseen returns the log of a site, of a connection of which a parser has asked for a collective, while the site had no
// process that probes by permitted, or one whose kernel has none of its programs.
func unseen(t *testing.T, permitted error) string {
	t.Helper()
	log := &buffer{}
	p := newProbed(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(log, nil)))
	p.begin(permitted)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		c := &calls{probed: p}
		c.find(conn.(*net.TCPConn), netip.AddrPort{})
		if all, answered := c.Of(nil, 1); len(all) != 0 || !answered {
			t.Errorf("calls %+v, answered: %v: want none, so that sums travel exactly", all, answered)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	return log.String()
}

// wantWarning fails the test unless a log has one warning, which names a reason.
func wantWarning(t *testing.T, log, reason string) {
	t.Helper()
	if strings.Count(log, "level=WARN") != 1 || strings.Contains(log, "level=ERROR") || !strings.Contains(log, "their sums travel exactly, except in jobs with sums: gradients\" err=\""+reason) {
		t.Errorf("want one warning with the reason %q:\n%s", reason, log)
	}
}

// Where nothing is probed the log says why, once, and the parsers see no calls.
func TestReasonWhyNothingIsProbed(t *testing.T) {
	for _, err := range []error{errLossless, errors.New("probe: CAP_BPF is missing")} {
		wantWarning(t, unseen(t, err), err.Error())
	}
}

// A kernel without uprobes lets nothing be probed, which the log says once.
func TestKernelWithoutUprobes(t *testing.T) {
	require.Root(t)
	if _, err := os.Stat("/sys/bus/event_source/devices/uprobe"); err == nil {
		t.Skip("this kernel has uprobes: for the guest of TestHooksUnderAnotherKernel")
	}
	log := unseen(t, nil)
	wantWarning(t, log, "probe: this kernel has no uprobes")
	t.Log(log)
}

// A stuck process is one whose calls cannot be counted now, as while the process that probes is stopped.
type stuck struct{ asked, answer chan struct{} }

func (*stuck) Pid() int      { return 1 }
func (*stuck) Name() string  { return "stuck" }
func (*stuck) Ended() string { return "" }
func (*stuck) Proved() bool  { return false }

func (s *stuck) Counts() (probe.Counts, error) {
	close(s.asked)
	<-s.answer
	return probe.Counts{Reduces: 3}, nil
}

// New connections do not wait while the calls of processes are counted.
func TestCountsAreNotWaitedFor(t *testing.T) {
	require.Root(t)
	p := newProbed(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	p.begin(nil)
	defer p.Close()
	if err := p.prober.Close(); err != nil { // none is living
		t.Fatal(err)
	}
	s := &stuck{make(chan struct{}), make(chan struct{})}
	p.seen[s] = sight{}
	looked, begun := make(chan struct{}), make(chan struct{})
	go func() { p.look(); close(looked) }()
	<-s.asked
	go func() { p.start(func() {}); close(begun) }()
	select {
	case <-begun:
	case <-time.After(time.Minute):
		t.Error("a new connection waits until the calls of a process are counted")
	}
	close(s.answer)
	<-looked
	<-begun
	if n := testutil.ToFloat64(p.calls); n != 3 {
		t.Errorf("%v calls were counted, want 3", n)
	}
}

// An unproved process is one whose calls were counted, and whose proof has ended.
type unprovedProcess struct{ ended string }

func (*unprovedProcess) Pid() int        { return 1 }
func (*unprovedProcess) Name() string    { return "python" }
func (u *unprovedProcess) Ended() string { return u.ended }
func (*unprovedProcess) Proved() bool    { return true }
func (*unprovedProcess) Counts() (probe.Counts, error) {
	return probe.Counts{Reduces: 3, Buckets: 2}, nil
}

// The log says once why a process's calls prove nothing any more, unless it has told a contradiction already, and does
// not say that gradients are proved.
func TestEndOfAProofIsLoggedOnce(t *testing.T) {
	for reason, want := range map[string]int{"this release is not known": 1, contradicted + "a message is too long": 0} {
		log := &buffer{}
		p := newProbed(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(log, nil)))
		process := &unprovedProcess{reason}
		for range 3 {
			p.count(process)
		}
		if n := strings.Count(log.String(), "level="); n != want || strings.Count(log.String(), reason) != want {
			t.Errorf("ended by %q: %d lines, want %d:\n%s", reason, n, want, log)
		}
	}
}

// A training process sums numbers of its own first, and then buckets, which are proved later.
type trainingProcess struct {
	counts probe.Counts
	proved bool
}

func (*trainingProcess) Pid() int                        { return 1 }
func (*trainingProcess) Name() string                    { return "python" }
func (*trainingProcess) Ended() string                   { return "" }
func (u *trainingProcess) Proved() bool                  { return u.proved }
func (u *trainingProcess) Counts() (probe.Counts, error) { return u.counts, nil }

// A verdict stands until there is another one: the log has a line for each, and none without words.
func TestVerdictsAreLoggedInTurn(t *testing.T) {
	log := &buffer{}
	p := newProbed(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(log, nil)))
	process := &trainingProcess{}
	for _, now := range []trainingProcess{{probe.Counts{Reduces: 40}, false}, {probe.Counts{Reduces: 50, Buckets: 2, ReducerBuckets: 2}, false}, {probe.Counts{Reduces: 60, Buckets: 9, ReducerBuckets: 9}, true}} {
		*process = now
		for range 2 {
			p.count(process)
		}
	}
	said := log.String()
	if strings.Count(said, "level=") != 2 || strings.Contains(said, `msg=""`) || !strings.Contains(said, unprovedCode) || !strings.Contains(said, provedBuckets) {
		t.Errorf("want two verdicts, one after the other:\n%s", said)
	}
}

// The search for a process that the prober is late to find ends with the connection, and with the proxy.
func TestSearchEndsWithItsConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for what, isLate := range map[string]error{"the connection": prober.ErrLate, "the accepted connection": probe.ErrNotAccepted, "the proxy": prober.ErrLate} {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		closing, end := context.WithCancel(t.Context())
		defer end()
		looks := 0
		process, _, err := search(closing, conn.(*net.TCPConn), func() (*prober.Process, int, error) {
			switch looks++; {
			case looks > 5:
				return nil, 0, errors.New("the search goes on")
			case looks == 3 && what == "the proxy":
				end()
			case looks == 3:
				conn.Close()
			}
			return nil, 0, isLate
		})
		if process != nil || !errors.Is(err, isLate) {
			t.Errorf("after the end of %s: %v", what, err)
		}
	}
}

// A socket that some looks do not find is found by a later one, and a search for one that is not there ends.
func TestSearchLooksForAMissedSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := connected{}
		missed := fmt.Errorf("%w: nobody has it", probe.ErrSocket)
		for finds, want := range map[int]error{1: nil, 4: nil, 99: probe.ErrSocket} {
			looks, found := 0, new(prober.Process)
			process, _, err := search(t.Context(), conn, func() (*prober.Process, int, error) {
				if looks++; looks == finds {
					return found, 1, nil
				}
				return nil, 0, missed
			})
			if !errors.Is(err, want) || (process == found) != (want == nil) || looks > 4 {
				t.Errorf("a socket that look %d finds: %v after %d looks", finds, err, looks)
			}
		}
	})
}

// connected is a connection that has not ended.
type connected struct{ syscall.Conn }

func (connected) SyscallConn() (syscall.RawConn, error) { return open{}, nil }

type open struct{ syscall.RawConn }

func (open) Control(func(uintptr)) error { return nil }

// The log says that calls prove gradients once messages have agreed with them, and not for their number.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		counts probe.Counts
		proved bool
		want   string
	}{
		{probe.Counts{Reduces: 3, Others: 3}, false, ""},
		{probe.Counts{Reduces: 40, Buckets: 1, ReducerBuckets: 40}, true, provedBuckets},
		{probe.Counts{Reduces: 20, Buckets: 20, ReducerBuckets: 20}, false, ""},
		{probe.Counts{Reduces: 600, Buckets: 600, ReducerBuckets: 600}, false, unprovedWire},
		{probe.Counts{Reduces: 40, Buckets: 2, ReducerBuckets: 42}, false, unprovedHook},
		{probe.Counts{Reduces: 40, ReducerBuckets: 40}, false, unprovedHook},
		{probe.Counts{Reduces: 40, Others: 80}, false, unprovedFSDP},
		{probe.Counts{Reduces: 40}, false, unprovedCode},
	} {
		if got := verdictOn(c.counts, c.proved); got != c.want {
			t.Errorf("%+v, proved %v: %q, want %q", c.counts, c.proved, got, c.want)
		}
	}
}

func TestCallOf(t *testing.T) {
	for name, x := range map[string]struct {
		call probe.Call
		want parser.Call
	}{
		"a bucket": {probe.Call{Source: 7, Bucket: true, Elements: 1000, Type: 6, Ranks: 3, Storage: 9, Member: probe.Member{Rank: 1, Ranks: 3}},
			parser.Call{Source: 7, Caller: parser.DDPReducer, Sum: true, Elements: 1000, DType: tensor.Float32, Ranks: 3, Buffer: 9, Member: parser.Member{Rank: 1, Ranks: 3}}},
		"an average":       {probe.Call{Elements: 10, Type: 15, Op: 1}, parser.Call{Sum: true, Elements: 10, DType: tensor.BFloat16}},
		"MAX":              {probe.Call{Bucket: true, Elements: 10, Type: 7, Op: 4}, parser.Call{Caller: parser.DDPReducer, Elements: 10, DType: tensor.Float64}},
		"nothing is known": {probe.Call{Source: 2}, parser.Call{Source: 2}},
		"a wrong layout":   {probe.Call{Elements: 10, Type: 44}, parser.Call{Sum: true, Elements: probe.NoElements, DType: tensor.Uint8}},
	} {
		got := callOf(&x.call, 1)
		if named := got.Bucket != 0; named != (x.want.Caller == parser.DDPReducer) {
			t.Errorf("%s: its bucket has a name: %v", name, named)
		}
		if got.Bucket = 0; got != x.want {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
}

// A bucket has one name as long as no bucket of its process is freed, and no other has it.
func TestBucketNames(t *testing.T) {
	c := probe.Call{Bucket: true, Elements: 1000, Type: 6, Storage: 9, Freed: 2}
	later := c
	later.Source, later.Op = 5, 1
	name := callOf(&c, 1).Bucket
	if callOf(&later, 1).Bucket != name {
		t.Error("the bucket has another name in another process group")
	}
	freed, elsewhere := c, c
	freed.Freed, elsewhere.Storage = 3, 10
	for why, other := range map[string]parser.Call{"after buckets were freed": callOf(&freed, 1), "in other memory": callOf(&elsewhere, 1), "in another process": callOf(&c, 2)} {
		if other.Bucket == name {
			t.Errorf("a bucket %s has the same name", why)
		}
	}
}

// Processes are probed where they can be on this host, unless the configuration says no.
func TestProbesJobs(t *testing.T) {
	for mode, want := range map[config.Mode]bool{config.ModeOff: false, config.ModeTProxy: false, config.ModeRedirect: true, config.ModeCgroup: true} {
		c := &config.Config{Intercept: config.Intercept{Mode: mode, Probes: true}}
		if got := probesJobs(c); got != want {
			t.Errorf("mode %v: %v, want %v", mode, got, want)
		}
		if c.Intercept.Probes = false; probesJobs(c) {
			t.Errorf("mode %v: probed against the configuration", mode)
		}
	}
}

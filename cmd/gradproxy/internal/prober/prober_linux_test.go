//go:build amd64 || arm64

package prober

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/bpf/probe"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/apart"
	"github.com/gradproxy/gradproxy/integration/require"
)

// pair returns both ends of a socket pair.
func pair(t testing.TB) (proxy, prober *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		if ends[i], err = apart.ConnOf(os.NewFile(uintptr(fd), "end")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ends[i].Close() })
	}
	return ends[0], ends[1]
}

// clientOf returns a client whose prober answers in this process, and a function that ends that.
func clientOf(t testing.TB, h *host) (c *Client, end func()) {
	t.Helper()
	s := serverOf(h)
	var lines [2]*line
	var served sync.WaitGroup
	var probers []*net.UnixConn
	for i := range lines {
		proxy, prober := pair(t)
		lines[i] = &line{conn: proxy, log: slog.New(slog.DiscardHandler), within: 10 * time.Second}
		probers = append(probers, prober)
		served.Go(func() {
			if err := s.serve(prober); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
	}
	end = sync.OnceFunc(func() {
		for _, p := range probers {
			p.Close()
		}
		served.Wait()
	})
	t.Cleanup(end)
	return &Client{quick: lines[0], slow: lines[1], kill: func() {}, died: end, processes: map[uint32]*Process{}}, end
}

// connected returns a TCP connection, and its other end.
func connected(t testing.TB) (conn, other *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	o, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return c.(*net.TCPConn), o.(*net.TCPConn)
}

// A process is the one at the other end of a connection that the proxy has, the same for all its connections.
func TestFindByConnection(t *testing.T) {
	conn, other := connected(t)
	second, third := connected(t)
	app := func(c net.Conn) netip.AddrPort { return c.RemoteAddr().(*net.TCPAddr).AddrPort() }
	rank := &process{pid: 7, many: 3}
	c, end := clientOf(t, &host{apps: map[netip.AddrPort]*process{app(conn): rank, app(second): rank}})
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	p, pid, err := c.Find(conn, port(80))
	if err != nil || pid != 7 || p.Pid() != 7 || p.Name() != "rank7" || p.Identity() != 1<<63+7 {
		t.Fatalf("process %d: %v", pid, err)
	}
	if again, _, err := c.Find(second, port(80)); err != nil || again != p {
		t.Errorf("another connection of it: %v", err)
	}
	if _, _, err := c.Find(third, port(80)); !errors.Is(err, probe.ErrSocket) {
		t.Errorf("a connection of nobody: %v", err)
	}
	if calls, answered := p.Calls(nil, 9); !answered || len(calls) != 3 || calls[2] != rank.Calls(nil, 9)[2] {
		t.Errorf("calls %+v", calls)
	}
	if counts, err := p.Counts(); err != nil || counts.Buckets != 3 {
		t.Errorf("counts %+v: %v", counts, err)
	}
	if living := c.Living(); len(living) != 1 || living[0] != p {
		t.Errorf("living %v", living)
	}
	other.Close()
	conn.Close()
	if _, _, err := c.Find(conn, port(80)); !errors.Is(err, probe.ErrSocket) {
		t.Errorf("a connection that is closed: %v", err)
	}
	if p.Ended() != "" {
		t.Fatalf("ended: %s", p.Ended())
	}
	end()
	if calls, _ := p.Calls(nil, 9); len(calls) != 0 || p.Ended() == "" {
		t.Errorf("without a prober: calls %+v, ended %q", calls, p.Ended())
	}
	if _, _, err := c.Find(second, port(80)); err == nil {
		t.Error("found without a prober")
	}
	if living := c.Living(); len(living) != 0 {
		t.Errorf("living %v without a prober", living)
	}
}

// A proof lasts no longer than its process.
func TestProcessThatEnds(t *testing.T) {
	conn, _ := connected(t)
	rank := &process{pid: 7, many: 3}
	c, _ := clientOf(t, &host{apps: map[netip.AddrPort]*process{conn.RemoteAddr().(*net.TCPAddr).AddrPort(): rank}})
	p, _, err := c.Find(conn, port(80))
	if err != nil {
		t.Fatal(err)
	}
	rank.dead.Store(true)
	if living := c.Living(); len(living) != 0 || p.Ended() == "" {
		t.Errorf("living %v, ended %q", living, p.Ended())
	}
	if calls, _ := p.Calls(nil, 1); len(calls) > 0 {
		t.Errorf("calls %v", calls)
	}
}

// slowProber returns a line whose prober answers at the test's word: once for each value in answer, with that and the
// question.
func slowProber(t *testing.T, within, rest time.Duration) (l *line, answer chan string) {
	t.Helper()
	proxy, far := pair(t)
	answer = make(chan string)
	var served sync.WaitGroup
	served.Go(func() {
		question := make([]byte, 100)
		for a := range answer {
			n, err := far.Read(question)
			if err == nil {
				_, err = far.Write([]byte(a + string(question[:n])))
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	t.Cleanup(func() { close(answer); served.Wait() })
	return &line{conn: proxy, log: slog.New(slog.DiscardHandler), within: within, rest: rest}, answer
}

// awaitAnswer asks until there is an answer, and returns it.
func awaitAnswer(t *testing.T, l *line, question string) string {
	t.Helper()
	for t.Context().Err() == nil {
		answer, err := l.ask([]byte(question), nil)
		if err == nil {
			return string(answer)
		}
		if !errors.Is(err, ErrLate) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	return ""
}

// A late answer is not taken for the next question's, which is not asked before. Then the prober is asked again, and
// has answers.
func TestLateAnswer(t *testing.T) {
	l, answer := slowProber(t, time.Millisecond, 0)
	if got, err := l.ask([]byte("one"), nil); !errors.Is(err, ErrLate) {
		t.Fatalf("answer %q, %v", got, err)
	}
	l.within = time.Minute
	if got, err := l.ask([]byte("two"), nil); !errors.Is(err, ErrLate) {
		t.Fatalf("the second question has the answer %q, %v", got, err)
	}
	if l.lateFor() == 0 || l.timeouts.Load() != 1 {
		t.Errorf("late for %v, %d questions had no answer in time, want one", l.lateFor(), l.timeouts.Load())
	}
	answer <- "to "
	var answered sync.WaitGroup
	answered.Go(func() { answer <- "to " })
	if got := awaitAnswer(t, l, "three"); got != "to three" {
		t.Errorf("the third question has the answer %q", got)
	}
	answered.Wait()
	if l.lateFor() != 0 {
		t.Errorf("late for %v", l.lateFor())
	}
}

// After a late answer parsers do not wait for the prober for some time.
func TestRestAfterALateAnswer(t *testing.T) {
	l, answer := slowProber(t, time.Millisecond, time.Hour)
	if got, err := l.ask([]byte("one"), nil); !errors.Is(err, ErrLate) {
		t.Fatalf("answer %q, %v", got, err)
	}
	answer <- "to "
	awaitDrop(t, l)
	if got, err := l.ask([]byte("two"), nil); !errors.Is(err, ErrLate) || l.timeouts.Load() != 1 {
		t.Errorf("answer %q, %v, %d questions were asked in vain", got, err, l.timeouts.Load())
	}
	if l.lateFor() == 0 {
		t.Error("the line is said to answer while nothing is asked")
	}
}

// awaitDrop waits until a late answer has come and was dropped.
func awaitDrop(t *testing.T, l *line) {
	t.Helper()
	for t.Context().Err() == nil {
		l.state.Lock()
		dropped := l.state.asked.IsZero()
		l.state.Unlock()
		if dropped {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Of late answers in a row the first is logged, and the time counts from its question on. One that is late after an
// answer in time, or long after the last question, is the first again.
func TestLateAnswersInARow(t *testing.T) {
	l, answer := slowProber(t, time.Millisecond, 0)
	var log strings.Builder
	l.log, l.grace = slog.New(slog.NewTextHandler(&log, nil)), time.Hour
	late := func(logged int) (since time.Time) {
		t.Helper()
		if got, err := l.ask([]byte("one"), nil); !errors.Is(err, ErrLate) {
			t.Fatalf("answer %q, %v", got, err)
		}
		answer <- "to "
		awaitDrop(t, l)
		if n := strings.Count(log.String(), "does not answer in time"); n != logged {
			t.Errorf("logged %d times, want %d:\n%s", n, logged, &log)
		}
		return l.state.since
	}
	first := late(1)
	for range 3 {
		if since := late(1); since != first || l.lateFor() == 0 {
			t.Errorf("late since %v, want %v", since, first)
		}
	}
	l.within = time.Minute
	var answered sync.WaitGroup
	answered.Go(func() { answer <- "to " })
	if got, err := l.ask([]byte("two"), nil); err != nil || l.lateFor() != 0 {
		t.Errorf("answer %q, %v, late for %v", got, err, l.lateFor())
	}
	answered.Wait()
	l.within = time.Millisecond
	second := late(2)
	l.grace = -time.Hour // it is over
	if third := late(3); l.lateFor() != 0 || third == second {
		t.Errorf("late for %v after the last question, since %v, before since %v", l.lateFor(), third, second)
	}
}

// Close ends questions that wait for an answer, which the prober may never give.
func TestCloseEndsQuestions(t *testing.T) {
	proxy, far := pair(t)
	l := &line{conn: proxy, log: slog.New(slog.DiscardHandler), within: time.Hour}
	c := &Client{quick: l, slow: l, kill: func() {}, died: func() {}, processes: map[uint32]*Process{}}
	living := make(chan []*Process)
	go func() { living <- c.Living() }()
	if _, err := far.Read(make([]byte, 100)); err != nil { // the question
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if all := <-living; len(all) != 0 {
		t.Errorf("living %v", all)
	}
	if _, err := l.ask([]byte("one"), nil); err == nil {
		t.Error("a question was asked after Close")
	}
}

// While an answer is late a connection that has ended has no process, so that nobody looks for it any more.
func TestConnectionThatEndsWhileAnAnswerIsLate(t *testing.T) {
	l, _ := slowProber(t, time.Millisecond, 0)
	c := &Client{quick: l, slow: l, kill: func() {}, processes: map[uint32]*Process{}}
	conn, _ := connected(t)
	for range 2 {
		if _, _, err := c.Find(conn, port(80)); !errors.Is(err, ErrLate) {
			t.Fatal(err)
		}
	}
	conn.Close()
	if _, _, err := c.Find(conn, port(80)); !errors.Is(err, probe.ErrSocket) {
		t.Error(err)
	}
}

// stop stops a prober, and returns once it is stopped.
func stop(t *testing.T, c *Client) {
	t.Helper()
	if err := syscall.Kill(c.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, c.Pid(), nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

// A stopped prober has no answers, which ends no proof: once it runs again there are answers.
func TestStoppedProber(t *testing.T) {
	t.Parallel()
	require.Root(t)
	errs, tell := lost()
	var log strings.Builder
	c, err := Start(slog.New(slog.NewTextHandler(&log, nil)), tell)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*line{c.quick, c.slow} {
		l.within, l.rest, l.grace = 10*time.Millisecond, 0, 0
	}
	stop(t, c)
	p := &Process{client: c, sight: sight{process: 1}} // the prober does not know it
	c.processes[1] = p
	if calls, answered := p.Calls(nil, 1); answered || len(calls) > 0 || p.Ended() != "" {
		t.Errorf("calls %v, answered: %v, ended %q", calls, answered, p.Ended())
	}
	if living := c.Living(); len(living) != 1 || living[0] != p || p.Ended() != "" {
		t.Errorf("living %v, ended %q", living, p.Ended())
	}
	if c.Late() == 0 || c.Timeouts() != 2 {
		t.Errorf("late for %v, %d questions had no answer, want 2", c.Late(), c.Timeouts())
	}
	if err := syscall.Kill(c.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for c.Late() > 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	c.quick.within = time.Minute
	if calls, answered := p.Calls(nil, 1); !answered || len(calls) > 0 || !strings.Contains(p.Ended(), "the process has ended") {
		t.Errorf("the prober's word on a process that it does not know: calls %v, answered: %v, ended %q", calls, answered, p.Ended())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-errs:
		t.Error(err)
	default:
	}
	for _, want := range []string{"does not answer", "answers in time again"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, &log)
		}
	}
}

// A prober that is still stopped at the end is killed.
func TestStoppedAtTheEnd(t *testing.T) {
	t.Parallel()
	require.Root(t)
	_, tell := lost()
	c, err := Start(slog.New(slog.DiscardHandler), tell)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(c.Pid(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("after Close: %v", err)
	}
}

// A descriptor that is no TCP socket, a second one and a request of another length end a prober, which keeps none of
// them.
func TestHostileDescriptors(t *testing.T) {
	conn, _ := connected(t)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	descriptor := func(c syscall.Conn) (n int) {
		raw, err := c.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { n = int(fd) })
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	tcp := descriptor(conn)
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	look := (&request{op: opLook}).encode()
	for name, x := range map[string]struct {
		datagram []byte
		fds      []int
	}{
		"a file": {look, []int{int(file.Fd())}}, "UDP": {look, []int{descriptor(udp.(*net.UDPConn))}}, "two": {look, []int{tcp, tcp}}, "many": {look, []int{tcp, tcp, tcp, tcp, tcp}},
		"long": {append(look, make([]byte, 1000)...), []int{tcp}}, "for another request": {(&request{op: opLiving}).encode(), []int{tcp}},
	} {
		before := descriptorsOpen(t)
		proxy, prober := pair(t)
		if _, _, err := proxy.WriteMsgUnix(x.datagram, unix.UnixRights(x.fds...), nil); err != nil {
			t.Fatal(err)
		}
		if err := proxy.CloseWrite(); err != nil { // a prober that takes the datagram sees the end behind it
			t.Fatal(err)
		}
		if err := serverOf(&host{}).serve(prober); err == nil {
			t.Errorf("%s: no error", name)
		}
		proxy.Close()
		if after := descriptorsOpen(t); after != before {
			t.Errorf("%s: %d descriptors before, %d after", name, before, after)
		}
	}
}

func descriptorsOpen(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// lost is a function for Start, and the channel of the errors that it is called with.
func lost() (chan error, func(error)) {
	errs := make(chan error, 2)
	return errs, func(err error) { errs <- err }
}

// A prober is a process of its own, whose end is noticed, and which ends with Close.
func TestProberEnds(t *testing.T) {
	require.Root(t)
	for _, killed := range []bool{true, false} {
		errs, tell := lost()
		c, err := Start(slog.New(slog.DiscardHandler), tell)
		if err != nil {
			t.Fatal(err)
		}
		conn, _ := connected(t)
		if _, _, err := c.Find(conn, netip.AddrPort{}); err == nil { // this process has both ends
			t.Error("this process is taken for a job's")
		}
		if killed {
			if err := syscall.Kill(c.Pid(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := <-errs; err == nil {
				t.Error("no reason")
			}
			if err := c.Load(); err == nil {
				t.Error("a prober that was killed answers")
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := syscall.Kill(c.Pid(), 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("after Close: %v", err)
		}
		select {
		case err := <-errs:
			t.Errorf("told once more: %v", err)
		default:
		}
	}
}

// A hostile proxy gains nothing but the prober's end: it is told of that, in the log too.
func TestProberEndsOnHostileRequest(t *testing.T) {
	require.Root(t)
	var log strings.Builder
	errs, tell := lost()
	c, err := Start(slog.New(slog.NewTextHandler(&log, nil)), tell)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := c.quick.ask([]byte("whatever"), nil); err == nil {
		t.Errorf("answer %x", answer)
	}
	<-errs // after all of the log
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"this process is confined", "cap_sys_ptrace", "process=prober", "level=ERROR", "a request that no proxy makes"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, &log)
		}
	}
}

// BenchmarkCalls asks for the calls of a tag, of one group in three layouts, which a prober in this process has at
// hand.
func BenchmarkCalls(b *testing.B) {
	conn, _ := connected(b)
	rank := &process{pid: 7, many: 3}
	c, _ := clientOf(b, &host{apps: map[netip.AddrPort]*process{conn.RemoteAddr().(*net.TCPAddr).AddrPort(): rank}})
	p, _, err := c.Find(conn, port(80))
	if err != nil {
		b.Fatal(err)
	}
	var calls []probe.Call
	for b.Loop() {
		if calls, _ = p.Calls(calls[:0], 1); len(calls) != 3 {
			b.Fatal(calls)
		}
	}
}

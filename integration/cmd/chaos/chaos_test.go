//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/frame"
)

// Thirty seeds on real processes break no promise, nor do ten over datagrams, also where one process is the program of
// the commit before.
func TestRealSeeds(t *testing.T) {
	require.Long(t)
	t.Chdir("../../..")
	previous := "HEAD^"
	if exec.Command("git", "rev-parse", "--verify", "--quiet", previous).Run() != nil {
		previous = "" // a checkout without history
	}
	for carrier, seeds := range map[string]int{"tls": 30, "dtls": 10} {
		t.Run(carrier, func(t *testing.T) {
			l, err := newLab(t.Context(), t.TempDir(), "", previous, carrier)
			if err != nil {
				t.Fatal(err)
			}
			lossy, shared := 0, 0
			var came census
			err = l.playAll(t.Context(), 1, seeds, func(r row) error {
				lossy, shared = lossy+r.Lossy, shared+r.Shared
				came.add(r)
				if r.Outcome != "ok" {
					t.Errorf("seed %d, %v: %s", r.Seed, r.Faults, r.Outcome)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if t.Logf("%d sums and results were lossy, %d values shared", lossy, shared); lossy == 0 || shared == 0 {
				t.Error("no tensor was coded: the seeds show nothing of tensors")
			}
			t.Logf("frames: %v", &came)
			if err := came.verdict(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A kind of frame that has not come in enough seeds is named, unless no seed has anything that would make it come.
func TestMissingKindsAreNamed(t *testing.T) {
	rows := func(seeds int, change func(r *row)) (came census) {
		for seed := range uint64(seeds) {
			r := row{Seed: 2 * seed, Frames: map[string]uint64{}}
			for kind := range frame.Kinds() {
				if kind != frame.Rest && kind != frame.Evict {
					r.Frames[kind.String()] = 1
				}
			}
			change(&r)
			came.add(r)
		}
		return came
	}
	withoutMasks := func(r *row) { delete(r.Frames, "mask") }
	for _, c := range []struct {
		came census
		want string
	}{
		{rows(enough, func(*row) {}), ""},
		{rows(enough, withoutMasks), "mask"},
		{rows(enough-1, withoutMasks), ""},
		{rows(enough, func(r *row) { r.Moved = 1 }), "rest"},
		{rows(enough, func(r *row) { r.Seed++ }), "evict"},
		{rows(enough, func(r *row) {
			if r.Seed > 0 {
				withoutMasks(r)
			}
		}), ""},
	} {
		if err := c.came.verdict(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), "kinds "+c.want+" came") {
			t.Errorf("%v: %v, want %q", &c.came, err, c.want)
		}
	}
}

// A carrier whose process has died is known to have ended only once the black hole is over that its end waits in.
func TestEndsWaitInBlackHoles(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	r, err := newRelay(server.Addr().String(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	client, err := net.Dial("tcp", r.address())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	died, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := died.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	const hole = 100 * time.Millisecond
	begin := time.Now()
	r.cut(hole, 1)
	wait := r.outlast()
	abort(died)
	wait()
	if waited := time.Since(begin); waited < hole {
		t.Errorf("the carrier has ended after %v, in the black hole", waited)
	}
	client.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the client knows of no end: %v", err)
	}
}

// TCP segments above a size are lost for as long as the path is narrow, and come then.
func TestSegmentsAreLost(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	r, err := newRelay(server.Addr().String(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	client, err := net.Dial("tcp", r.address())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	far, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	for _, c := range []struct {
		from, to net.Conn
	}{{client, far}, {far, client}} {
		r.narrow(1000)
		got := make([]byte, 5001)
		c.to.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.from.Write(got[:1]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c.to, got[:1]); err != nil {
			t.Fatalf("a short segment: %v", err)
		}
		if _, err := c.from.Write(got[1:]); err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); !sentAgain(t, c.from); time.Sleep(time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatal("no segment was lost in a minute")
			}
		}
		c.to.SetReadDeadline(time.Now().Add(time.Millisecond))
		if n, err := c.to.Read(got[1:]); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d bytes of a long segment have come, %v", n, err)
		}
		r.narrow(0)
		c.to.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(c.to, got[1:]); err != nil {
			t.Fatalf("the path is wide again: %v", err)
		}
	}
}

// sentAgain reports whether the kernel has sent bytes of a connection again, and has no answer yet.
func sentAgain(t *testing.T, c net.Conn) bool {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	if e := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return info.Retransmits > 0
}

// The clock of a process jumps and jumps back, and its monotonic clock does not.
func TestClockJumps(t *testing.T) {
	if os.Getenv("CHAOS_CLOCK") != "" { // the process
		begin := time.Now()
		for range 3 {
			var line string
			fmt.Scanln(&line)
			fmt.Println(time.Now().Unix(), int(time.Since(begin).Hours()))
		}
		os.Exit(0)
	}
	if offsetReader[runtime.GOARCH] == nil {
		t.Skip("no clock of a process can jump on " + runtime.GOARCH)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestClockJumps$")
	cmd.Env = append(os.Environ(), "CHAOS_CLOCK=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	asks, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	says, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c, err := startWithClock(cmd)
	if errors.Is(err, syscall.EPERM) {
		t.Skip("no process may be traced here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for _, by := range []time.Duration{0, -20 * 365 * 24 * time.Hour, 0} {
		if err := c.jump(by); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(asks)
		var at int64
		var hours int
		if _, err := fmt.Fscanln(says, &at, &hours); err != nil {
			t.Fatal(err)
		}
		if off := time.Until(time.Unix(at, 0).Add(-by)).Abs(); off > time.Hour || hours != 0 {
			t.Errorf("a clock that has jumped by %v is off by %v; %d hours have passed", by, off, hours)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// The network of datagrams does with them as it is told, and a flow that is forgotten comes from another address.
func TestDatagramsAreTampered(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	d, err := newDatagrams(server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	client, err := net.Dial("udp", d.address())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	// exchange sends words and returns the ones that arrive before the last of them, which nothing is done to, and the
	// source.
	exchange := func(words ...string) (got string, source string) {
		t.Helper()
		b := make([]byte, 100)
		for _, w := range words {
			client.Write([]byte(w))
		}
		server.SetReadDeadline(time.Now().Add(time.Minute))
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				t.Fatal(err)
			}
			if string(b[:n]) == "end" {
				return got, from.String()
			}
			got += string(b[:n]) + " "
		}
	}
	got, before := exchange("a", "b", "end")
	if got != "a b " {
		t.Fatalf("%q arrives untampered", got)
	}
	for how, want := range map[string]string{"duplicates": "a a ", "omissions": "", "bit flips": "\x63 "} {
		d.some(rand.New(rand.NewPCG(1, 1)), func(p path) {
			p.tamper(0, how)
			f := p.(*flow)
			f.mu.Lock()
			f.tampers[0] = f.tampers[0][:1]
			f.mu.Unlock()
		})
		if got, _ := exchange("a", "end"); got != want {
			t.Errorf("%s: %q arrives, want %q", how, got, want)
		}
	}
	d.narrow(3)
	if got, _ := exchange("a", "long", "end"); got != "a " {
		t.Errorf("an mtu of 3 bytes: %q arrives", got)
	}
	d.narrow(0)
	if got, _ := exchange("long", "end"); got != "long " {
		t.Errorf("afterwards %q arrives", got)
	}
	d.some(rand.New(rand.NewPCG(1, 1)), func(p path) {
		p.tamper(0, "reordering")
		f := p.(*flow)
		f.mu.Lock()
		f.tampers[0] = f.tampers[0][:1]
		f.mu.Unlock()
	})
	if got, _ := exchange("a", "b", "end"); got != "b a " {
		t.Errorf("reordered: %q", got)
	}
	d.some(rand.New(rand.NewPCG(1, 1)), func(p path) { p.reset() })
	if got, after := exchange("a", "end"); got != "a " || after == before {
		t.Errorf("%q arrives from %s, as before", got, after)
	}
}

// Each promise that is broken is seen.
func TestFaultsAreSeen(t *testing.T) {
	reset := errors.New("connection reset")
	for want, spoil := range map[string]func(e *exchange){
		"":                         func(*exchange) {},
		"the checksum":             func(e *exchange) { e.sides[1].got[20] ^= 1 },
		"a FIN came after":         func(e *exchange) { e.sides[0].got = e.sides[0].got[:10] },
		"a FIN came, and the othe": func(e *exchange) { e.sides[0].ended = false },
		"has not ended":            func(e *exchange) { e.sides[1].over = time.Time{} },
		"reset for no reason":      func(e *exchange) { e.sides[0].end = reset },
		"the checksum of 10":       func(e *exchange) { e.sides[0].got = e.sides[0].got[5:15] },
	} {
		r := rand.New(rand.NewPCG(1, 1))
		e := &exchange{halves: [2]half{newHalf(r, 1, 1000, time.Second), newHalf(r, 1, 1000, time.Second)}, begun: time.Unix(10, 0)}
		for i := range e.sides {
			e.sides[i] = side{begun: true, got: append([]byte(nil), e.halves[1-i].all...), end: io.EOF, ended: true, over: time.Unix(20, 0)}
		}
		spoil(e)
		if got := e.fault(nil); !strings.HasPrefix(got, want) && !strings.Contains(got, want) || got != "" && want == "" {
			t.Errorf("%q is seen as %q", want, got)
		}
		if want == "reset for no reason" {
			if got := e.fault([]interval{{time.Unix(5, 0), time.Unix(10, 0)}}); got != "" {
				t.Errorf("a reset with a reason is seen as %q", got)
			}
		}
	}
}

// The slope is that of the line through the samples.
func TestSlope(t *testing.T) {
	var samples []sample
	for i := range 10 {
		samples = append(samples, sample{Seconds: float64(10 * i), RSS: 1000 + 30*float64(i)})
	}
	if got := slope(samples, func(s sample) float64 { return s.RSS }); got < 2.999 || got > 3.001 {
		t.Errorf("slope %v, want 3", got)
	}
}

// A row of any length is read, and one that is cut off is an error: no seed is left out unseen.
func TestRowsAreReadWhole(t *testing.T) {
	file := t.TempDir() + "/rows"
	long := `{"seed":1,"outcome":"` + strings.Repeat("a FIN came; ", 10_000) + `"}` + "\n" + `{"seed":2,"outcome":"ok"}` + "\n"
	for text, want := range map[string]int{long: 2, long[:len(long)-5]: -1, "": 0} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if rows, err := readRows(file); (err != nil) != (want < 0) || err == nil && len(rows) != want {
			t.Errorf("%d rows of %d bytes, %v, want %d", len(rows), len(text), err, want)
		}
	}
}

// The rows of a file become one line for each fault, and one for all.
func TestTable(t *testing.T) {
	file := t.TempDir() + "/rows"
	const rows = `{"seed":1,"faults":["kill","kill"],"streams":3,"complete":2,"reset":1,"bytes":1000000,"outcome":"ok"}
{"seed":2,"faults":["stop","kill"],"streams":1,"complete":1,"outcome":"a FIN came"}
`
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := table(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"| kill | 2 | 4 | 3 | 1 | 1.0 | 0.00 | 1 |", "| stop | 1 | 1 | 1 | 0 | 0.0 | 0.00 | 1 |", "| **all seeds** | 2 | 4 | 3 | 1 | 1.0 | 0.00 | 1 |"} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %q in:\n%s", line, got)
		}
	}
}

//go:build amd64 || arm64

package prober

import (
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// recentOf returns a file that holds one of the newest calls of a process: a sum of 5555 elements with tag 9, as struct
// recent of bpf/probe/probe.c lays it out.
func recentOf(t *testing.T, p *process) *os.File {
	t.Helper()
	const places, callWords, tag = 512, 17, 9
	words := make([]uint64, 1<<19)
	words[0] = 3 // changes of the process's groups
	call := words[places+callWords*tag:]
	copy(call, []uint64{2, words[0], uint64(p.Place().Epoch), tag | 4<<32})
	call[6] = 1 // one tensor
	for layout := range 3 {
		copy(call[8+3*layout:], []uint64{1 << 40, 5555, 6})
	}
	var memory []byte
	for _, w := range words {
		memory = binary.NativeEndian.AppendUint64(memory, w)
	}
	path := filepath.Join(t.TempDir(), "recent")
	if err := os.WriteFile(path, memory, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// The newest calls are read in memory of the prober's, and others asked. While an answer is late none is told, and so
// of a process whose number another one has.
func TestRecentCallsAreNotAsked(t *testing.T) {
	conn, _ := connected(t)
	second, _ := connected(t)
	app := func(c net.Conn) netip.AddrPort { return c.RemoteAddr().(*net.TCPAddr).AddrPort() }
	rank := &process{pid: 7, many: 3}
	h := &host{apps: map[netip.AddrPort]*process{app(conn): rank, app(second): {pid: 7, many: 3}}, memory: recentOf(t, rank)}
	c, _ := clientOf(t, h)
	before := descriptorsOpen(t)
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	if after := descriptorsOpen(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	p, _, err := c.Find(conn, netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	check := func(why string, tag uint32, want uint64, wantAnswered bool) {
		t.Helper()
		calls, answered := p.Calls(nil, tag)
		if answered != wantAnswered || (len(calls) > 0) != (want > 0) || len(calls) > 0 && (len(calls) != 3 || calls[2].Elements != want) {
			t.Errorf("%s: answered %v, calls %+v, want %d elements", why, answered, calls, want)
		}
	}
	check("read", 9, 5555, true)
	check("asked", 10, 10, true) // this prober's calls have as many elements as their tag says
	c.quick.state.Lock()
	c.quick.state.resume = time.Now().Add(time.Hour)
	c.quick.state.Unlock()
	check("after a late answer", 9, 0, false)
	c.quick.state.Lock()
	c.quick.state.resume = time.Time{}
	c.quick.state.Unlock()
	check("read again", 9, 5555, true)
	if next, _, err := c.Find(second, netip.AddrPort{}); err != nil || next == p || next.Ended() != "" {
		t.Fatalf("the process that has the number now: %v", err)
	}
	if p.Ended() == "" {
		t.Error("the process that had the number before has not ended")
	}
	check("of a process that has ended", 9, 0, true)
}

// Where the newest calls' memory cannot be mapped all is asked, and the log says so once.
func TestMemoryThatCannotBeMapped(t *testing.T) {
	conn, _ := connected(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	rank := &process{pid: 7, many: 3}
	c, _ := clientOf(t, &host{apps: map[netip.AddrPort]*process{conn.RemoteAddr().(*net.TCPAddr).AddrPort(): rank}, memory: null})
	var log strings.Builder
	c.slow.log = slog.New(slog.NewTextHandler(&log, nil))
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	p, _, err := c.Find(conn, netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	if calls, answered := p.Calls(nil, 9); !answered || len(calls) != 3 {
		t.Errorf("answered %v, calls %+v", answered, calls)
	}
	if strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "let gradproxy map the memory") || !strings.Contains(log.String(), "cannot be mapped: no such device") {
		t.Errorf("the log has no line, or more, about memory that cannot be mapped:\n%s", &log)
	}
}

// A proof that the prober has ended while its answer was late stays ended.
func TestProofEndedByALateAnswer(t *testing.T) {
	conn, _ := connected(t)
	rank := &process{pid: 7, many: 3, held: make(chan struct{})}
	h := &host{apps: map[netip.AddrPort]*process{conn.RemoteAddr().(*net.TCPAddr).AddrPort(): rank}, memory: recentOf(t, rank)}
	c, _ := clientOf(t, h)
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	p, _, err := c.Find(conn, netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	c.quick.within = 50 * time.Millisecond
	if _, answered := p.Calls(nil, 10); answered {
		t.Fatal("the answer came in time")
	}
	rank.ended.Store("this release is not known")
	close(rank.held)
	awaitDrop(t, c.quick)
	c.quick.within = 10 * time.Second
	if calls, _ := p.Calls(nil, 9); len(calls) > 0 {
		t.Errorf("the proof has ended, and tag 9 has %d calls", len(calls))
	}
}

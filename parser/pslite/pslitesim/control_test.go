package pslitesim

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A voice says messages to a node, as another one.
func voice(t *testing.T, addr, identity string) func(m Meta, data ...[]byte) {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := zmtp.Handshake(t.Context(), raw, zmtp.Socket{Type: zmtp.Dealer, Identity: identity}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return func(m Meta, data ...[]byte) {
		if err := conn.WriteMessages([][][]byte{append([][]byte{m.Append(nil)}, data...)}); err != nil {
			t.Error(err)
		}
	}
}

// begin starts a node that is to fail with one line.
func begin(t *testing.T, role Role, c Config) (failed func(want string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() {
		_, err := Start(ctx, role, c, nil)
		done <- err
	}()
	return func(want string) {
		t.Helper()
		err := <-done
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with %q", err, want)
		}
	}
}

// Messages that a scheduler of one worker and one server cannot accept make it fail, with the reason.
func TestSchedulerRefuses(t *testing.T) {
	one := []NodeInfo{{Role: Worker, ID: Unset, Hostname: "192.0.2.1", Port: 1}}
	for name, c := range map[string]struct {
		from string
		meta Meta
		want string
	}{
		"an identity of another kind":   {"worker9", Meta{}, `identity "worker9"`},
		"an identity without a number":  {"ps", Meta{}, `identity "ps"`},
		"an unknown command":            {"", Meta{Control: &Control{Command: 99}}, "command 99"},
		"data":                          {"ps9", Meta{Request: true, Push: true}, "worker 0: data message"},
		"types without data":            {"ps9", Meta{DataTypes: []int32{8, 11}}, "worker 0: message of 0 data frames with types for 2"},
		"two nodes at a time":           {"", Meta{Control: &Control{Command: AddNode, Nodes: append(one, one...)}}, "registration of 2 nodes"},
		"a node with an id":             {"ps9", Meta{Control: &Control{Command: AddNode, Nodes: one}}, "registration"},
		"a second scheduler":            {"", Meta{Control: &Control{Command: AddNode, Nodes: []NodeInfo{{Role: Scheduler}}}}, "scheduler :0 registers"},
		"a barrier of nobody":           {"ps9", Meta{Request: true, Control: &Control{Command: Barrier}}, "barrier of group 0"},
		"a barrier of group 8":          {"ps9", Meta{Request: true, Control: &Control{Command: Barrier, BarrierGroup: 8}}, "barrier of group 8"},
		"a barrier before registration": {"ps9", Meta{Request: true, Control: &Control{Command: Barrier, BarrierGroup: GroupWorkers}}, "message to worker 0, with which this scheduler is not connected"},
		"an answer to no barrier":       {"ps9", Meta{Control: &Control{Command: Barrier}}, "not asked for"},
		"a stranger's heart beat":       {"", Meta{Control: &Control{Command: Heartbeat}}, "not connected"},
		"an end by another":             {"ps9", Meta{Control: &Control{Command: Terminate}}, "command 1"},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t)
			failed := begin(t, Scheduler, Config{Workers: 1, Scheduler: l.Addr().String(), Listener: l})
			voice(t, l.Addr().String(), c.from)(c.meta)
			failed(c.want)
		})
	}
}

// A third worker registers where there are to be two.
func TestSchedulerIsFull(t *testing.T) {
	l := listen(t)
	failed := begin(t, Scheduler, Config{Scheduler: l.Addr().String(), Listener: l})
	say := voice(t, l.Addr().String(), "")
	for port := range int32(3) {
		say(Meta{Control: &Control{Command: AddNode, Nodes: []NodeInfo{{Role: Worker, ID: Unset, Hostname: "192.0.2.1", Port: port}}}})
	}
	failed("worker 192.0.2.1:2 registers at a job of 2 workers and 1 servers that has all of them")
}

// Tables that cannot be a worker's.
func TestWorkerRefusesTables(t *testing.T) {
	for name, c := range map[string]struct {
		change func([]NodeInfo) []NodeInfo
		times  int
		want   string
	}{
		"without it":       {func(all []NodeInfo) []NodeInfo { return all[1:] }, 1, "table of 2 nodes that lacks this one"},
		"without a server": {func(all []NodeInfo) []NodeInfo { return append(all[:1:1], all[2]) }, 1, "table of 2 nodes that lacks server 0"},
		"twice":            {func(all []NodeInfo) []NodeInfo { return all }, 2, "second table"},
	} {
		t.Run(name, func(t *testing.T) {
			scheduler, worker := listen(t), listen(t)
			defer scheduler.Close()
			failed := begin(t, Worker, Config{Workers: 1, Scheduler: scheduler.Addr().String(), Addr: worker.Addr().String(), Listener: worker})
			say := voice(t, worker.Addr().String(), "ps1")
			at := worker.Addr().(*net.TCPAddr).AddrPort()
			there := scheduler.Addr().(*net.TCPAddr).AddrPort()
			table := c.change([]NodeInfo{
				{Role: Worker, ID: 9, Hostname: at.Addr().String(), Port: int32(at.Port())},
				{Role: Server, ID: 8, Hostname: there.Addr().String(), Port: int32(there.Port())},
				{Role: Scheduler, ID: SchedulerID, Hostname: there.Addr().String(), Port: int32(there.Port())},
			})
			for range c.times {
				say(Meta{Control: &Control{Command: AddNode, Nodes: table}})
			}
			failed(c.want)
		})
	}
}

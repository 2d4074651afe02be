package paramserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
)

// impatient is a job that gives up soon on nodes that are lost.
func impatient(workers int) (c Config) {
	c.Workers, c.Patience = workers, 50*time.Millisecond
	return c
}

// mustFail checks that an error is one line with a text, and not that of the test's own time limit.
func mustFail(t *testing.T, who string, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: got %v, want one line with %q", who, err, text)
	}
}

// A worker dies in mid-training: the server or the scheduler notices first, and the others after it.
func TestWorkerDies(t *testing.T) {
	j := newJob(t, impatient(2))
	errs := j.work(t, func(w *Worker) error {
		if err := w.Init(0, []float32{0}); err != nil {
			return err
		}
		if w.Rank() == 1 {
			w.Close()
			return errors.New("dead")
		}
		return w.Push(0, []float32{1}).Wait()
	})
	j.nodes.Wait()
	mustFail(t, "worker 0", errs[0], "push of key 0 by worker 0: pslitesim: ")
	server, scheduler := j.errs["server"], j.errs["scheduler"]
	mustFail(t, "server", server, ": lost: dial tcp")
	mustFail(t, "scheduler", scheduler, ": lost: dial tcp")
	if all := fmt.Sprint(server, scheduler); !strings.Contains(all, "worker 1: lost") {
		t.Errorf("nobody misses worker 1: %s", all)
	}
}

// A server dies: the worker with an unanswered request to it knows at once, without patience.
func TestServerDies(t *testing.T) {
	var c Config
	c.Patience = time.Hour
	j := newScheduler(t, c)
	ctx, kill := context.WithCancel(j.ctx)
	j.serve(t, ctx)
	errs := j.work(t, func(w *Worker) error {
		if err := w.Init(0, []float32{0}); err != nil {
			return err
		}
		if w.Rank() == 1 {
			<-w.node.Done() // of the end of this test
			return w.node.Err()
		}
		push := w.Push(0, []float32{1})
		kill()
		defer j.cancel()
		return push.Wait()
	})
	mustFail(t, "worker 0", errs[0], "push of key 0 by worker 0: pslitesim: server 0: ")
}

// The scheduler is lost before all have registered, or was never there: a node that waits for it ends with its context.
func TestNobodyToRegisterAt(t *testing.T) {
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var c Config
	c.Scheduler, c.Addr, c.Listener = "192.0.2.1:1", "192.0.2.2:1", listen(t)
	var dials atomic.Int32
	c.Dial = func(context.Context, string, string) (net.Conn, error) {
		if dials.Add(1) == 3 { // refused connections are tried again
			cancel(reason)
		}
		return nil, errors.New("connection refused")
	}
	_, err := NewWorker(ctx, c)
	if !errors.Is(err, reason) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want %v", err, reason)
	}
}

// Addresses that are none.
func TestBadAddresses(t *testing.T) {
	for _, addrs := range [][2]string{{"192.0.2.1", "192.0.2.2:1"}, {"192.0.2.1:1", "192.0.2.2:http"}, {"192.0.2.1:1", "192.0.2.2:65536"}} {
		var c Config
		c.Scheduler, c.Addr, c.Listener = addrs[0], addrs[1], listen(t)
		_, err := NewWorker(t.Context(), c)
		mustFail(t, fmt.Sprint(addrs), err, "pslitesim: address of the ")
		if _, err := c.Listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v: the listener is open (%v)", addrs, err)
		}
	}
}

// cutter closes a connection within the write that takes it to its limit.
type cutter struct {
	net.Conn
	left int
}

func (c *cutter) Write(b []byte) (int, error) {
	if len(b) <= c.left {
		c.left -= len(b)
		return c.Conn.Write(b)
	}
	n, err := c.Conn.Write(b[:c.left])
	c.left = 0
	c.Conn.Close()
	return n, errors.Join(err, errors.New("cut off"))
}

// A connection ends within a message: both ends know.
func TestMessageIsCutOff(t *testing.T) {
	c := impatient(1)
	c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &cutter{conn, 2000}, err // nothing is as long but the array below
	}
	j := newJob(t, c)
	errs := j.work(t, func(w *Worker) error { return w.Init(0, make([]float32, 1000)) })
	j.nodes.Wait()
	mustFail(t, "worker", errs[0], "push of key 0 by worker 0: pslitesim: server 0: ")
	mustFail(t, "server", j.errs["server"], "pslitesim: worker 0: zmtp: read frame 2 of a message: unexpected EOF")
}

// A peer that does not speak ZMTP, or hangs up at once, is turned away, and the job goes on.
func TestStrangersDoNotHarm(t *testing.T) {
	j := newJob(t, impatient(1))
	stranger, err := net.Dial("tcp", j.scheduler)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if _, err := io.WriteString(stranger, "GET / HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stranger).ReadString('\n'); err == nil {
		t.Error("the stranger is still connected")
	}
	j.mustWork(t, func(w *Worker) error { return w.Init(0, []float32{0}) })
}

// Two nodes that claim one identity, a relay that opens a connection twice: an error, where libzmq would lose messages.
func TestIdentityInUse(t *testing.T) {
	j := newJob(t, impatient(1))
	errs := j.work(t, func(w *Worker) error {
		raw, err := net.Dial("tcp", j.scheduler)
		if err != nil {
			return err
		}
		second, err := zmtp.Handshake(j.ctx, raw, zmtp.Socket{Type: zmtp.Dealer, Identity: "ps9"}, nil)
		if err != nil {
			return err
		}
		defer second.Close()
		<-w.node.Done()
		return w.node.Err()
	})
	j.nodes.Wait()
	mustFail(t, "worker", errs[0], "pslitesim: ")
	mustFail(t, "scheduler", j.errs["scheduler"], "worker 0: a second connection with the identity of one that has not ended")
}

// Requests that the servers cannot serve, and calls that make no sense.
func TestWrongRequests(t *testing.T) {
	for _, c := range []struct {
		workers int // the others call nothing but Init
		call    func(*Worker) error
		want    string
	}{
		{1, func(w *Worker) error { return w.Pull(3, make([]float32, 1)).Wait() },
			"pull of key 3 by worker 0: pslitesim: server 0: connection has ended while an answer is due"},
		{1, func(w *Worker) error { return w.Push(0, make([]float32, 3)).Wait() },
			"push of key 0: 3 elements, where it had 1"},
		{1, func(w *Worker) error { return w.PushPull(0, make([]float32, 1), make([]float32, 2)).Wait() },
			"push and pull of key 0: 2 elements, where it had 1"},
		{2, func(w *Worker) error {
			first, second := w.Push(0, []float32{1}), w.Push(0, []float32{1})
			return errors.Join(second.Wait(), first.err)
		}, "push of key 0: its last push is under way"},
		{1, func(w *Worker) error { return w.command(5, nil) },
			"command 5 by worker 0: "},
	} {
		j := newJob(t, impatient(c.workers))
		errs := j.work(t, func(w *Worker) error {
			if err := w.Init(0, []float32{0}); err != nil {
				return err
			}
			if w.Rank() > 0 {
				<-w.node.Done()
				return w.node.Err()
			}
			return c.call(w)
		})
		mustFail(t, "worker 0", errs[0], c.want)
	}
}

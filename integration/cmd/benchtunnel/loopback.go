//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// onLoopback measures the rows of T1 to T4, D1, D2 and D4.
func (m *measurement) onLoopback(ctx context.Context, kinds map[string]bool) error {
	if kinds["T1"] || kinds["T2"] || kinds["T4"] {
		if err := m.pairs(ctx, m.keys, kinds); err != nil {
			return err
		}
	}
	if kinds["D1"] || kinds["D2"] {
		if err := m.stacks(ctx, m.keys, kinds); err != nil {
			return err
		}
	}
	if kinds["D4"] {
		nonces, err := m.benchmark(ctx, "./proxy/tunnel", "Nonces$")
		if err != nil {
			return err
		}
		m.add("D4", "nonces that repeat among those of a million records, at most", nonces["repeats"], 0, "", true)
	}
	for _, streams := range []string{"1", "8"} {
		if kinds["T3"] {
			bulk, err := m.benchmark(ctx, "./proxy/tunnel", "Bulk/tls/streams="+streams+"$")
			if err != nil {
				return err
			}
			m.add("T3/rate/"+streams, "rate of the tunnel's streams over TLS, at least, of as many connections of TLS", bulk["rate/tls"], 0.9, "x", false)
			m.add("T3/cpu/"+streams, "processor time of the tunnel's streams over TLS, at most, of TLS's", bulk["cpu/tls"], 1.2, "x", true)
		}
		if kinds["D2"] {
			bulk, err := m.benchmark(ctx, "./proxy/tunnel", "Bulk/dtls/streams="+streams+"$")
			if err != nil {
				return err
			}
			m.add("D2/cpu/"+streams, "bytes of the tunnel's streams over DTLS in a second of processor time, at least, of TLS's", 1/bulk["cpu/tls"], 0.6, "x", false)
		}
	}
	return nil
}

// benchmark runs benchmarks of a package and returns the medians of the rounds by their units.
func (m *measurement) benchmark(ctx context.Context, pkg, pattern string) (map[string]float64, error) {
	cmd := exec.CommandContext(ctx, "go", "test", pkg, "-run", "^$", "-bench", pattern, "-count", strconv.Itoa(m.rounds))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	values := units(string(out))
	if len(values) == 0 {
		return nil, fmt.Errorf("%s: it has measured nothing: %s", cmd, out)
	}
	medians := map[string]float64{}
	for unit, x := range values {
		medians[unit] = median(x)
	}
	return medians, nil
}

// units returns the values in the output of benchmarks by their units.
func units(out string) map[string][]float64 {
	values := map[string][]float64{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				values[f[i+1]] = append(values[f[i+1]], v)
			}
		}
	}
	return values
}

// rest is how long connections have said nothing when their memory is measured: Go collects garbage every two minutes
// at least, and gives memory back after that.
const rest = 150 * time.Second

// idle measures T5: the memory of one proxy with connections that say nothing. This process has both ends of each, so
// that the usual limit of 20,000 files allows 9,000.
func (m *measurement) idle(ctx context.Context, w *testbed.WAN, ps testbed.Proxies, t variant) error {
	const connections = 9000
	from, to := w.Sites[0], w.Sites[1]
	l, err := to.Listen(net.JoinHostPort(to.Addr.String(), "0"))
	if err != nil {
		return err
	}
	before, err := ps[0].Resident()
	if err != nil {
		l.Close()
		return err
	}
	conns := make(chan net.Conn, 2*connections)
	defer func() {
		l.Close()
		for range len(conns) {
			(<-conns).Close()
		}
	}()
	if err := connectMany(ctx, from, l, connections, conns); err != nil {
		return fmt.Errorf("%d connections: %w", connections, err)
	}
	select {
	case <-time.After(rest):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := ps[0].Resident()
	if err != nil {
		return err
	}
	const mib = 1 << 20
	fmt.Fprintf(os.Stderr, "resident before the connections: %d MiB\n", before/mib)
	m.add("T5/"+t.name, "resident memory of one side with 9,000 idle connections, at most", float64(after)/mib, 120*connections/10000, "MiB", true)
	return nil
}

// connectMany dials a listener n times from a site, and sends both ends of each connection to conns, which has room for
// them.
func connectMany(ctx context.Context, from *testbed.Site, l net.Listener, n int, conns chan<- net.Conn) error {
	var accepting, dialing errgroup.Group
	accepting.Go(func() error {
		for range n {
			far, err := l.Accept()
			if err != nil {
				return err
			}
			conns <- far
		}
		return nil
	})
	dialing.SetLimit(64)
	for range n {
		dialing.Go(func() error {
			near, err := from.Dial(ctx, "tcp", l.Addr().String())
			if err == nil {
				conns <- near
			}
			return err
		})
	}
	if err := dialing.Wait(); err != nil {
		l.Close()
		return errors.Join(err, accepting.Wait())
	}
	l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	return accepting.Wait()
}

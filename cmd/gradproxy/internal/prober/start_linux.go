//go:build amd64 || arm64

package prober

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/apart"
)

// How long the prober may take: quick questions are looked up in maps, others search /proc, and attach programs to a
// library.
const (
	quickWithin = 2 * time.Second
	slowWithin  = time.Minute

	// quickRest is how long nobody asks a quick question after a late answer: parsers wait for the answers, and may so
	// lose a part of 11 of their time at most.
	quickRest = 10 * quickWithin

	// grace is the time after a rest in which a line's next question comes and has its answer, if processes are seen:
	// they are counted each second.
	grace = quickWithin + time.Second
)

// The price of late answers, in the words of the log.
const (
	quickCost = "values whose calls are not known travel exactly, in jobs with sums: gradients as well"
	slowCost  = "nothing is proved for connections whose process is not found yet, and their sums travel exactly, except in jobs with sums: gradients"
)

// Start starts a prober with the rights that this process has now. If the prober ends before Close, lost is called once
// with the reason.
func Start(log *slog.Logger, lost func(error)) (*Client, error) {
	c := &Client{
		quick:     &line{within: quickWithin, rest: quickRest, grace: grace, cost: quickCost},
		slow:      &line{within: slowWithin, grace: grace, cost: slowCost},
		processes: map[uint32]*Process{},
	}
	process, err := apart.Start(apart.Part{Name: programName, Pairs: descriptors, Memory: Memory, Says: "the process that probes says"}, log)
	if err != nil {
		return nil, fmt.Errorf("prober: %w", err)
	}
	for i, l := range []*line{c.quick, c.slow} {
		l.conn, l.log = process.Conns[i], log
	}
	c.pid, c.kill, c.died = process.Pid(), process.Kill, process.Await
	process.Watch(func(err error) { c.await(err, lost) })
	return c, nil
}

// await calls lost, unless Close has been called, once the process that probes has ended.
func (c *Client) await(err error, lost func(error)) {
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if !closing {
		lost(c.giveUp(fmt.Errorf("the process that probes has ended: %w", err)))
	}
}

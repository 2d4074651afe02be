package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/adminclient"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/top"
)

// minInterval keeps top from being a load on the proxy.
const minInterval = 100 * time.Millisecond

func topCommand() *cobra.Command {
	var where adminFlags
	var asJSON bool
	var interval time.Duration
	var count, tensors int
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the traffic of the running proxy as it changes, on the terminal",
		Long: `Show the links of the running proxy and the tensors that it sends, with their rates, on the terminal until q is pressed. Tab changes between five
views: links and tensors, peers with their carriers, jobs, budgets with the candidates of shadow mode, and rates and outages of the last hour. Enter explains the tensor at the top of the list, with its history; Escape goes back. The arrows move the columns and lines that do not fit. A ratio of a link is the
bytes that apps sent and got over the bytes of packets that the link carried.

With --json it prints one object a line, one a second, with the rates of that second.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case interval < minInterval:
				return usagef("--interval %v: it must be %v at least", interval, minInterval)
			case count < 0:
				return usagef("--count %d: it cannot be negative; leave it out for no end", count)
			case tensors < 0:
				return usagef("--tensors %d: it cannot be negative; 0 lists all", tensors)
			case count > 0 && !asJSON:
				return usagef("--count is for --json: leave it out, or add --json")
			case !asJSON && !term.IsTerminal(int(os.Stdout.Fd())):
				return usagef("standard output is no terminal: add --json, or use gradproxy status")
			}
			address, err := where.address()
			if err != nil {
				return err
			}
			proxy := adminclient.At(address)
			defer proxy.Close()
			s := &top.Sampler{Proxy: proxy, Limit: tensors}
			if asJSON {
				return top.Print(c.Context(), c.OutOrStdout(), s, interval, count)
			}
			return top.Show(c.Context(), s, interval)
		},
	}
	where.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object an interval, each on a line")
	c.Flags().DurationVar(&interval, "interval", time.Second, "time between two questions")
	c.Flags().IntVar(&count, "count", 0, "objects of --json, after which it ends (default: no end)")
	c.Flags().IntVar(&tensors, "tensors", 100, "tensors at most, the busiest; 0: all")
	return c
}

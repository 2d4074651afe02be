package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/adminclient"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/advise"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/proxy/trials"
)

func adviseCommand() *cobra.Command {
	var where adminFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "advise",
		Short: "Print the configuration that the running proxy's shadow mode speaks for, and why",
		Long: `Ask the running proxy for the results of its shadow mode, and print for each role of each job the candidate that leaves fewest bytes, why, and the
rules to copy into the configuration. The proxy must have candidates, such as shadow: [int8, 3lc], and must have carried a job for some dozens of steps.
The exit code is 1 if no proxy answers, or it has no candidates.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			address, err := where.address()
			if err != nil {
				return err
			}
			running := adminclient.At(address)
			defer running.Close()
			r, err := running.Shadow(c.Context())
			if err != nil {
				return err
			}
			if r == nil {
				return errors.New("the proxy tries no codec: name candidates in its configuration, such as shadow: [int8, 3lc], and have it read that again (SIGHUP)")
			}
			a := advise.Of(r)
			if asJSON {
				return writeJSON(c.OutOrStdout(), a)
			}
			s, err := running.Status(c.Context())
			if err != nil {
				return err
			}
			printAdvice(c.OutOrStdout(), a, r, s)
			return nil
		},
	}
	where.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func printAdvice(w io.Writer, a *advise.Advice, r *trials.Report, s *adminclient.Status) {
	fmt.Fprintf(w, "%d values, %s, were tried in %.3g s of a core; %d more found no room\n", r.Values, admin.Size(r.Bytes), r.Spent, r.Dropped)
	if len(a.Choices) == 0 {
		if advise.Lossless(r) {
			fmt.Fprintln(w, "nothing that was sent may lose anything: /tensors names the missing proof of each tensor, such as sums: gradients of its job")
		} else {
			fmt.Fprintln(w, "no candidate has coded a tensor for long enough: ask again once the job has made some dozens of steps")
		}
		return
	}
	for _, c := range a.Choices {
		name := "no job"
		if c.Job != "" {
			name = "job " + c.Job
		}
		fmt.Fprintf(w, "\n%s, %s, %s of apps, %s in the tunnel: %s\n", name, c.Role, admin.Size(c.Raw), admin.Size(c.Now), c.Why)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  candidate\tbytes\tratio\terror\tbehind\tcore\t")
		for _, o := range c.Options {
			fmt.Fprintf(t, "  %s\t%s\t%.2fx\t%.2g\t%.2g\t%.2g\t%s\n", o.Codec, admin.Size(o.Bytes), float64(c.Raw)/float64(max(1, o.Bytes)), o.Error, o.Residual, o.Coding, o.Refused)
		}
		_ = t.Flush() // it fails only if the terminal has gone
	}
	fmt.Fprintf(w, "\nin all %s of apps: %s in the tunnel now, %s as advised\n", admin.Size(a.Raw), admin.Size(a.Now), admin.Size(a.Then))
	printSavings(w, a, s)
	if a.YAML == "" {
		fmt.Fprintln(w, "\nThe present configuration is the one to keep.")
		return
	}
	fmt.Fprintf(w, "\nPut these rules before all others (docs/loss.md says what each role may lose):\n\n%s", a.YAML)
}

// printSavings prints the worth of the advice by the day, at the peers' prices.
func printSavings(w io.Writer, a *advise.Advice, s *adminclient.Status) {
	if a.Now == 0 || a.Seconds < 1 {
		return
	}
	days := a.Seconds / (24 * time.Hour).Seconds()
	left := float64(a.Now-a.Then) / float64(a.Now) // of the link's bytes
	fmt.Fprintf(w, "at this rate %s a day fewer on links\n", admin.Size(int64(left*float64(s.Network.Sent)/days)))
	for _, p := range s.Peers {
		if p.Money != nil {
			fmt.Fprintf(w, "%s: %s a day fewer\n", p.Name, admin.Amount(left*p.Money.Spent/days, p.Money.Currency))
		}
	}
}

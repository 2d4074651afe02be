package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/adminclient"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/site"
	"github.com/gradproxy/gradproxy/proxy/admin"
)

// defaultAdmin is the admin address of a configuration that names none.
const defaultAdmin = "127.0.0.1:9090"

func readyCommand() *cobra.Command {
	var where adminFlags
	var wait time.Duration
	var exclude []string
	c := &cobra.Command{
		Use:   "ready",
		Short: "Ask the running proxy whether it is ready, or wait until it is",
		Long: `Ask the running proxy whether it is ready: its rules are in force, every peer has a tunnel, and it is not ending. It prints a
line for each check. The exit code is 0 if all hold, 1 if one does not or no proxy answers.

With --wait it asks again until all hold or the time is over, also while the proxy is still starting.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if wait < 0 {
				return usagef("--wait %v: a time cannot be negative", wait)
			}
			address, err := where.address()
			if err != nil {
				return err
			}
			proxy := adminclient.At(address)
			defer proxy.Close()
			r, err := proxy.Ready(c.Context(), exclude...)
			if wait > 0 && (err != nil || !r.Ready) {
				ctx, cancel := context.WithTimeout(c.Context(), wait)
				defer cancel()
				r, err = proxy.Await(ctx, exclude...)
			}
			if err != nil {
				return err
			}
			printChecks(c.OutOrStdout(), r)
			if !r.Ready {
				return notReady(r, wait)
			}
			return nil
		},
	}
	where.add(c)
	c.Flags().DurationVar(&wait, "wait", 0, "wait until the proxy is ready, at most so long")
	c.Flags().StringSliceVar(&exclude, "exclude", nil, "check that does not count, as peer/tokyo; may be repeated")
	return c
}

func statusCommand() *cobra.Command {
	var where adminFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Print the traffic of the running proxy, and the state of its peers",
		Long: `Print whether the running proxy is ready, the bytes that its job's connections have sent and got and the bytes that the links have carried for
them, and the state of every peer. The exit code is 1 if no proxy answers.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			address, err := where.address()
			if err != nil {
				return err
			}
			proxy := adminclient.At(address)
			defer proxy.Close()
			s, err := proxy.Status(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), s)
			}
			printStatus(c.OutOrStdout(), s)
			return nil
		},
	}
	where.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// adminFlags name the running proxy.
type adminFlags struct{ file, admin string }

func (f *adminFlags) add(c *cobra.Command) {
	c.Flags().StringVarP(&f.file, "config", "c", "", "configuration file of the proxy, for its admin address")
	c.Flags().StringVar(&f.admin, "admin", "", "admin address of the proxy, host:port or unix:/path (default "+defaultAdmin+")")
}

func (f *adminFlags) address() (string, error) {
	switch {
	case f.file == "":
		return cmp.Or(f.admin, defaultAdmin), nil
	case f.admin != "":
		return "", usagef("-c and --admin both name the admin address: leave one out")
	}
	c, problems := config.Load(f.file, site.Known())
	if errs := problems.Errors(); len(errs) > 0 {
		return "", &usageError{errs}
	}
	if c.Admin == config.Off {
		return "", usagef("%s: admin is off: set it to an address, and restart the proxy", f.file)
	}
	return c.Admin, nil
}

func printChecks(w io.Writer, r *admin.Readiness) {
	for _, check := range r.Checks {
		fmt.Fprintln(w, check)
	}
	if r.Ready {
		fmt.Fprintln(w, "ready")
	}
}

// notReady names the checks that do not hold, in one line.
func notReady(r *admin.Readiness, waited time.Duration) error {
	var failed []string
	for _, check := range r.Checks {
		if !check.OK && !check.Excluded {
			failed = append(failed, check.Name)
		}
	}
	after := ""
	if waited > 0 {
		after = fmt.Sprintf(" after %v", waited)
	}
	if len(failed) == 0 {
		return errors.New("not ready" + after)
	}
	return fmt.Errorf("site %s is not ready%s: %s", r.Site, after, strings.Join(failed, ", "))
}

func printStatus(w io.Writer, s *adminclient.Status) {
	fmt.Fprintf(w, "site %s, gradproxy %s, up for %v\n", s.Site, s.Version, time.Duration(s.Uptime*float64(time.Second)).Round(time.Second))
	printChecks(w, &s.Readiness)
	if !s.Ready {
		fmt.Fprintln(w, "not ready")
	}
	fmt.Fprintf(w, "\n%d connections; their apps sent %s and got %s; links carried %s and %s, all headers included%s\n",
		s.Connections, admin.Size(s.Raw), admin.Size(s.Delivered), admin.Size(s.Network.Sent), admin.Size(s.Network.Received), fewer(s.Network.Ratio(s.Raw, s.Delivered)))
	printBudgets(w, s.Budgets)
	if len(s.Peers) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "peer\tstate\tcarriers\trtt\tconnections\tapps sent\tlink sent\tapps got\tlink got\tratio\tsent again")
	for _, p := range s.Peers {
		state, rtt := admin.LinkState(p.Up, p.Outage), cmp.Or(admin.RTTOf(p.RTT), "-")
		carriers := strconv.Itoa(p.Carriers)
		if p.Choice != "" {
			carriers += " (" + p.Choice + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, state, carriers, rtt, p.Connections, admin.Size(p.Raw), admin.Size(p.Network.Sent),
			admin.Size(p.Delivered), admin.Size(p.Network.Received), ratio(p.Network.Ratio(p.Raw, p.Delivered)), admin.Size(p.Replayed))
	}
	_ = t.Flush() // it fails only if the terminal has gone
	for _, p := range s.Peers {
		if m := p.Money; m != nil {
			fmt.Fprintf(w, "%s: %s spent on the link, %s saved\n", p.Name, admin.Amount(m.Spent, m.Currency), admin.Amount(m.Saved, m.Currency))
		}
	}
}

// printBudgets writes a line for each budget.
func printBudgets(w io.Writer, all []adminclient.Budget) {
	for _, b := range all {
		owner := "peer " + b.Peer
		if b.Job != "" {
			owner = "job " + b.Job
		}
		note := ""
		switch {
		case b.Used >= b.Limit:
			note = ": it is spent"
		case b.Projected > b.Limit:
			note = ": it will not last"
		}
		if b.Stage > 0 {
			note += fmt.Sprintf("; codec %d of budget.then is in force", b.Stage)
		}
		then := ""
		if b.Projected > b.Used { // else nothing is sent, or no rate is believed yet
			then = fmt.Sprintf(", %s by the end of the day at this rate", admin.Size(b.Projected))
		}
		fmt.Fprintf(w, "budget of %s: %s of %s used today (UTC)%s%s\n", owner, admin.Size(b.Used), admin.Size(b.Limit), then, note)
	}
}

// fewer says by which factor links carry fewer bytes.
func fewer(by float64) string {
	switch {
	case by == 0:
		return ""
	case by < 1:
		return fmt.Sprintf(" (%.2fx more)", 1/by)
	}
	return fmt.Sprintf(" (%.2fx fewer)", by)
}

// ratio writes the ratio of a link.
func ratio(r float64) string {
	if r == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", r)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/wan"
)

func wanCheckCommand(dir *string) *cobra.Command {
	var flags wanFlags
	c := &cobra.Command{
		Use:   "check [FILE|NAME]",
		Short: "Measure the links of a network against their configuration",
		Long: `Measure the links of a network against their configuration: the rate of IP bytes within 2 %, the round-trip
time within 0.5 ms and 1 %, and the loss of 2,000 datagrams within the binomial distribution's 99 %, in two of three tries.
A network that is up is measured as it is, and must have no other traffic; one that is not is laid out for the time, and its
traces do not run. The exit code is 1 if a link is not as asked. Needs root.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			checked, err := wanCheck(c.Context(), *dir, argument(args), flags, c.OutOrStdout())
			if err != nil {
				return err
			}
			if flags.asJSON {
				if err := writeJSON(c.OutOrStdout(), checked); err != nil {
					return err
				}
			}
			if bad := checked.Bad(); bad > 0 {
				return fmt.Errorf("wan check: %d of %d directions are not as asked", bad, len(checked.Links))
			}
			return nil
		},
	}
	flags.add(c)
	return c
}

// wanCheck measures the network of that name if it is up and no back end is asked for, and else one of its own. Its
// table grows with each direction.
func wanCheck(ctx context.Context, dir, name string, flags wanFlags, out io.Writer) (c wan.Checked, err error) {
	each := func(p *wan.Plan) func(wan.CheckedWay) {
		if flags.asJSON {
			return func(wan.CheckedWay) {}
		}
		io.WriteString(out, p.CheckHeader())
		return func(w wan.CheckedWay) { io.WriteString(out, w.String()) }
	}
	if flags.backEnd == "" {
		state, err := wan.Find(dir, name)
		if err == nil {
			return state.Check(ctx, each(state.Plan))
		}
		if name == "" {
			return c, err
		}
	}
	plan, err := flags.plan(name)
	if err != nil {
		return c, err
	}
	plan = plan.Renamed(plan.Name + "-check") // beside one that is up
	state, err := wan.Hold(ctx, dir, plan)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, state.Release()) }()
	n, err := wan.Up(ctx, plan)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	return n.Check(ctx, each(plan))
}

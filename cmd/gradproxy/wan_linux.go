package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/wan"
)

func wanCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "wan",
		Short: "Lay out an emulated wide-area network on this machine, and run commands at its sites",
		Long: `Lay out an emulated wide-area network on this machine: sites, which are network namespaces, and links between them with
a rate, a delay, jitter, loss, a queue and a price, as a topology file says or a ready topology. docs/wan.md describes the file.`,
		Example: `  gradproxy wan list
  gradproxy wan up gaia --detach
  gradproxy wan exec virginia -- ping -c 3 tokyo
  gradproxy wan cut virginia tokyo --for 30s
  gradproxy wan set virginia tokyo rate=5Mbit/s loss=1%
  gradproxy wan down
  gradproxy wan check 3lc-100`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return usagef("wan: name a command: see gradproxy wan --help") },
	}
	var dir string
	c.PersistentFlags().StringVar(&dir, "state-dir", wan.StateDir, "folder in which networks that are up are noted")
	c.AddCommand(wanUpCommand(&dir), wanExecCommand(&dir), wanStatusCommand(&dir), wanCutCommand(&dir), wanSetCommand(&dir), wanDownCommand(&dir), wanCheckCommand(&dir), wanListCommand(&dir))
	return c
}

// wanFlags are the flags that wan up and wan check share.
type wanFlags struct {
	backEnd string
	asJSON  bool
}

func (f *wanFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.backEnd, "back-end", "", "the emulator of the links: user, kernel or ebpf (default: the one that this kernel supports)")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
}

// plan reads a topology and chooses its back end.
func (f *wanFlags) plan(name string) (*wan.Plan, error) {
	t, problems := wan.Load(name)
	if len(problems) > 0 {
		return nil, &usageError{problems}
	}
	p, err := wan.Choose(t, wan.BackEnd(f.backEnd))
	if err != nil {
		return nil, usagef("--back-end: %w", err)
	}
	return p, nil
}

func wanUpCommand(dir *string) *cobra.Command {
	var flags wanFlags
	var onlyPlan, detach bool
	var reportTo int
	c := &cobra.Command{
		Use:   "up FILE|NAME",
		Short: "Lay out the network of a topology file or of a ready topology, until SIGINT or SIGTERM",
		Long: `Lay out the network of a topology file or of a ready topology. It lasts as long as the command does, or with --detach until
gradproxy wan down. At its end it prints the bytes that each link has carried, and their price. Needs root.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			plan, err := flags.plan(args[0])
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if onlyPlan {
				return show(out, plan, plan.String(), flags.asJSON)
			}
			if detach {
				return wanDetach(c, *dir, args[0], flags)
			}
			ready, finish := out, func() error { return nil }
			if reportTo > 0 {
				f := os.NewFile(uintptr(reportTo), "report")
				ready, finish, out = f, f.Close, io.Discard
			}
			return wanUp(c.Context(), *dir, plan, func() error {
				if err := show(ready, plan, plan.Summary(), flags.asJSON); err != nil {
					return err
				}
				return finish()
			}, func(r wan.Report) error { return show(out, r, r.String(), flags.asJSON) })
		},
	}
	flags.add(c)
	c.Flags().BoolVar(&onlyPlan, "plan", false, "only print the plan")
	c.Flags().BoolVar(&detach, "detach", false, "return when the network is up and leave it to a process in the background")
	c.Flags().IntVar(&reportTo, "report-fd", 0, "")
	c.Flags().MarkHidden("report-fd")
	return c
}

// wanUp lays the network out, calls ready, and takes it down when ctx ends or a link fails.
func wanUp(ctx context.Context, dir string, plan *wan.Plan, ready func() error, last func(wan.Report) error) (err error) {
	state, err := wan.Hold(ctx, dir, plan)
	if err != nil {
		return err
	}
	defer func() { err = first(err, state.Release()) }()
	n, err := wan.Up(ctx, plan)
	if err != nil {
		return err
	}
	defer func() { err = first(err, n.Close()) }()
	answering, stop := context.WithCancel(ctx)
	defer stop()
	if err := state.Answer(answering, n); err != nil {
		return err
	}
	n.Follow()
	if err := ready(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err = <-n.Failed():
	}
	r, err2 := n.Report()
	if err2 == nil {
		err2 = last(r)
	}
	return first(err, err2)
}

// first returns the first error, which the others follow from.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// wanDetach starts wan up as a process of its own session, and passes on its output until the network is up.
func wanDetach(c *cobra.Command, dir, name string, flags wanFlags) error {
	report, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer report.Close()
	args := []string{"wan", "up", name, "--state-dir", dir, "--back-end", flags.backEnd, "--report-fd", "3"}
	if flags.asJSON {
		args = append(args, "--json")
	}
	log, err := os.CreateTemp("", "gradproxy-wan-*.log")
	if err != nil {
		return err
	}
	defer os.Remove(log.Name()) // only errors before the network is up go there
	defer log.Close()
	child := exec.Command("/proc/self/exe", args...)
	child.Args[0] = os.Args[0]
	child.Stderr = log
	child.ExtraFiles = []*os.File{theirs}
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// A signal for this command before the network is up is one for the process that lays it out.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	err = child.Start()
	theirs.Close()
	if err != nil {
		return err
	}
	go func() {
		for s := range signals {
			child.Process.Signal(s)
		}
	}()
	text, err := io.ReadAll(report)
	if err != nil {
		return err
	}
	if len(text) > 0 {
		_, err = c.OutOrStdout().Write(text)
		return err
	}
	err = child.Wait()
	said, readErr := os.ReadFile(log.Name())
	if readErr == nil && len(said) > 0 {
		return errors.New(strings.ReplaceAll("\n"+string(said), "\ngradproxy: ", "\n")) // said anew by this process
	}
	return fmt.Errorf("wan %s: the network did not come up: %w", name, err)
}

func wanExecCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "exec [NAME] SITE -- COMMAND…",
		Short: "Run a command at a site of a network that is up",
		Long: `Run a command at a site of a network that is up: in its network namespace, where the names of sites are known as hosts. The
command takes this one's place, so its exit code, its signals and its terminal are its own. NAME may be left out where
only one network is up. Needs root.`,
		Args: func(c *cobra.Command, args []string) error {
			if n := c.ArgsLenAtDash(); n != 1 && n != 2 || n == len(args) {
				return fmt.Errorf("write gradproxy wan exec [NAME] SITE -- COMMAND")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			n := c.ArgsLenAtDash()
			name := ""
			if n == 2 {
				name = args[0]
			}
			state, err := wan.Find(*dir, name)
			if err != nil {
				return err
			}
			return state.Enter(args[n-1], args[n:])
		},
	}
}

func wanStatusCommand(dir *string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Print the bytes that each link of a network has carried so far, and their price",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			state, err := wan.Find(*dir, argument(args))
			if err != nil {
				return err
			}
			r, err := state.Ask()
			if err != nil {
				return err
			}
			return show(c.OutOrStdout(), r, r.String(), asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// orderFlags are the flags that wan cut and wan set share.
type orderFlags struct {
	lasts  time.Duration
	oneWay bool
}

func (f *orderFlags) add(c *cobra.Command) {
	c.Flags().DurationVar(&f.lasts, "for", 0, "how long it lasts (default: until wan set --reset)")
	c.Flags().BoolVar(&f.oneWay, "one-way", false, "only packets from the first site to the second")
}

// give gives an order for a link to the network of a name; "": the only one.
func (f *orderFlags) give(dir, name string, o wan.Order) error {
	if f.lasts < 0 {
		return usagef("--for %v: give a time above 0", f.lasts)
	}
	o.For, o.OneWay = f.lasts, f.oneWay
	state, err := wan.Find(dir, name)
	if err != nil {
		return err
	}
	return state.Order(o)
}

func wanCutCommand(dir *string) *cobra.Command {
	var flags orderFlags
	c := &cobra.Command{
		Use:   "cut [NAME] SITE SITE",
		Short: "Cut the link between two sites of a network that is up, for a time or until wan set --reset",
		Long: `Cut the link between two sites of a network that is up: no packet passes any more, and neither site is told. Packets that are
already on the way still arrive. NAME may be left out where only one network is up. Needs root.`,
		Example: `  gradproxy wan cut paris tokyo --for 30s
  gradproxy wan cut paris tokyo --one-way`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(_ *cobra.Command, args []string) error {
			name, from, to := linkArguments(args)
			return flags.give(*dir, name, wan.Cut(from, to))
		},
	}
	flags.add(c)
	return c
}

func wanSetCommand(dir *string) *cobra.Command {
	var flags orderFlags
	var reset bool
	c := &cobra.Command{
		Use:   "set [NAME] SITE SITE KEY=VALUE...",
		Short: "Change rate, delay or loss of a link of a network that is up",
		Long: `Change a link of a network that is up, from the next packet on. The keys are rate, delay (one way), rtt and loss, as in topology
files; what is left out stays, and follows the link's trace. NAME may be left out where only one network is up. Needs root.`,
		Example: `  gradproxy wan set paris tokyo rate=5Mbit/s rtt=200ms
  gradproxy wan set paris tokyo loss=2% --one-way --for 1m
  gradproxy wan set paris tokyo --reset`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			n := slices.IndexFunc(args, func(a string) bool { return strings.Contains(a, "=") })
			if n < 0 {
				n = len(args)
			}
			if n != 2 && n != 3 {
				return usagef("wan set: write gradproxy wan set [NAME] SITE SITE KEY=VALUE")
			}
			name, from, to := linkArguments(args[:n])
			o := wan.Order{From: from, To: to, Reset: reset}
			if err := o.Set(args[n:]); err != nil {
				return usagef("wan set: %w", err)
			}
			switch changes := n < len(args); {
			case reset && (changes || flags.lasts != 0):
				return usagef("wan set: --reset takes all orders for the link back: give it without changes and --for")
			case !reset && !changes:
				return usagef("wan set: name a change, such as rate=5Mbit/s, or --reset")
			}
			return flags.give(*dir, name, o)
		},
	}
	flags.add(c)
	c.Flags().BoolVar(&reset, "reset", false, "take all orders for the link back, also the orders of wan cut")
	return c
}

// linkArguments returns the network's name, which may be left out, and the ends of a link.
func linkArguments(args []string) (name, from, to string) {
	n := len(args)
	if n == 3 {
		name = args[0]
	}
	return name, args[n-2], args[n-1]
}

func wanDownCommand(dir *string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "down [NAME]",
		Short: "Take a network down, or remove the remains of one whose process was killed",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			state, err := wan.Find(*dir, argument(args))
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
			defer cancel()
			last, err := state.Down(ctx)
			if err != nil {
				return err
			}
			if last == nil {
				return show(c.OutOrStdout(), map[string]any{"name": state.Plan.Name, "links": []any{}},
					state.Plan.Name+": its process had died; its namespaces and rules are removed\n", asJSON)
			}
			return show(c.OutOrStdout(), last, last.String(), asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// argument returns the only one, "" if there is none.
func argument(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// A listed topology or network, as wan list --json prints it. Its names are stable.
type listed struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Ready bool   `json:"ready"` // it comes with the program
	Up    bool   `json:"up"`
}

func wanListCommand(dir *string) *cobra.Command {
	var asJSON bool
	var topology string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the ready topologies and the networks that are up",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			out := c.OutOrStdout()
			if topology != "" {
				text, ok := wan.Ready(topology)
				if !ok {
					return usagef("--print %s: there is no such ready topology: see gradproxy wan list", topology)
				}
				_, err := out.Write(text)
				return err
			}
			list, err := wanList(*dir)
			if err != nil {
				return err
			}
			text := ""
			for _, l := range list {
				state := "     "
				if l.Up {
					state = "up   "
				}
				text += fmt.Sprintf("%s%-12s %s\n", state, l.Name, l.About)
			}
			return show(out, map[string]any{"topologies": list}, text, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&topology, "print", "", "print the file of this ready topology instead")
	return c
}

func wanList(dir string) (list []listed, err error) {
	for _, name := range wan.ReadyNames() {
		t, _ := wan.LoadReady(name)
		list = append(list, listed{Name: name, About: t.About, Ready: true})
	}
	states, err := wan.Networks(dir)
	for _, s := range states {
		about := "up"
		if !s.Alive() {
			about = "its process has died: gradproxy wan down removes its leftovers"
		}
		known := false
		for i := range list {
			if list[i].Name == s.Plan.Name {
				list[i].Up, known = s.Alive(), true
			}
		}
		if !known {
			list = append(list, listed{Name: s.Plan.Name, About: about, Up: s.Alive()})
		}
	}
	return list, err
}

// show writes v as JSON, or text.
func show(w io.Writer, v any, text string, asJSON bool) error {
	if asJSON {
		return writeJSON(w, v)
	}
	_, err := io.WriteString(w, text)
	return err
}

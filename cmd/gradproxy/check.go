package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/site"
)

// A checked is the output of check --json. Its names are stable.
type checked struct {
	File     string          `json:"file"`
	OK       bool            `json:"ok"` // there are no errors; there may be warnings
	Errors   config.Problems `json:"errors"`
	Warnings config.Problems `json:"warnings"`
	Live     []livePeer      `json:"live,omitempty"`                  // with --live
	Rules    string          `json:"rules,omitempty"`                 // with --rules, in the language of nft
	Memory   int64           `json:"memory_bytes"`                    // that all budgets add up to; 0: there are errors
	Conns    int             `json:"connections"`                     // that there may be at once, by the limits of descriptors and memory here
	Whole    int64           `json:"connections_memory_bytes"`        // Memory, with so many connections
	More     int64           `json:"datagram_memory_bytes,omitempty"` // beside Memory, which carriers over datagrams take where it is there

	summary string // three or four lines, if it is good
}

// A checkedTogether is the output of check --json for several files. Its names are stable.
type checkedTogether struct {
	OK       bool            `json:"ok"`       // no file has an error, nor have they together
	Files    []*checked      `json:"files"`    // each by itself
	Errors   config.Problems `json:"errors"`   // that show only when the files are compared
	Warnings config.Problems `json:"warnings"` //
}

func checkCommand() *cobra.Command {
	var file string
	var asJSON, rules, noFiles, live bool
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check configuration files, alone and against each other, and print every error and warning",
		Long: `Check a configuration file, and the certificates that it names, and print every error and warning. The exit code is 2
if there are errors. Nothing is touched and no privilege is needed.

Given the files of several sites, it also compares them: networks of one against may_dial of the other, who dials whom, which
certificates each accepts, jobs. What does not fit is an error, what is of use to nobody a warning.

With --live it asks the running proxy of this host, at the file's admin address, to ask every peer through the tunnel, and compares
the file with the answers.`,
		RunE: func(c *cobra.Command, args []string) error {
			if file != "" {
				args = append([]string{file}, args...)
			}
			if len(args) == 0 {
				return usagef("no file given: write gradproxy check FILE, or gradproxy check FILE FILE for both sites")
			}
			if live && len(args) > 1 {
				return usagef("--live compares one file with the peers that run: name one file")
			}
			var all []*checked
			var sites []*config.Config
			for _, file := range args {
				r, cfg := checkFile(file, rules, noFiles)
				all = append(all, r)
				if r.OK {
					sites = append(sites, cfg)
				}
			}
			if live && all[0].OK {
				if err := all[0].compareLive(c.Context(), sites[0]); err != nil {
					return err
				}
			}
			if len(args) == 1 {
				return all[0].print(c, asJSON)
			}
			together := &checkedTogether{Files: all}
			problems := config.Together(sites)
			if !noFiles {
				problems = append(problems, config.Vouch(sites, time.Now())...)
			}
			together.Errors, together.Warnings = problems.Errors(), problems.Warnings()
			return together.print(c, asJSON)
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "configuration file; the same as an argument")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().BoolVar(&rules, "rules", false, "print the rules of nf_tables that run would put in force, as nft -f reads them")
	c.Flags().BoolVar(&noFiles, "no-files", false, "the file is for another machine: do not look at certificates, nor at this kernel")
	c.Flags().BoolVar(&live, "live", false, "compare with the peers of the running proxy, through the tunnel")
	return c
}

// checkFile checks one file by itself.
func checkFile(file string, rules, noFiles bool) (*checked, *config.Config) {
	cfg, problems := config.Load(file, site.Known())
	if cfg != nil && cfg.Site != "" && !noFiles {
		problems = append(problems, cfg.Identify(time.Now())...)
		problems = append(problems, cfg.Kernel()...)
		slices.SortStableFunc(problems, func(a, b config.Problem) int { return cmp.Compare(a.Line, b.Line) })
	}
	r := &checked{File: file, Errors: problems.Errors(), Warnings: problems.Warnings()}
	r.OK = len(r.Errors) == 0
	if r.OK {
		budget := site.BudgetOf(cfg)
		r.Memory = budget.Sum()
		r.summary = fmt.Sprintf("%s: ok: site %s, %s, %s, %s, %s\n%[1]s: memory: %[7]v", file, cfg.Site,
			number(len(cfg.Peers), "peer"), number(len(cfg.Networks()), "network"), number(len(cfg.Jobs), "job"), number(len(cfg.Policy), "rule"), budget)
		r.Conns, r.Whole = site.Connections(cfg)
		r.summary += fmt.Sprintf("\n%s: memory with all %d connections that the limits here allow: at most %dMiB", file, r.Conns, r.Whole>>20)
		if r.More = site.OfDatagrams(cfg); r.More > 0 {
			r.summary += fmt.Sprintf("\n%s: memory for carriers over datagrams as well: %dMiB more, taken only where it is there", file, r.More>>20)
		}
		if rules {
			r.Rules = rulesOf(cfg)
		}
	}
	return r, cfg
}

// number writes "1 peer", "2 peers".
func number(n int, name string) string {
	if n == 1 {
		return "1 " + name
	}
	return fmt.Sprintf("%d %ss", n, name)
}

// lists makes lists that JSON shows as lists, even empty ones.
func lists(all ...*config.Problems) {
	for _, p := range all {
		*p = append(config.Problems{}, *p...)
	}
}

func (r *checked) print(c *cobra.Command, asJSON bool) error {
	if asJSON {
		lists(&r.Errors, &r.Warnings)
		if err := writeJSON(c.OutOrStdout(), r); err != nil {
			return err
		}
		if !r.OK {
			return usagef("%s: %d errors", r.File, len(r.Errors))
		}
		return nil
	}
	warnings(c, r.Warnings)
	if !r.OK {
		return &usageError{r.Errors}
	}
	_, err := fmt.Fprint(c.OutOrStdout(), cmp.Or(r.Rules, r.summary+"\n"))
	return err
}

func (t *checkedTogether) print(c *cobra.Command, asJSON bool) error {
	errs := slices.Clone(t.Errors)
	for _, r := range t.Files {
		errs = append(errs, r.Errors...)
		lists(&r.Errors, &r.Warnings)
	}
	t.OK = len(errs) == 0
	if asJSON {
		lists(&t.Errors, &t.Warnings)
		if err := writeJSON(c.OutOrStdout(), t); err != nil {
			return err
		}
		if !t.OK {
			return usagef("%d errors", len(errs))
		}
		return nil
	}
	for _, r := range t.Files {
		warnings(c, r.Warnings)
		if text := cmp.Or(r.Rules, r.summary); text != "" {
			fmt.Fprintln(c.OutOrStdout(), strings.TrimSuffix(text, "\n"))
		}
	}
	warnings(c, t.Warnings)
	if !t.OK {
		return &usageError{errs}
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "the %d sites fit together\n", len(t.Files))
	return err
}

func warnings(c *cobra.Command, all config.Problems) {
	for _, p := range all {
		fmt.Fprintf(c.ErrOrStderr(), "gradproxy: warning: %v\n", p)
	}
}

// rulesOf returns the rules that run would put in force. It chooses the listeners' ports when it starts: here they are
// 1, which no listener has.
func rulesOf(c *config.Config) string {
	if c.Intercept.Mode == config.ModeOff {
		return "# no rules: intercept.mode is off\n"
	}
	if c.Intercept.Mode == config.ModeCgroup {
		return "# no rules: intercept.mode is cgroup, which attaches programs to " + c.Intercept.Cgroup + "\n"
	}
	redirect := site.Redirect(c)
	var listen4, listen6 uint16
	for _, n := range redirect.Networks {
		if n.Addr().Is4() {
			listen4 = 1
		} else {
			listen6 = 1
		}
	}
	plan := redirect.Plan(listen4, listen6)
	return "# gradproxy run puts the ports of its listeners in place of port 1\n" + plan.String()
}

package main

import (
	"cmp"
	"fmt"
	"slices"
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
	Rules    string          `json:"rules,omitempty"` // with --rules, in the language of nft
	Memory   int64           `json:"memory_bytes"`    // that all budgets add up to; 0: there are errors
}

func checkCommand() *cobra.Command {
	var file string
	var asJSON, rules, noFiles bool
	c := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Check a configuration file and print every error and warning",
		Long: `Check a configuration file, and the certificates that it names, and print every error and warning. The exit code is 2
if there are errors. Nothing is touched and no privilege is needed.`,
		Args: configByFlag,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, problems := config.Load(file, site.Known())
			if cfg != nil && cfg.Site != "" && !noFiles {
				problems = append(problems, cfg.Identify(time.Now())...)
				slices.SortStableFunc(problems, func(a, b config.Problem) int { return cmp.Compare(a.Line, b.Line) })
			}
			r := checked{File: file, Errors: problems.Errors(), Warnings: problems.Warnings()}
			r.OK = len(r.Errors) == 0
			if rules && r.OK {
				r.Rules = rulesOf(cfg)
			}
			if r.OK {
				r.Memory = site.BudgetOf(cfg).Sum()
			}
			return r.print(c, cfg, asJSON)
		},
	}
	configFlag(c, &file)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().BoolVar(&rules, "rules", false, "print the rules of nf_tables that run would put in force, as nft -f reads them")
	c.Flags().BoolVar(&noFiles, "no-files", false, "do not look at the certificates, which may lie on another machine")
	return c
}

func (r *checked) print(c *cobra.Command, cfg *config.Config, asJSON bool) error {
	if asJSON {
		r.Errors = append(config.Problems{}, r.Errors...) // a list, even an empty one
		r.Warnings = append(config.Problems{}, r.Warnings...)
		if err := writeJSON(c.OutOrStdout(), r); err != nil {
			return err
		}
		if !r.OK {
			return usagef("%s: %d errors", r.File, len(r.Errors))
		}
		return nil
	}
	for _, p := range r.Warnings {
		fmt.Fprintf(c.ErrOrStderr(), "gradproxy: warning: %v\n", p)
	}
	if !r.OK {
		return &usageError{r.Errors}
	}
	if r.Rules != "" {
		_, err := fmt.Fprint(c.OutOrStdout(), r.Rules)
		return err
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "%s: ok: site %s, %s, %s, %s, %s\n%[1]s: memory: %[7]v\n", r.File, cfg.Site,
		number(len(cfg.Peers), "peer"), number(len(cfg.Networks()), "network"), number(len(cfg.Jobs), "job"), number(len(cfg.Policy), "rule"),
		site.BudgetOf(cfg))
	return err
}

// number writes "1 peer", "2 peers".
func number(n int, name string) string {
	if n == 1 {
		return "1 " + name
	}
	return fmt.Sprintf("%d %ss", n, name)
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

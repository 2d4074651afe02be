package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect"
	"github.com/gradproxy/gradproxy/parser"
)

func inspectCommand() *cobra.Command {
	var (
		config inspect.Config
		sums   string
		asJSON bool
		whatIf whatIfFlags
	)
	c := &cobra.Command{
		Use:   "inspect FILE.pcap[.gz] | -",
		Short: "List a packet capture's connections, protocols and tensors, and their size with codecs",
		Long: `Say what a packet capture (pcap or pcapng, gzipped or not) holds: which connections speak which protocol, how much of
that is tensors of which role, and how many bytes proxies with each of some policies would have put into their tunnel.
All connections of the file are taken for one job.

A policy is the codec of gradients and of a server's weights, aggregates being lossless then, or CODEC+CODEC for these and aggregates. The
bytes include the frames between the proxies, and leave out the tunnel's records, TLS, TCP and IP: about 4 % more.

With --what-if it also says how many seconds the job's bytes take on links, and what they cost; --html writes that as a page to be mailed.`,
		Example: `  gradproxy inspect job.pcap.gz
  gradproxy inspect --sums gradients --ranks 3 --json job.pcap
  gradproxy inspect --sums gradients --codec 3lc+int8 job.pcap
  gradproxy inspect --what-if --link 100M/40ms --price 0.09 --site 10.1.0.0/16 --site 10.2.0.0/16 --html report.html job.pcap
  tcpdump -i eth0 -s 0 -U -w - | gradproxy inspect -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("%d files given, one is needed: write gradproxy inspect FILE.pcap", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			err := checkInspect(&config, sums)
			if err != nil {
				return err
			}
			if config.WhatIf, err = whatIf.question(); err != nil {
				return err
			}
			report, err := inspectUntil(c.Context(), args[0], config)
			if report == nil || err != nil && len(report.Connections) == 0 {
				return err
			}
			if whatIf.html != "" {
				if e := writeReport(report, whatIf.html, args[0]); e != nil {
					return errors.Join(err, e)
				}
			}
			if asJSON {
				return errors.Join(writeJSON(c.OutOrStdout(), report), err)
			}
			return errors.Join(report.WriteText(c.OutOrStdout()), err)
		},
	}
	c.Flags().StringVar(&sums, "sums", "", "the summands of the job's all-reduces, which the wire does not name: gradients")
	c.Flags().IntVar(&config.Ranks, "ranks", 0, "ranks of the job, at most, if known")
	c.Flags().StringArrayVar(&config.Policies, "codec", inspect.DefaultPolicies(), "policy whose cost is of interest, may be repeated; lossless is always one")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	whatIf.add(c)
	return c
}

// checkInspect checks the flags of a job and fills in the rest of c. sums is the value of --sums.
func checkInspect(c *inspect.Config, sums string) error {
	switch sums {
	case "":
	case "gradients":
		c.Sums = parser.SumsGradients
	default:
		return usagef("--sums %s: the only value is gradients", sums)
	}
	if c.Ranks < 0 || c.Ranks == 1 {
		return usagef("--ranks %d: choose 2 or more", c.Ranks)
	}
	for _, text := range c.Policies {
		if err := inspect.CheckPolicy(text); err != nil {
			return usagef("--codec: %w", err)
		}
	}
	return nil
}

// inspectUntil is inspectFile that gives up when ctx ends: a pipe to which nobody writes is read for ever.
func inspectUntil(ctx context.Context, name string, c inspect.Config) (*inspect.Report, error) {
	type outcome struct {
		report *inspect.Report
		err    error
	}
	read := make(chan outcome, 1)
	go func() {
		report, err := inspectFile(name, c)
		read <- outcome{report, err}
	}()
	select {
	case o := <-read:
		return o.report, o.err
	case <-ctx.Done():
		return nil, errors.New("inspect: interrupted")
	}
}

func inspectFile(name string, c inspect.Config) (*inspect.Report, error) {
	f := os.Stdin
	if name != "-" {
		var err error
		if f, err = os.Open(name); err != nil {
			return nil, usagef("inspect: %w", err)
		}
		defer f.Close()
	}
	report, err := inspect.Read(f, c)
	if err != nil {
		err = fmt.Errorf("inspect %s: %w", name, err)
	}
	return report, err
}

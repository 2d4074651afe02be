package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

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
			report, err := inspectUntil(c.Context(), args[0], c.InOrStdin(), config)
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

// inspectUntil reports on a capture. Once ctx has ended it reads no more, and reports on the capture up to there: of a
// pipe, which often ends in no other way, that is no error.
func inspectUntil(ctx context.Context, name string, stdin io.Reader, c inspect.Config) (*inspect.Report, error) {
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usagef("inspect: %w", err)
		}
		defer f.Close()
		from = f
	}
	r := readUntil(ctx, from)
	report, err := inspect.Read(r, c)
	switch {
	case r.cut && (report == nil || len(report.Connections) == 0):
		return nil, errors.New("inspect: interrupted")
	case r.cut && name == "-":
		return report, nil
	case r.cut:
		return report, fmt.Errorf("inspect %s: interrupted: the report is of the part that was read", name)
	case err != nil:
		return report, fmt.Errorf("inspect %s: %w", name, err)
	}
	return report, nil
}

// A cutReader ends where its context does: a read of a pipe to which nobody writes would take for ever. The piece that
// is being read then is still taken.
type cutReader struct {
	ctx    context.Context
	pieces chan piece
	over   chan struct{} // closed with the end by the context
	rest   piece
	last   bool // no piece but the rest is taken any more
	cut    bool // the context has ended it
}

// lastPiece is how long the piece that is being read is awaited.
const lastPiece = 500 * time.Millisecond

// A piece is the result of a Read.
type piece struct {
	bytes []byte
	err   error
}

func readUntil(ctx context.Context, from io.Reader) *cutReader {
	r := &cutReader{ctx: ctx, pieces: make(chan piece), over: make(chan struct{})}
	go func() {
		for {
			b := make([]byte, 64<<10)
			n, err := from.Read(b)
			select {
			case r.pieces <- piece{b[:n], err}:
			case <-r.over:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return r
}

// Read implements io.Reader.
func (r *cutReader) Read(b []byte) (int, error) {
	for len(r.rest.bytes) == 0 && r.rest.err == nil {
		r.take()
	}
	n := copy(b, r.rest.bytes)
	if r.rest.bytes = r.rest.bytes[n:]; n > 0 {
		return n, nil
	}
	return 0, r.rest.err
}

// take takes the next piece, or ends the reader.
func (r *cutReader) take() {
	if r.ctx.Err() == nil {
		select {
		case r.rest = <-r.pieces:
		case <-r.ctx.Done():
		}
		return
	}
	if !r.last {
		r.last = true
		select {
		case r.rest = <-r.pieces:
			return
		case <-time.After(lastPiece):
		}
	}
	r.cut, r.rest.err = true, io.EOF
	close(r.over)
}

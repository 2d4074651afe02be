package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/job"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/site"
)

// An execution is a command line of exec.
type execution struct {
	file          string // configuration
	stats         string // file for the connections' counters; "": none, "-": standard error
	format, level string // of the log
	user          string // as whom the command runs; "": as this process
}

func execCommand() *cobra.Command {
	var e execution
	c := &cobra.Command{
		Use:   "exec [-c FILE] -- COMMAND [ARG...]",
		Short: "Run a command whose connections to the peers' networks go through the proxy",
		Long: `Run a command, with all that it starts, and beside it this site's proxy, which takes their connections to the peers'
networks. Nothing else on the host is touched. The configuration is that of gradproxy run; intercept.mode is not heeded.

The command has the terminal and the standard files, and is sent the signals that gradproxy is sent: HUP, INT, QUIT, TERM,
USR1, USR2, WINCH, TSTP and CONT. Its exit code is that of gradproxy, 128 and the signal's number if a signal ended it. It
is 127 if there is no such command, 126 if it cannot be run, 2 for errors of usage and configuration, and 1 for other failures.

It needs Linux 5.14, and root or the capabilities CAP_BPF and CAP_NET_ADMIN. Logs go to standard error.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no command given: write gradproxy exec -c FILE -- COMMAND")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			log, err := newLogger(c.ErrOrStderr(), e.format, e.level)
			if err != nil {
				return err
			}
			code, err := e.run(args, log)
			if code != 0 {
				return &exitError{code, err}
			}
			return err
		},
	}
	c.Flags().SetInterspersed(false) // arguments after the command's name are the command's
	c.Flags().StringVarP(&e.file, "config", "c", "gradproxy.yaml", "configuration file")
	c.Flags().StringVar(&e.stats, "stats", "", "at the end, write the connections that were taken and their bytes to this file, as one JSON object; - is standard error")
	c.Flags().StringVar(&e.user, "user", "", "run the command as this user, by name or number, while the proxy stays root")
	c.Flags().StringVar(&e.format, "log-format", "text", "form of the log: text or json")
	c.Flags().StringVar(&e.level, "log-level", "warn", "least level that is logged: debug, info, warn or error")
	return c
}

// run returns the command's exit code, or an error of its own with the code 0.
func (e *execution) run(args []string, log *slog.Logger) (int, error) {
	signals := make(chan os.Signal, 16) // before anything is touched, so that none ends us half way
	signal.Notify(signals, job.Signals()...)
	defer signal.Stop(signals)

	known := site.Known()
	known.Exec = true
	c, problems, err := load(e.file, known)
	if err != nil {
		return 0, err
	}
	warn(log, problems)
	stats, err := createStats(e.stats)
	if err != nil {
		return 0, err
	}
	s, err := site.Start(c, thisBuild().Version, log)
	if err != nil {
		return 0, err
	}
	proxy := serve(s)
	j, err := job.Start(args, s.JobCgroup(), e.user)
	if err != nil {
		err = errors.Join(err, proxy.end(signals, log))
		if start := (*job.StartError)(nil); errors.As(err, &start) {
			return start.Code, err
		}
		return 0, err
	}
	s.Confine(true)
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-signals:
				j.Deliver(sig)
			case <-ended:
				return
			}
		}
	}()
	code, err := j.Wait()
	close(ended)
	if failed := proxy.end(signals, log); failed != nil {
		failed = errors.Join(failed, s.Close())            // closes the programs that refused connections as long as the command ran
		log.Error("exec: the proxy failed", "err", failed) // the command has its own opinion of how it went
	}
	if failed := stats.write(s.Flows()); failed != nil {
		log.Error("exec: --stats is not written: make room, or name another file", "err", failed)
	}
	return code, err
}

// A serving is a proxy that runs beside a command.
type serving struct {
	drain, cut func()
	done       chan error
}

func serve(s *site.Site) *serving {
	ctx, drain := context.WithCancel(context.Background())
	cut, cutNow := context.WithCancel(context.Background())
	p := &serving{drain: drain, cut: cutNow, done: make(chan error, 1)}
	go func() { p.done <- s.Run(ctx, cut) }()
	return p
}

// waitNoted is how long end waits before it says so: in general, bytes on their way are delivered sooner.
const waitNoted = 2 * time.Second

// end lets the proxy deliver the bytes on their way, at most as long as the configuration says; SIGINT or SIGTERM ends
// it at once.
func (p *serving) end(signals <-chan os.Signal, log *slog.Logger) error {
	p.drain()
	defer p.cut()
	noted := time.After(waitNoted)
	for {
		select {
		case err := <-p.done:
			return err
		case <-noted:
			log.Warn(`exec: the command has ended, but connections have not: what it left running may hold them, or a server; waiting as long as "drain" says; SIGINT or SIGTERM ends them`)
		case sig := <-signals:
			if sig == os.Interrupt || sig == syscall.SIGTERM {
				p.cut()
			}
		}
	}
}

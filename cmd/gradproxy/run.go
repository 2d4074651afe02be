package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/site"
)

func runCommand() *cobra.Command {
	var file, format, level string
	c := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Run this site's proxy as a configuration file says",
		Long: `Run this site's proxy as a configuration file says, until SIGTERM or SIGINT.

SIGHUP reads the file again; a bad one changes nothing. SIGTERM takes no new connections and waits for open ones as long
as "drain" says; a second one ends them at once. Logs go to standard error.`,
		Args: configByFlag,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := newLogger(c.ErrOrStderr(), format, level)
			if err != nil {
				return err
			}
			return run(c.Context(), file, log)
		},
	}
	configFlag(c, &file)
	c.Flags().StringVar(&format, "log-format", "text", "form of the log: text or json")
	c.Flags().StringVar(&level, "log-level", "info", "least level that is logged: debug, info, warn or error")
	return c
}

// configByFlag refuses arguments. A user who gives one most likely means the configuration file.
func configByFlag(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%q is not expected here: write %s -c FILE", args[0], c.CommandPath())
	}
	return nil
}

func configFlag(c *cobra.Command, file *string) {
	c.Flags().StringVarP(file, "config", "c", "", "configuration file")
	if err := c.MarkFlagRequired("config"); err != nil {
		panic(err) // the flag exists: it is defined above
	}
}

func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	options := &slog.HandlerOptions{}
	var minimum slog.Level
	if err := minimum.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("--log-level %q: choose debug, info, warn or error", level)
	}
	options.Level = minimum
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, usagef("--log-format %q: choose text or json", format)
}

// load reads a configuration with the certificates that it names. The error, of one line for each problem, is one of
// usage.
func load(file string, known config.Known) (*config.Config, config.Problems, error) {
	c, problems := config.Load(file, known)
	if len(problems.Errors()) == 0 {
		problems = append(problems, c.Identify(time.Now())...)
		problems = append(problems, c.Kernel()...)
	}
	if errs := problems.Errors(); len(errs) > 0 {
		return nil, problems, &usageError{errs}
	}
	return c, problems, nil
}

func run(ctx context.Context, file string, log *slog.Logger) error {
	signals := make(chan os.Signal, 8) // before anything is touched, so that none ends us half way
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)

	c, problems, err := load(file, site.Known())
	if err != nil {
		return err
	}
	warn(log, problems)
	s, err := site.Start(c, thisBuild().Version, log)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return s.Close() // ended before it was listened to
	}
	manager, err := newNotifier()
	if err != nil {
		log.Warn("the service manager hears nothing of this process", "err", err)
	}
	s.Confine(false)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // the first signal and the second are told apart here
	defer stop()
	cut, cutNow := context.WithCancel(context.Background())
	defer cutNow()
	go func() {
		for sig := range signals {
			switch {
			case sig == syscall.SIGHUP:
				reload(s, file, log)
				manager.say("READY=1")
			case ctx.Err() == nil:
				manager.say("STOPPING=1")
				stop()
			default:
				cutNow()
			}
		}
	}()
	manager.say("READY=1")
	go manager.watch(cut, watchdogEvery(), s.Alive)
	return s.Run(ctx, cut)
}

// reload puts the file in force as it is now, if it is good.
func reload(s *site.Site, file string, log *slog.Logger) {
	c, problems, err := load(file, site.Known())
	warn(log, problems)
	if err == nil {
		err = s.Reload(c)
	}
	if err != nil {
		s.ReloadFailed()
		for line := range strings.Lines(err.Error()) {
			log.Error("configuration not reloaded, the old one stays in force", "err", strings.TrimSpace(line))
		}
	}
}

func warn(log *slog.Logger, problems config.Problems) {
	for _, p := range problems.Warnings() {
		log.Warn("configuration", "warning", fmt.Sprint(p))
	}
}

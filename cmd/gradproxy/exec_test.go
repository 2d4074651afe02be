package main

import (
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A wait for connections beyond the delivery of bytes on their way is reported, and a signal ends it.
func TestExecSaysThatItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done, ended, signals := make(chan error, 1), make(chan error), make(chan os.Signal)
		var cut sync.Once
		p := &serving{drain: func() {}, cut: func() { cut.Do(func() { done <- nil }) }, done: done}
		said := make(lines, 10)
		go func() { ended <- p.end(signals, slog.New(slog.NewTextHandler(said, nil))) }()
		synctest.Wait()
		if len(said) != 0 {
			t.Errorf("said at once: %s", <-said)
		}
		time.Sleep(waitNoted) // of the bubble's clock
		if line := <-said; !strings.Contains(line, "the command has ended, but connections have not") {
			t.Errorf("said: %s", line)
		}
		signals <- syscall.SIGHUP // says nothing to a proxy that drains
		synctest.Wait()
		signals <- syscall.SIGTERM
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// lines passes on written text, a line at a time.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

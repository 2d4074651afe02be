package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// A notifier tells the service manager how this process fares (sd_notify(3)). nil: nobody asked.
type notifier struct{ conn net.Conn }

// newNotifier returns a notifier for the socket that the service manager has named, if it has.
func newNotifier() (*notifier, error) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil, nil
	}
	conn, err := net.Dial("unixgram", path) // a path that begins with @ is an abstract one, in Go as for the manager
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return &notifier{conn}, nil
}

// say sends a state. The manager notices by itself if it does not hear of this process.
func (n *notifier) say(state string) {
	if n != nil {
		_, _ = n.conn.Write([]byte(state))
	}
}

// watchdogEvery returns how often the service manager wants to hear that this process lives: half the time after which
// it restarts it; 0: never.
func watchdogEvery() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	micros, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || micros <= 0 {
		return 0
	}
	return time.Duration(micros) * time.Microsecond / 2
}

// watch says again and again that this process lives, each time after alive has returned, until ctx ends. If alive is
// stuck nothing is said, and the manager restarts the process.
func (n *notifier) watch(ctx context.Context, every time.Duration, alive func()) {
	if n == nil || every == 0 {
		return
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		alive()
		n.say("WATCHDOG=1")
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

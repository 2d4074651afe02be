package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// Listen listens on "host:port" or "unix:/path". A socket file that a dead process left is replaced; the new one may be
// used by its owner and group only.
func Listen(address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return listenUnix(path)
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("admin: listen %s: the port is in use: stop the program that holds it (ss -ltnp shows it), or set admin to another, or to off", address)
	case err != nil:
		return nil, fmt.Errorf("admin: %w: correct admin in the configuration, or set it to off", err)
	}
	return l, nil
}

func listenUnix(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := removeStale(path); err != nil {
			return nil, err
		}
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, fmt.Errorf("admin: %w: correct admin in the configuration, or set it to off", err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		l.Close()
		return nil, fmt.Errorf("admin: %w", err)
	}
	return l, nil
}

// removeStale removes a socket that nobody listens on.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("admin: listen %s: a file is there that is no socket: remove it, or set admin to another path", path)
	}
	if c, err := net.Dial("unix", path); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			c.Close()
		}
		return fmt.Errorf("admin: listen %s: another process listens there: stop it, or set admin to another path", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

// writeTimeout is how long a client may take for its answer.
const writeTimeout = 30 * time.Second

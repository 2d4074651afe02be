package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/freeport"
)

func TestMain(m *testing.M) {
	require.ManyAtOnce()
	testscript.Main(m, map[string]func(){"gradproxy": main})
}

// TestScripts runs the command line as users do: testdata/script has a file for each command.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("ADMIN", "unix:"+filepath.Join(e.WorkDir, "s"))
			port, err := freePort("127.0.1.1", "127.0.2.1")
			e.Setenv("PORT", port)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "signal": sendSignal, "until": until, "substitute": substitute},
	})
}

// freePort returns a port of TCP and UDP at which nobody listens at these addresses.
func freePort(hosts ...string) (port string, err error) {
	for range 100 {
		var address string
		if address, err = freeport.Find("tcp", hosts[0]); err != nil {
			return "", err
		}
		_, port, _ = net.SplitHostPort(address)
		if err = listens(port, hosts); err == nil {
			return port, nil
		}
	}
	return "", err
}

// listens tells whether a port can be listened at, at these addresses.
func listens(port string, hosts []string) error {
	for _, host := range hosts {
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			return err
		}
		defer l.Close()
		c, err := net.ListenPacket("udp", net.JoinHostPort(host, port))
		if err != nil {
			return err
		}
		defer c.Close()
	}
	return nil
}

// exits CODE PROGRAM ARGS... fails the script unless the program ends with that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit := (*exec.ExitError)(nil)
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// sendSignal is the command `signal NAME` of scripts: it sends HUP or TERM to the script's background programs.
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"HUP": syscall.SIGHUP, "TERM": syscall.SIGTERM}
	if neg || len(args) != 1 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal HUP|TERM")
	}
	for _, c := range ts.BackgroundCmds() {
		ts.Check(c.Process.Signal(signals[args[0]]))
	}
}

// until SOCKET PATH TEXT asks the admin pages at a unix socket until the answer holds the text.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: until SOCKET PATH TEXT")
	}
	socket, last := ts.MkAbs(args[0]), ""
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if last = ask(socket, args[1]); strings.Contains(last, args[2]) {
			return
		}
	}
	ts.Fatalf("%s never says %q, but %s", args[1], args[2], last)
}

func ask(socket, path string) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	response, err := client.Get("http://admin" + path)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return fmt.Sprintf("%d %s %v", response.StatusCode, body, err)
}

// substitute FILE puts the values of environment variables in place of their names.
func substitute(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: substitute FILE")
	}
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

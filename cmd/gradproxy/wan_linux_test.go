package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/wan"
	"github.com/gradproxy/gradproxy/integration/require"
)

// The commands that only Linux has, as far as they need no privilege.
func TestLinuxScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script/linux",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// Scripts that need root. UNIQUE is part of the names that the whole machine sees.
func TestRootScripts(t *testing.T) {
	t.Parallel()
	require.Root(t)
	require.Named(t, "tun", exists("/dev/net/tun"), "mknod /dev/net/tun c 10 200")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script/root",
		Setup: func(e *testscript.Env) error {
			e.Setenv("UNIQUE", strconv.Itoa(os.Getpid()))
			state := filepath.Join(e.WorkDir, "state")
			e.Setenv("STATE", "--state-dir="+state)
			e.Defer(func() { // a script that fails leaves networks up
				left, err := wan.Networks(state)
				if err != nil {
					t.Error(err)
				}
				for _, s := range left {
					if _, err := s.Down(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "signal": sendSignal, "substitute": substitute},
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

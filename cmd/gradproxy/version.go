package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// A build describes the running program. The JSON names are stable.
type build struct {
	Version  string `json:"version"`  // the package's or the module's, "(devel)" for a build of which Go knows none
	Revision string `json:"revision"` // the commit; "" where the build does not tell
	Modified bool   `json:"modified"` // the checkout had changes beyond the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// deploy/build.sh sets these: the version, which packages have too, and the commit, with a + behind it if the checkout
// had changes. Go itself sees no commit in a work tree of git's, and says nothing of that.
var version, revision string

func thisBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if version != "" {
		b.Version = version
		b.Revision, b.Modified = strings.CutSuffix(revision, "+")
		return b
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go release of this build",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b := thisBuild()
			if asJSON {
				return writeJSON(c.OutOrStdout(), b)
			}
			fmt.Fprintf(c.OutOrStdout(), "gradproxy %s", b.Version)
			if b.Revision != "" {
				fmt.Fprintf(c.OutOrStdout(), " (%.12s)", b.Revision)
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), " %s %s\n", b.Go, b.Platform)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// writeJSON writes v as one indented JSON value and a newline.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

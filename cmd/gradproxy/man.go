//go:build manual

package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// With the build tag manual the program has one more command, which writes its manual pages. They are made for
// packages; the program that runs with privileges links no typesetting.
func init() {
	extra = append(extra, func() *cobra.Command {
		return &cobra.Command{
			Use:    "man FOLDER",
			Short:  "Write the manual pages",
			Hidden: true,
			Args:   cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				dir := filepath.Clean(args[0])
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
				written := time.Unix(0, 0).UTC() // the same commit gives the same pages; packages have a date of their own
				root := c.Root()
				root.DisableAutoGenTag = true
				return doc.GenManTree(root, &doc.GenManHeader{Title: "GRADPROXY", Section: "1", Source: "gradproxy", Manual: "gradproxy", Date: &written}, dir)
			},
		}
	})
}

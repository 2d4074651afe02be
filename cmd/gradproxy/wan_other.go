//go:build !linux

package main

import "github.com/spf13/cobra"

func wanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "wan",
		Short: "Lay out an emulated wide-area network on this machine (Linux only)",
		RunE:  func(*cobra.Command, []string) error { return usagef("wan: emulated networks need Linux") },
	}
}

//go:build linux

// Command contentcheck measures how many sums that are no gradients the content check lets lose something, and how many
// gradients it keeps from it, where a role rests on the user's word. It plays the all-reduces of small real trainings
// through the part of a sender that judges and encodes: rings of two ranks, gradients by 3lc with feedback. Run it from
// the root of the checkout:
//
//	go run ./integration/cmd/contentcheck
//
// It prints two tables: of the jobs by which the bounds of the check were chosen, and of jobs with other models,
// optimizers, seeds and sums, by which it is measured. With --likeness it prints two others instead: the cosines of the
// ranks' parts of a sum, quarter by quarter, with the weights before the first step, which DistributedDataParallel
// broadcasts. The recordings, of integration/testdata/record_sums.py, go to a folder outside the repository; files that
// are there already stay as they are.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

func main() {
	var c command
	flag.StringVar(&c.dir, "dir", "", "folder of the recordings; default: gradproxy/sums in the user's cache")
	flag.StringVar(&c.environment, "env", "torch113", "which torch: torch113 or torch215 of integration/env/install.sh")
	flag.StringVar(&c.codec, "codec", "3lc", "codec of gradients")
	flag.BoolVar(&c.broadcast, "broadcast", true, "the weights before the first step are known, as where DistributedDataParallel broadcasts them")
	flag.BoolVar(&c.likeness, "likeness", false, "compare all sums with the first weights instead")
	flag.Parse()
	program.Main("contentcheck", c.run)
}

// A command is the settings of the command.
type command struct {
	dir, environment, codec string
	likeness, broadcast     bool
}

func (c *command) run(ctx context.Context) (err error) {
	if c.dir, err = program.Recordings(c.dir, "sums"); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(c.dir, "complete")); err != nil {
		if err := c.record(ctx); err != nil {
			return err
		}
	}
	for _, group := range []string{"tuning", "measuring"} {
		fmt.Printf("%s\n\n", group)
		if err := c.table(filepath.Join(c.dir, group)); err != nil {
			return err
		}
		fmt.Println()
	}
	return nil
}

// table prints the table of the recordings in a folder.
func (c *command) table(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.npy"))
	if err != nil {
		return err
	}
	if c.likeness {
		return likenesses(files)
	}
	out := program.NewTable("job", "#sums of something else", "#with loss", "#worst error in norms", "#found out", "#gradients", "#with loss")
	defer func() { fmt.Print(out) }() // also of the recordings before one that cannot be read
	for _, f := range files {
		r, err := open(f)
		if err != nil {
			return err
		}
		res, err := play(r, c.codec, c.broadcast)
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		out.Row(res.row()...)
	}
	return nil
}

// record records the jobs that are not there yet.
func (c *command) record(ctx context.Context) error {
	python, complete := testbed.Python(c.environment)
	if !complete {
		return fmt.Errorf("no %s: run integration/env/install.sh fashion-mnist %[1]s", c.environment)
	}
	cmd := exec.CommandContext(ctx, python, "integration/testdata/record_sums.py", "--out", c.dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s record_sums.py: %w (run it from the root of the checkout)", python, err)
	}
	return os.WriteFile(filepath.Join(c.dir, "complete"), nil, 0o644)
}

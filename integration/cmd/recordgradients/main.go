//go:build linux

// Command recordgradients records the gradients of 400 successive steps of two real trainings with PyTorch: a
// convolutional network (94,410 parameters) on Fashion-MNIST and a transformer (168,192 parameters) on Python's own
// library. They are too large for the repository and go to a folder outside it. Run it from the root of the checkout,
// after integration/env/install.sh:
//
//	go run ./integration/cmd/recordgradients
//
// It prints the folder. A file there, cnn.npy or lm.npy, is a float32 array of shape (steps, elements) that gradproxy
// bench codecs --data reads; integration/testdata/record_gradients.py describes the rows. A file that is there already
// stays as it is.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// variable names the environment variable with the folder of the recordings, which tests read as well.
const variable = "GRADPROXY_GRADIENTS"

// models are the trainings that are recorded; each makes a file of its name.
var models = []string{"cnn", "lm"}

func main() {
	var r recording
	flag.StringVar(&r.dir, "dir", os.Getenv(variable), "folder of the recordings; default: $"+variable+", or else gradproxy/gradients in the user's cache")
	flag.StringVar(&r.environment, "env", "torch113", "which torch: torch113 or torch215 of integration/env/install.sh")
	flag.IntVar(&r.steps, "steps", 400, "steps of each training, from its first one")
	flag.IntVar(&r.seed, "seed", 1, "seed of weights and batches")
	flag.BoolVar(&r.again, "again", false, "record again, over files that are there")
	flag.Parse()
	program.Main("recordgradients", r.run)
}

// A recording is the settings of the command.
type recording struct {
	dir, environment string
	steps, seed      int
	again            bool
}

func (r *recording) run(ctx context.Context) (err error) {
	if r.dir, err = program.Recordings(r.dir, "gradients"); err != nil {
		return err
	}
	python, complete := testbed.Python(r.environment)
	if !complete {
		return fmt.Errorf("no %s: run integration/env/install.sh fashion-mnist %[1]s", r.environment)
	}
	args := []string{"integration/testdata/record_gradients.py", "--out", r.dir, "--steps", strconv.Itoa(r.steps), "--seed", strconv.Itoa(r.seed)}
	missing := 0
	for _, m := range models {
		if _, err := os.Stat(filepath.Join(r.dir, m+".npy")); err != nil || r.again {
			args = append(args, "--model", m)
			missing++
		}
	}
	if missing > 0 {
		cmd := exec.CommandContext(ctx, python, args...)
		cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1") // the build for distribution names a checkout with further files as modified
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s %s: %w (run it from the root of the checkout)", python, args[0], err)
		}
	}
	fmt.Println(r.dir)
	return nil
}

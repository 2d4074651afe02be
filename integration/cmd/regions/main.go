//go:build linux

// Command regions measures the effect of gradproxy on a parameter server across the world: real MXNet, a scheduler and
// a server in one region of a topology and a worker in each, on emulated links with the round trips, rates and prices
// of the topology. It prints Markdown tables: seconds, bytes and money of a training, the bytes and the money of each
// route, and the model's accuracy. Run it from the root of the checkout, as root:
//
//	go run ./integration/cmd/regions --json regions.json
//
// All sites, their proxies and the links share this machine's processors.
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

func main() {
	m := measurement{}
	var out string
	flag.StringVar(&m.Topology, "topology", "gaia", "topology: a file, or the name of a ready one")
	flag.StringVar(&m.Server, "server", "virginia", "site of the scheduler and the server")
	flag.StringVar(&m.Hidden, "hidden", "128,64", "widths of the two hidden layers")
	flag.IntVar(&m.Batch, "batch", 16, "images a worker and step")
	flag.IntVar(&m.Steps, "steps", 300, "training steps")
	flag.Float64Var(&m.LearningRate, "lr", 0.01, "learning rate, for each worker")
	flag.Func("codec", "codec of gradients, and of the differences of weights; may be repeated (default 3lc(s=1.75) and 3lc(s=1))", func(text string) error {
		m.Codecs = append(m.Codecs, text)
		return nil
	})
	flag.StringVar(&out, "json", "", "also write the measurement to this file")
	flag.Parse()
	if m.Codecs == nil {
		m.Codecs = []string{"3lc(s=1.75)", "3lc(s=1)"}
	}
	program.Main("regions", func(ctx context.Context) error {
		err := program.With("integration/testdata/mxnet_job.py", func(path, dir string) error { return m.measure(ctx, path, dir) })
		if err != nil {
			return err
		}
		fmt.Print(m.markdown())
		return program.WriteJSON(out, m)
	})
}

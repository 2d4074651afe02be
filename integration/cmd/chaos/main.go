//go:build linux

// Command chaos carries checksummed traffic through two proxies while faults happen to them and to the network, and
// prints one JSON object for each seed. Run it from the root of the checkout:
//
//	go run ./integration/cmd/chaos --seeds 200           virtual time: proxies inside one process, TestChaos of package proxy
//	go run ./integration/cmd/chaos --seeds 30 --real     two processes of the program, over loopback
//	go run ./integration/cmd/chaos --seeds 30 --real --carrier dtls
//	go run ./integration/cmd/chaos --soak 5m             the same two processes for long: memory, descriptors, goroutines
//
// A stream must arrive complete and equal, or be reset. A FIN behind missing bytes, a changed byte, a reset without a
// reason, and a process that ends by itself are failures; any of them makes the exit code 1. The same seed gives the
// same traffic and the same faults. It does not fix the order in which the scheduler runs goroutines.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

// A row is the outcome of one seed.
type row struct {
	Seed     uint64            `json:"seed"`
	Real     bool              `json:"real"`
	Carrier  string            `json:"carrier,omitempty"` // of real processes
	Faults   []string          `json:"faults"`
	Streams  int               `json:"streams"`
	Complete int               `json:"complete"`         // streams whose two directions arrived whole
	Reset    int               `json:"reset"`            // the others
	Bytes    int               `json:"bytes"`            // that arrived at apps
	Sums     int               `json:"sums,omitempty"`   // all-reduces that were compared; of real processes
	Pulls    int               `json:"pulls,omitempty"`  // weights that were compared, bit for bit
	Rounds   int               `json:"rounds,omitempty"` // of trainings, whose models and results were compared
	Lossy    int               `json:"lossy,omitempty"`  // sums and results of trainings that were coded with loss
	Shared   int               `json:"shared,omitempty"` // values that crossed as differences, or once for several
	Moved    int               `json:"moved"`            // processes that another one has taken over
	Replayed uint64            `json:"replayed"`         // bytes that left again after the loss of a carrier
	Frames   map[string]uint64 `json:"frames,omitempty"` // that came at either site, by kind; of a process up to the order or the fault that has ended it
	Outcome  string            `json:"outcome"`          // "ok", or the broken promise
	Seconds  float64           `json:"seconds"`          // of virtual time, or of real time
}

func main() {
	seeds := flag.Int("seeds", 0, "how many seeds to run")
	first := flag.Uint64("first", 1, "the first seed")
	real := flag.Bool("real", false, "run real processes, not virtual time")
	soak := flag.Duration("soak", 0, "run the two processes for this long and watch their memory; 0: do not")
	every := flag.Duration("every", 10*time.Second, "time between two samples of --soak")
	pause := flag.Duration("pause", 100*time.Millisecond, "how long each app of --soak pauses over the whole of a connection, on average half of it: longer is less load")
	previous := flag.String("previous", "", "commit whose program takes part in upgrades, as HEAD^; \"\": none. With --real")
	carrier := flag.String("carrier", "tls", "carrier of the tunnel, tls or dtls. With --real and --soak")
	binary := flag.String("binary", "", "program under test; \"\": build it. With --real and --soak")
	tableOf := flag.String("table", "", "file of rows to print as a Markdown table by fault; nothing is run")
	flag.Parse()
	program.Main("chaos", func(ctx context.Context) error {
		switch {
		case flag.NArg() > 0:
			return fmt.Errorf("%q: no arguments are taken", flag.Arg(0))
		case *tableOf != "":
			text, err := table(*tableOf)
			fmt.Print(text)
			return err
		case *carrier != "tls" && *carrier != "dtls":
			return fmt.Errorf("--carrier %q: choose tls or dtls", *carrier)
		case *seeds <= 0 && *soak <= 0:
			return errors.New("--seeds N or --soak DURATION says what to run")
		}
		dir, err := os.MkdirTemp("", "chaos-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		switch {
		case *soak > 0:
			return runSoak(ctx, dir, *binary, *carrier, *soak, *every, *pause)
		case *real:
			return runReal(ctx, dir, *binary, *previous, *carrier, *first, *seeds)
		}
		return runVirtual(ctx, dir, *first, *seeds)
	})
}

// print writes a row and counts it.
func (r row) print(bad *int) error {
	if r.Outcome != "ok" {
		*bad++
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func verdict(bad, seeds int) error {
	if bad > 0 {
		return fmt.Errorf("%d of %d seeds broke a promise: their rows say which", bad, seeds)
	}
	return nil
}

// runVirtual runs TestChaos. A seed that ends the test process has a row too; another process runs the seeds after it.
func runVirtual(ctx context.Context, dir string, first uint64, seeds int) error {
	test := filepath.Join(dir, "chaos.test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", test, "./proxy").CombinedOutput(); err != nil {
		return fmt.Errorf("build the test of package proxy, from the root of the checkout: %w\n%s", err, out)
	}
	bad := 0
	for next, end := first, first+uint64(seeds); next < end; {
		rows := filepath.Join(dir, fmt.Sprint("rows", next))
		cmd := exec.CommandContext(ctx, test, "-test.run=^TestChaos$", "-test.timeout="+(time.Minute+time.Duration(end-next)*2*time.Second).String(),
			"-chaos.first="+strconv.FormatUint(next, 10), "-chaos.seeds="+strconv.FormatUint(end-next, 10), "-chaos.rows="+rows)
		cmd.Dir = "proxy"
		out, runErr := cmd.CombinedOutput()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		written, err := readRows(rows)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, r := range written {
			if err := r.print(&bad); err != nil {
				return err
			}
			next = r.Seed + 1
		}
		if next < end {
			if runErr == nil {
				return fmt.Errorf("TestChaos ended at seed %d of %d without an error", next, end)
			}
			text, _, _ := strings.Cut(string(out[max(0, strings.Index(string(out), "panic:")):]), "\n")
			if err := (row{Seed: next, Outcome: "the process ended: " + text}).print(&bad); err != nil {
				return err
			}
			next++
		}
	}
	return verdict(bad, seeds)
}

func readRows(file string) (rows []row, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var r row
		switch err := d.Decode(&r); {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return nil, fmt.Errorf("%s: row %d: %w", file, len(rows)+1, err)
		}
		rows = append(rows, r)
	}
}

// Command codecplot draws the JSON object that gradproxy bench codecs --json prints as SVG: for each data a panel with
// how many times smaller each codec makes it, against its error. It reads the standard input and writes the standard
// output. Run it from the root of the checkout:
//
//	gradproxy bench codecs --data lm --json | go run ./integration/cmd/codecplot >lm.svg
package main

import (
	"context"
	"io"
	"os"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/cmd/internal/scatter"
)

func main() {
	program.Main("codecplot", func(context.Context) error { return draw(os.Stdin, os.Stdout) })
}

// draw writes nothing if it fails.
func draw(r io.Reader, w io.Writer) error {
	rows, err := scatter.Read(r)
	if err != nil {
		return err
	}
	return scatter.Plot(w, rows)
}

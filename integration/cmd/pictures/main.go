// Command pictures makes the pictures of docs/img and the tables of README.md, docs/numbers.md, docs/loss.md and
// docs/codecs.md that lie between the lines "<!-- table NAME" and "<!-- end -->", all from the measurements in
// docs/data. Run it from the root of the checkout after a measuring command has written a new file there;
// docs/numbers.md has these commands:
//
//	go run ./integration/cmd/pictures
//
// A test checks that the committed pictures and tables fit the committed measurements.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/cmd/internal/scatter"
)

func main() { program.Write("pictures", render) }

// render returns the contents of all files that this command makes, by their paths below root.
func render(root string) (map[string][]byte, error) {
	d, err := read(filepath.Join(root, "docs", "data"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"docs/img/step-time.svg": stepTime(d),
		"docs/img/ladder.svg":    ladder(d),
		"docs/img/path.svg":      path(),
	}
	if len(d.Learning.Sizes) >= firstLossy+together {
		files["docs/img/pslite-sizes.svg"] = sizes(d)
	}
	var codecs bytes.Buffer
	if err := scatter.Plot(&codecs, d.plotted()); err != nil {
		return nil, fmt.Errorf("docs/data/codecs.json: %w", err)
	}
	files["docs/img/codecs.svg"] = codecs.Bytes()
	for _, page := range []string{"README.md", "docs/numbers.md", "docs/loss.md", "docs/codecs.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			return nil, err
		}
		if files[page], err = fill(text, d); err != nil {
			return nil, fmt.Errorf("%s: %w", page, err)
		}
	}
	return files, nil
}

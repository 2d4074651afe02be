package program

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// Write is the main function of a command that makes committed files of the repository: it writes every file that is
// not as render returns it, and prints its name. render is given the root of the checkout, and returns the contents of
// the files by their paths below it.
func Write(name string, render func(root string) (map[string][]byte, error)) {
	root := flag.String("root", ".", "root of the checkout")
	flag.Parse()
	Main(name, func(context.Context) error { return write(*root, render) })
}

func write(root string, render func(root string) (map[string][]byte, error)) error {
	files, err := render(root)
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
			continue
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
		fmt.Println(name)
	}
	return nil
}

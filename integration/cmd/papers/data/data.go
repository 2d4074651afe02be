// Package data reads public data sets for the papers' tables: Fashion-MNIST for networks, and the word
// n-grams of SpamAssassin's mails for sparse linear models. Nothing is downloaded here: fetch.sh does that.
package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrMissing says that a data set is not on this machine. The text that wraps it says how to get it.
var ErrMissing = errors.New("missing data")

// Dir returns the directory into which fetch.sh downloads: gradproxy/data in the user's cache.
func Dir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "gradproxy", "data")
}

func missing(what, how string) error { return fmt.Errorf("%w: %s: %s", ErrMissing, what, how) }

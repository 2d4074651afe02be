package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A table has the times of calls, by method. The zero table is empty.
type table struct {
	mu    sync.Mutex
	times map[string][]time.Duration
}

// add adds a call.
func (t *table) add(method string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.times == nil {
		t.times = map[string][]time.Duration{}
	}
	t.times[method] = append(t.times[method], took)
}

// markdown returns the table: numbers of calls, medians, the times that one call in a hundred exceeds, and maxima.
func (t *table) markdown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	b.WriteString("| method | calls | median, ms | 99 %, ms | longest, ms |\n|---|---:|---:|---:|---:|\n")
	for _, method := range slices.Sorted(maps.Keys(t.times)) {
		all := slices.Sorted(slices.Values(t.times[method]))
		ms := func(i int) float64 { return float64(all[i].Microseconds()) / 1000 }
		fmt.Fprintf(&b, "| `%s` | %d | %.1f | %.1f | %.1f |\n", method, len(all), ms((len(all)-1)/2), ms((len(all)-1)*99/100), ms(len(all)-1))
	}
	return b.String()
}

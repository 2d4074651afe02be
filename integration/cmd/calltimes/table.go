package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
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
	out := program.NewTable("method", "#calls", "#median, ms", "#99 %, ms", "#longest, ms")
	for _, method := range slices.Sorted(maps.Keys(t.times)) {
		all := slices.Sorted(slices.Values(t.times[method]))
		ms := func(i int) string { return fmt.Sprintf("%.1f", float64(all[i].Microseconds())/1000) }
		out.Row("`"+method+"`", len(all), ms((len(all)-1)/2), ms((len(all)-1)*99/100), ms(len(all)-1))
	}
	return out.String()
}

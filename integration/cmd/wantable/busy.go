//go:build linux

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A busy tells how many cores were busy on average, by the processes that kept them so.
type busy struct {
	Ranks   float64 `json:"ranks"`
	Proxies float64 `json:"proxies"`
	Link    float64 `json:"link"` // this process, which plays the link
}

func (b busy) sum() float64 { return b.Ranks + b.Proxies + b.Link }

// String returns the sum and its parts: "1.32 = 0.80 + 0.31 + 0.21".
func (b busy) String() string {
	return fmt.Sprintf("%.2f = %.2f + %.2f + %.2f", b.sum(), b.Ranks, b.Proxies, b.Link)
}

// A snapshot is the use of bytes and processors until a moment.
type snapshot struct {
	at                   time.Time
	bytes                uint64 // on the WAN
	ranks, proxies, link time.Duration
}

func take(job *testbed.Run, w *testbed.WAN, ps testbed.Proxies) (s snapshot, err error) {
	var errs [3]error
	s.at, s.bytes = time.Now(), w.LinkBytes()
	s.ranks, errs[0] = job.CPU()
	s.proxies, errs[1] = ps.CPU()
	s.link, errs[2] = testbed.CPU()
	return s, errors.Join(errs[:]...)
}

func (s snapshot) since(first snapshot) busy {
	wall := float64(s.at.Sub(first.at))
	return busy{
		Ranks:   float64(s.ranks-first.ranks) / wall,
		Proxies: float64(s.proxies-first.proxies) / wall,
		Link:    float64(s.link-first.link) / wall,
	}
}

//go:build linux

// Command benchtunnel measures the tunnel of two gradproxies on emulated links, over each carrier, beside plain TCP on
// the same links in the same run, and compares the figures with bars. Run it from the root of the checkout, as root:
//
//	go run ./integration/cmd/benchtunnel --json
//
// Its rows are:
//
//	T1  on loopback, the rate through two gradproxies with TLS between, of two haproxies', two stunnels' and two plain relays' of Go's crypto/tls
//	T2  the processor time of the two processes for a byte, of theirs
//	T3  on loopback, rate and processor time of the tunnel's streams over TLS, of bare TLS's
//	T4  on loopback, the time that the pair adds to a byte's round trip, of the time that two haproxies add
//	T5  the memory of one side with 9,000 idle connections
//	D1  on loopback, rate and processor time of the tunnel's streams over DTLS, of the datagrams of pion/dtls as it comes
//	D2  the same, of streams of pion/sctp and of quic-go; and bytes in a second of processor time, of bare TLS's
//	D3  the rate of one connection through the tunnel over DTLS, of a stream of quic-go's, for each rate of loss above 0
//	D4  how many nonces repeat in a million records
//	W0  the rate of one connection over DTLS where nothing is lost, of the most that TCP can carry on the link: from its first byte on, and of the same time after that
//	W1  the rate of one connection through the tunnel, of plain TCP's under BBR, for each rate of loss
//	W2  the same where the kernel has no BBR: of plain TCP's under Cubic
//	W3  a byte's round trip while another connection fills the link, of the link's own; the link loses nothing
//	W4  the rate of a connection while the reader of another one has stopped, of its rate alone
//	S1  the time of a step over DTLS, in which each end sends a burst when the other end's has come, of that over TLS, under BBR and under Cubic, for each rate of loss
//	F1  the tunnel's share of the link beside plain TCP under Cubic and under BBR, and that of plain TCP under BBR in its place
//	F2  how two carriers over DTLS, of two pairs of gradproxies, share the link, of which one begins later, and how plain TCP under BBR does in their place
//
// Rows without a bar are figures beside: of plain TCP, of other proxies and of other stacks, in the same run.
//
// A rate is the median over the rounds. In each round all ways take turns. The link, all sites and the proxies share
// this machine's processors.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// all has the kinds of rows.
var all = []string{"T1", "T2", "T3", "T4", "T5", "D1", "D2", "D3", "D4", "W1", "W2", "W3", "W4", "S1", "F1", "F2"}

func main() {
	if a := os.Args; len(a) == 6 && a[1] == "relay" { // a process of relayPair's
		fmt.Fprintln(os.Stderr, relay(a[2], a[3], a[4], a[5]))
		os.Exit(1)
	}
	m := measurement{}
	var losses, only string
	var asJSON bool
	flag.IntVar(&m.mbps, "rate", 200, "rate of the link, Mbit/s")
	flag.IntVar(&m.rtt, "rtt", 80, "round-trip time of the link, ms")
	flag.StringVar(&losses, "losses", "0,0.1,1", "percent of each direction's packets that the link loses")
	flag.IntVar(&m.rounds, "rounds", 3, "rounds of each measurement")
	seconds := flag.Int("seconds", 10, "seconds for which a connection sends all it can, from its first byte on")
	flag.StringVar(&only, "rows", strings.Join(all, ","), "kinds of rows to measure, with commas between")
	flag.BoolVar(&asJSON, "json", false, "print one JSON object")
	flag.Parse()

	program.Main("benchtunnel", func(ctx context.Context) error {
		m.duration = time.Duration(*seconds) * time.Second
		if m.rounds < 1 || m.duration < time.Second || m.mbps < 1 || m.rtt < 1 {
			return fmt.Errorf("--rounds %d --seconds %d --rate %d --rtt %d: want 1 or more of each", m.rounds, *seconds, m.mbps, m.rtt)
		}
		for text := range strings.SplitSeq(losses, ",") {
			percent, err := strconv.ParseFloat(text, 64)
			if err != nil || percent < 0 || percent >= 100 {
				return fmt.Errorf("--losses %s: %q is not a percentage from 0 to below 100", losses, text)
			}
			m.losses = append(m.losses, percent)
		}
		kinds := map[string]bool{}
		for kind := range strings.SplitSeq(only, ",") {
			if !slices.Contains(all, kind) {
				return fmt.Errorf("--rows %s: there is no kind of row %q: want some of %s", only, kind, strings.Join(all, ","))
			}
			kinds[kind] = true
		}
		if err := program.With("go.mod", func(_, dir string) (err error) {
			if m.gradproxy, err = testbed.Build(ctx, dir); err != nil {
				return err
			}
			if m.keys, err = newKeys(filepath.Join(dir, "keys")); err != nil {
				return err
			}
			return m.measure(ctx, kinds)
		}); err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(os.Stdout).Encode(struct {
				Rows []row `json:"rows"`
			}{m.rows})
		}
		t := program.NewTable("row", "figure", "#here", "#bar", "unit", "ok")
		for _, r := range m.rows {
			t.Row(r.ID, r.What, fmt.Sprintf("%.3g", r.Here), fmt.Sprintf("%.3g", r.Bar), r.Unit, r.OK)
		}
		fmt.Print(t)
		return nil
	})
}

// A row is a figure and its bar.
type row struct {
	ID   string  `json:"id"`
	What string  `json:"what"`
	Here float64 `json:"here"`
	Bar  float64 `json:"bar"`
	Unit string  `json:"unit"`
	OK   bool    `json:"ok"`
}

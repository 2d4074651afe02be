package main

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect/page"
)

// whatIfFlags are the flags of inspect that ask for time and money.
type whatIfFlags struct {
	asked    bool
	links    []string
	sites    []string
	price    float64
	currency string
	html     string
}

func (f *whatIfFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.asked, "what-if", false, "say how many seconds the job's bytes take on links, and their price, by policy")
	c.Flags().StringArrayVar(&f.links, "link", nil, "RATE/RTT of the link of every site, such as 100M/40ms; may be repeated (default 10M/20ms, 100M/20ms and 1G/20ms)")
	c.Flags().StringArrayVar(&f.sites, "site", nil, "networks of a site, as 10.1.0.0/16,10.3.0.0/16; may be repeated. Without it every host is a site")
	c.Flags().Float64Var(&f.price, "price", 0, "price of a gigabyte that leaves a site")
	c.Flags().StringVar(&f.currency, "currency", "USD", "currency of the price")
	c.Flags().StringVar(&f.html, "html", "", "write the answer to this file, as one page that needs no other file")
}

// question returns the question that the flags ask; nil: none.
func (f *whatIfFlags) question() (*inspect.Question, error) {
	if !f.asked && f.html == "" && len(f.links) == 0 && len(f.sites) == 0 && f.price == 0 {
		return nil, nil
	}
	if f.html == "-" {
		return nil, usagef("--html -: name a file, since standard output has the report")
	}
	if err := config.CheckCurrency(f.currency); err != nil {
		return nil, usagef("--currency: %w", err)
	}
	q := &inspect.Question{Price: f.price}
	if q.Price > 0 {
		q.Currency = f.currency
	}
	if !(f.price >= 0 && f.price < math.Inf(1)) {
		return nil, usagef("--price %v: write the price of a gigabyte, such as 0.09", f.price)
	}
	for _, text := range f.links {
		l, err := parseLink(text)
		if err != nil {
			return nil, err
		}
		q.Links = append(q.Links, l)
	}
	for _, text := range f.sites {
		var networks []netip.Prefix
		for _, n := range strings.Split(text, ",") {
			p, err := netip.ParsePrefix(strings.TrimSpace(n))
			if err != nil {
				return nil, usagef("--site %s: %q is not a network: write it as 10.1.0.0/16", text, n)
			}
			networks = append(networks, p.Masked())
		}
		q.Sites = append(q.Sites, networks)
	}
	return q, nil
}

func parseLink(text string) (l inspect.Link, err error) {
	rate, rtt, two := strings.Cut(strings.ReplaceAll(text, "bit/s", "bit"), "/")
	var r bitRate
	err = r.Set(rate)
	if l.Rate = int64(r); err == nil && two {
		l.RTT, err = time.ParseDuration(strings.TrimSpace(rtt))
	}
	if err == nil && !strings.ContainsAny(rate, "kMGb") {
		return l, usagef("--link %s: the rate has no unit: write %sM for megabits per second, or %sbit", text, rate, rate)
	}
	if err != nil || l.Rate < 1 || l.RTT < 0 {
		return l, usagef("--link %s: write a rate and a round-trip time, such as 100M/40ms", text)
	}
	return l, nil
}

// writeReport writes the page of a capture to a file.
func writeReport(r *inspect.Report, file, capture string) error {
	title := filepath.Base(capture)
	if capture == "-" {
		title = "this capture"
	}
	var b bytes.Buffer
	err := page.Write(&b, r, title)
	if err == nil {
		err = os.WriteFile(file, b.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}

package wan

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Each function here reads one kind of value. Its error names the fault and the right form.

// rateUnits of bits per second.
var rateUnits = [...]struct {
	suffix string
	bits   float64
}{{"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}, {"bit/s", 1}}

// parseRate returns bits per second.
func parseRate(s string) (int64, error) {
	if s == unlimited {
		return 0, nil
	}
	for _, u := range rateUnits {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		v = math.Round(v * u.bits)
		if err != nil || !(v >= 8 && v < 1e15) {
			break
		}
		return int64(v), nil
	}
	return 0, fmt.Errorf("%q is not a rate: write bits per second, 8 at least, such as 10Mbit/s, 1.5Gbit/s or unlimited", s)
}

const unlimited = "unlimited"

// formatRate writes a rate as parseRate reads it.
func formatRate(bits int64) string {
	if bits == 0 {
		return unlimited
	}
	for _, u := range rateUnits {
		if v := float64(bits) / u.bits; v >= 1 {
			return strconv.FormatFloat(v, 'f', -1, 64) + u.suffix
		}
	}
	return fmt.Sprintf("%dbit/s", bits)
}

// parseDuration returns a time of any length.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration: write it with a unit, such as 20ms, 1.5ms or 30s", s)
	}
	return d, nil
}

// parseDelay returns a time that packets may take: at most a minute.
func parseDelay(s string) (time.Duration, error) {
	d, err := parseDuration(s)
	if err == nil && d > time.Minute {
		return 0, fmt.Errorf("%q is more than a minute, which no path takes: write it with its unit, such as 20ms", s)
	}
	return d, err
}

// parseLoss returns a probability.
func parseLoss(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("%q is not a loss: write 0%% to 100%%, or a probability of 0 to 1", s)
	}
	return v, nil
}

// formatLoss writes a loss in percent.
func formatLoss(p float64) string { return strconv.FormatFloat(p*100, 'g', 6, 64) + "%" }

// parsePrice returns the price of a GB.
func parsePrice(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0 && v < 1e9) {
		return 0, fmt.Errorf("%q is not a price: write the price of a GB (10⁹ bytes), such as 0.02", s)
	}
	return v, nil
}

var sizeUnits = [...]struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1}}

// parseSize returns bytes, at least 1 and at most 1 GiB.
func parseSize(s string) (int64, error) {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 1 || n > 1<<30/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("%q is not the size of a queue: write 1 byte to 1GiB, such as 256KiB", s)
}

// formatSize writes a size, whole KiB and MiB as such.
func formatSize(bytes int64) string {
	switch {
	case bytes%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", bytes>>20)
	case bytes%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", bytes>>10)
	}
	return fmt.Sprintf("%dB", bytes)
}

func parseSeed(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a seed: write a whole number", s)
	}
	return n, nil
}

// maxSiteName is the length of a site's name at most: devices that lead to it bear it, and Linux gives them 15 bytes.
const maxSiteName = 15

// parseName reads the name of a site or a bottleneck.
func parseName(s string) (string, error) {
	if err := nameError(s, maxSiteName); err != nil {
		return "", err
	}
	switch s {
	case "lo", "all", "default", "localhost":
		return "", fmt.Errorf("%q is a name of Linux's own: choose another", s)
	}
	if !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' }) {
		return "", fmt.Errorf("%q is a number, which programs take for an address: put a letter to it", s)
	}
	return s, nil
}

// parseTopologyName reads the name of a topology, after which its namespaces and files are called.
func parseTopologyName(s string) (string, error) { return s, nameError(s, 40) }

func nameError(s string, limit int) error {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return fmt.Errorf("%q is not a name: use lower-case letters, digits and '-'", s)
		}
	}
	if s == "" || len(s) > limit || s[0] == '-' {
		return fmt.Errorf("%q is not a name: use 1 to %d characters, the first a letter or digit", s, limit)
	}
	return nil
}

// parseLine reads words for people.
func parseLine(s string) (string, error) {
	if s == "" || len(s) > 200 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
		return "", errors.New("write one line of at most 200 bytes, or leave the key out")
	}
	return s, nil
}

func parseCurrency(s string) (string, error) {
	if len(s) != 3 || strings.ToUpper(s) != s {
		return "", fmt.Errorf("%q is not a currency: write three capital letters, such as USD", s)
	}
	return s, nil
}

// noSites are networks of addresses that mean the host itself, the neighbours on a link, or all of several: packets to
// them do not pass a link.
var noSites = [...]netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

func parseNetwork(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is not a network: write it as 10.2.0.0/16 or 2001:db8:2::/48", s)
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("%q has bits behind /%d: write %s", s, p.Bits(), p.Masked())
	case slices.ContainsFunc(noSites[:], p.Overlaps):
		return netip.Prefix{}, fmt.Errorf("%q holds addresses that no site can have, such as loopback or multicast addresses: write it as 10.2.0.0/16 or 2001:db8:2::/48", s)
	case p.Addr().BitLen()-p.Bits() < 2:
		return netip.Prefix{}, fmt.Errorf("%q has no room for a host: write /%d or shorter", s, p.Addr().BitLen()-2)
	}
	return p, nil
}

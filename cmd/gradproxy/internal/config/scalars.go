package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gradproxy/gradproxy/proxy/intercept"
	"github.com/gradproxy/gradproxy/tensor"
)

// Each function here reads one kind of value. Its error names the fault and the right form.

func parseText(s string) (string, error) {
	if s == "" {
		return "", errors.New("it is empty: write a value, or leave the key out")
	}
	return s, nil
}

func parseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", s)
}

func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a count: write a whole number", s)
	}
	return n, nil
}

// parseName reads a name as certificates have them.
func parseName(s string) (string, error) {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r) {
			return "", fmt.Errorf("%q is not a name: use lower-case letters, digits, '-', '_' and '.'", s)
		}
	}
	if s == "" || len(s) > 63 {
		return "", fmt.Errorf("%q is not a name: use 1 to 63 characters", s)
	}
	return s, nil
}

// CheckName returns an error if s cannot be the name of a site, a peer or a job.
func CheckName(s string) error {
	_, err := parseName(s)
	return err
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration: write it with a unit, such as 500ms, 30s or 10m", s)
	}
	return d, nil
}

// units of sizes: the units of the IEC and, since they are common, of the SI.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

func parseSize(s string) (int64, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("%q is not a size: write a whole number of bytes, or with a unit, such as 64KiB or 1GiB", s)
}

// maxPrice bounds a price: the smallest units of money cost no more.
const maxPrice = 1e9

// parsePrice reads a price above 0.
func parsePrice(s string) (float64, error) {
	p, err := parsePositive(s, maxPrice)
	switch {
	case errors.Is(err, errTooMuch):
		return 0, fmt.Errorf("%q is more than 1e9: write the price of a GB (10⁹ bytes), such as 0.09", s)
	case err != nil:
		return 0, fmt.Errorf("%q is not a price: write a number above 0, such as 0.09", s)
	}
	return p, nil
}

// maxBudget bounds a budget, in gigabytes: no link carries so much in a day.
const maxBudget = 1e9

// parseBudget reads the gigabytes of a day, above 0.
func parseBudget(s string) (float64, error) {
	n, err := parsePositive(s, maxBudget)
	switch {
	case errors.Is(err, errTooMuch):
		return 0, fmt.Errorf("%q is more than 1e9: write the gigabytes (10⁹ bytes) of a day, such as 50, or leave budget out", s)
	case err != nil:
		return 0, fmt.Errorf("%q is no budget: write the gigabytes of a day as a number above 0, such as 50, or leave budget out", s)
	}
	return n, nil
}

var (
	errNotPositive = errors.New("not a number above 0")
	errTooMuch     = errors.New("more than the maximum")
)

// parsePositive reads a finite number above 0, up to maximum.
func parsePositive(s string, maximum float64) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || !(x > 0) || math.IsInf(x, 0):
		return 0, errNotPositive
	case x > maximum:
		return 0, errTooMuch
	}
	return x, nil
}

// parseCurrency reads a code of ISO 4217.
func parseCurrency(s string) (string, error) {
	if len(s) != 3 || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "", fmt.Errorf("%q is not a currency: write its code of three capital letters, such as USD", s)
	}
	return s, nil
}

// CheckCurrency returns an error if s is no code of a currency.
func CheckCurrency(s string) error {
	_, err := parseCurrency(s)
	return err
}

func parseNetwork(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		if a, err := netip.ParseAddr(s); err == nil {
			return netip.Prefix{}, fmt.Errorf("%q is an address, not a network: write %s/%d", s, a, a.BitLen())
		}
		return netip.Prefix{}, fmt.Errorf("%q is not a network: write it as 10.2.0.0/16 or 2001:db8::/48", s)
	}
	if p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is IPv4 in IPv6's clothes: write it as an IPv4 network", s)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%q has bits behind /%d: write %s", s, p.Bits(), p.Masked())
	}
	return p, nil
}

// parseListen reads host:port as a listener takes it; Off is left to the caller.
func parseListen(s string) (string, error) {
	if s == Off {
		return s, nil
	}
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = parsePort(port)
	}
	if err != nil {
		return "", fmt.Errorf("%q is not an address to listen on: write host:port, such as 0.0.0.0:7443 or \"[::]:7443\", or off", s)
	}
	return s, nil
}

func parseDial(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = parsePort(port)
	}
	if err != nil || host == "" {
		return "", fmt.Errorf("%q is not an address to dial: write host:port, such as tokyo.example:7443", s)
	}
	return s, nil
}

func parseAddrPort(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address: write IP:port, such as 10.2.0.5:9000 (names are not looked up here)", s)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// parseAdmin reads host:port, unix:/path or Off.
func parseAdmin(s string) (string, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if !strings.HasPrefix(path, "/") || len(path) > 107 {
			return "", fmt.Errorf("%q: write the socket's whole path, at most 107 bytes, such as unix:/run/gradproxy.sock", s)
		}
		return s, nil
	}
	if _, err := parseListen(s); err != nil {
		return "", fmt.Errorf("%q is not an address to listen on: write host:port, unix:/path or off", s)
	}
	return s, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port: write a number from 1 to 65535", s)
	}
	return uint16(n), nil
}

func parsePorts(s string) (intercept.Ports, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, errA := parsePort(first)
	b, errB := parsePort(last)
	if errA != nil || errB != nil || a > b {
		return intercept.Ports{}, fmt.Errorf("%q is not a range of ports: write FIRST-LAST, such as 1024-65535, or one port", s)
	}
	return intercept.Ports{First: a, Last: b}, nil
}

// parseID reads a SPIFFE id: spiffe://DOMAIN/PATH.
func parseID(s string) (string, error) {
	rest, ok := strings.CutPrefix(s, "spiffe://")
	domain, path, slash := strings.Cut(rest, "/")
	if !ok || !slash || domain == "" || path == "" || strings.ContainsAny(rest, "?#@% ") {
		return "", fmt.Errorf("%q is not a SPIFFE id: write spiffe://DOMAIN/SITE, as gradproxy cert prints it", s)
	}
	return s, nil
}

func parseRole(s string) (tensor.Role, error) {
	if r, ok := tensor.ParseRole(s); ok {
		return r, nil
	}
	var names []string
	for _, r := range tensor.Roles() {
		names = append(names, r.String())
	}
	return 0, fmt.Errorf("%q is not a role: there are %s", s, strings.Join(names, ", "))
}

func parseDType(s string) (tensor.DType, error) {
	if t, ok := tensor.ParseDType(s); ok {
		return t, nil
	}
	return 0, fmt.Errorf("%q is not an element type: write it as float32, bfloat16, float16, float64 or int32", s)
}

package require

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// RestrictedCongestion returns a congestion control of this kernel that only CAP_NET_ADMIN may choose. It skips t if
// there is none.
func RestrictedCongestion(t testing.TB) string {
	t.Helper()
	read := func(name string) []string {
		text, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(text))
	}
	allowed, congestion := read("tcp_allowed_congestion_control"), ""
	for _, name := range read("tcp_available_congestion_control") {
		if !slices.Contains(allowed, name) {
			congestion = name
		}
	}
	Named(t, "restricted congestion control", congestion != "", "leave one of net.ipv4.tcp_available_congestion_control out of tcp_allowed_congestion_control")
	return congestion
}

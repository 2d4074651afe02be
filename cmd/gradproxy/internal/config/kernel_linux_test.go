package config

import (
	"strings"
	"testing"
)

// A congestion control that this kernel does not have is named, with the ones that it has.
func TestKernelHasNoSuchCongestion(t *testing.T) {
	for _, x := range []struct {
		congestion, carrier string
		want                []string // parts of the only problem; nil: there is none
	}{
		{"reno", "tls", nil}, // which every kernel has and lets everybody use
		{"auto", "tls", nil}, {"default", "tls", nil}, {"", "", nil},
		{"bbrr", "tls", []string{"paris.yaml:7: tunnel.congestion: this kernel has no bbrr (it has ", "reno", "its default is used instead"}},
		{"bbrr", "dtls", nil}, // has a control of its own
	} {
		c := &Config{File: "paris.yaml", Tunnel: Tunnel{Congestion: x.congestion, Carrier: x.carrier, line: 7}}
		problems := c.Kernel()
		if len(problems.Errors()) > 0 || len(problems) > 1 || (len(problems) == 0) != (x.want == nil) {
			t.Errorf("%s over %s: %v", x.congestion, x.carrier, problems)
			continue
		}
		for _, part := range x.want {
			if !strings.Contains(problems[0].Error(), part) {
				t.Errorf("%v\nlacks %q", problems[0], part)
			}
		}
	}
}

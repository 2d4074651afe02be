package proxy

import (
	"net/netip"
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// A connection is of a job only if the job's networks hold both of its ends, in one network or in two. With one end
// inside it is of no job: no roles are configured for it, so nothing of it may be lost.
func TestJobHoldsBothEnds(t *testing.T) {
	network := netip.MustParsePrefix
	s := Settings{Jobs: []Job{
		{Name: "first", Networks: []netip.Prefix{network("10.1.0.0/16"), network("10.2.0.0/16")}, Sums: tensor.Gradient},
		{Name: "second", Networks: []netip.Prefix{network("10.2.0.0/16"), network("10.3.0.0/16"), network("fd00::/64")}},
	}}
	for _, c := range []struct{ client, server, job string }{
		{"10.1.0.1", "10.2.0.1", "first"},
		{"10.1.0.1", "10.1.0.2", "first"},
		{"10.2.0.1", "10.2.0.2", "first"}, // both jobs hold both ends
		{"10.2.0.1", "10.3.0.1", "second"},
		{"fd00::1", "fd00::2", "second"},
		{"10.1.0.1", "10.3.0.1", ""}, // each end in another job
		{"10.1.0.1", "192.0.2.1", ""},
		{"192.0.2.1", "10.3.0.1", ""},
		{"fd00::1", "fd00:0:0:1::1", ""},
		{"192.0.2.1", "192.0.2.2", ""},
	} {
		client, server := netip.MustParseAddr(c.client), netip.MustParseAddr(c.server)
		for _, j := range []Job{s.jobOf(client, server), s.jobOf(server, client)} {
			if j.Name != c.job || (j.Sums == tensor.Gradient) != (c.job == "first") {
				t.Errorf("%v and %v: job %q with sums %v, want job %q", client, server, j.Name, j.Sums, c.job)
			}
		}
	}
}

package mix

import (
	"net/netip"
	"testing"
)

// Both proxies, which name the peer differently, make the same seed; facts of other jobs, servers and peers stay apart.
func TestJob(t *testing.T) {
	server := netip.MustParseAddrPort("10.0.0.1:9092")
	for _, tc := range []struct {
		job, peer   string
		server      netip.AddrPort
		scope, seed bool // the same as of job "", peer "a" and server
	}{
		{"", "a", server, true, true},
		{"", "a", netip.MustParseAddrPort("[::ffff:10.0.0.1]:9092"), true, true},
		{"", "b", server, false, true},
		{"", "a", netip.MustParseAddrPort("10.0.0.1:9093"), false, false},
		{"", "a", netip.MustParseAddrPort("10.0.0.2:9092"), false, false},
		{"x", "a", server, false, false},
	} {
		wantScope, wantSeed := Job("", "a", server)
		if scope, seed := Job(tc.job, tc.peer, tc.server); scope == wantScope != tc.scope || seed == wantSeed != tc.seed {
			t.Errorf("%+v: scope %x, seed %x; without a job they are %x and %x", tc, scope, seed, wantScope, wantSeed)
		}
	}
	scope, seed := Job("x", "a", server)
	if s, k := Job("x", "a", netip.MustParseAddrPort("10.0.0.2:1")); s != scope || k != seed {
		t.Error("a job's scope or seed depends on the server")
	}
	if s, k := Job("x", "b", server); s == scope || k != seed {
		t.Error("two peers of a job have one scope, or two seeds")
	}
	if s, k := Job("y", "a", server); s == scope || k == seed {
		t.Error("two jobs have one scope or one seed")
	}
}

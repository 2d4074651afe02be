//go:build linux

package integration

import (
	"net/netip"
	"testing"

	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A server behind gateways sees the address and the port of its client, and the client sees the address and port that
// it dialled.
func TestGatewaysKeepBothEnds(t *testing.T) {
	w := newGateways(t, 2, lan)
	ps := startProxies(t, w, testbed.Config{})
	from, to := w.Sites[0], w.Sites[1]
	for _, addr := range []netip.Addr{to.Addr, to.Addr6} {
		client, server := connect(t, from, to, addr)
		if got, want := server.RemoteAddr().String(), client.LocalAddr().String(); got != want {
			t.Errorf("the server sees %s, want its client, %s", got, want)
		}
		if got, want := client.RemoteAddr().String(), server.LocalAddr().String(); got != want {
			t.Errorf("the client sees %s, want its server, %s", got, want)
		}
	}
	if n := sum(t, ps[:1], "gradproxy_opens_total"); n != 2 {
		t.Errorf("the gateway carried %v connections, want 2", n)
	}
}

// Jobs whose hosts know of no proxy end with the weights of the direct run.
func TestTorchAcrossGateways(t *testing.T) {
	t.Parallel()
	compareOn(t, newGateways, torchJob(t, "torch215", 2))
}

func TestMXNetAcrossGateways(t *testing.T) {
	t.Parallel()
	want, _ := directMXNet(t, mxnetSync)
	got, _ := runMXNetOn(t, newGateways(t, 2, fast), mxnetSync.job(t), &testbed.Config{})
	sameResults(t, want.results, got.results)
	if got.bytes >= want.bytes {
		t.Errorf("%d bytes on the WAN, want fewer than the %d of a direct run", got.bytes, want.bytes)
	}
}

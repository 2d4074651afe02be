package proxy

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// Trials of a connection's values do without the codecs that its peer lacks. When the connection goes on after a rest,
// the peer's process may be one that has them.
func TestShadowKnowsThePeersCodecs(t *testing.T) {
	has := []string{"lossless"}
	p := newPairWith(t, func(_ string, c *Config) {
		c.PeerCodecs, c.Settings.Shadow, c.ShadowShare = func(string) []string { return has }, []string{"int8"}, 1
	}, nil).near
	a, b, err := pathtest.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	end := netip.MustParseAddrPort("127.0.0.1:1")
	c := p.connOf(app.Plain(a), "far", "", slog.New(slog.DiscardHandler), frame.Opening{Client: end, Server: end}, parser.Client)
	loses := func(shadow path.Shadow, key uint64) bool {
		t.Helper()
		r := rand.New(rand.NewPCG(key, 1))
		values := make([]float32, 1024)
		raw := make([]byte, 4*len(values))
		x := tensor.Tensor{Key: key, Role: tensor.Gradient, Proof: tensor.ByCall, DType: tensor.Float32, Size: len(raw), Hold: len(raw)}
		info := []tensors.Info{{Protocol: "toy", Direction: policy.Flow{}.Direction.String(), Key: key, Role: "gradient", Bytes: len(raw)}}
		for deadline := time.Now().Add(time.Minute); len(info[0].Shadow) == 0; p.trials.AddTo(info) {
			if time.Now().After(deadline) {
				t.Fatal("no value was tried in a minute")
			}
			for i := range values {
				values[i] = float32(r.NormFloat64())
			}
			tensor.FromFloat32(raw, values, tensor.Float32)
			shadow.See(policy.Flow{Protocol: "toy"}, &x, raw)
			time.Sleep(10 * time.Microsecond)
		}
		return info[0].Shadow[0].Wire < info[0].Shadow[0].Raw/2
	}
	if loses(c.Shadow, 7) {
		t.Error("a peer without int8 is thought to receive it")
	}
	has = append(has, "int8")
	if n := p.resumed(c, nil); !loses(n.Shadow, 8) {
		t.Error("a peer that has int8 by now is thought not to receive it")
	}
}

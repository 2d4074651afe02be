package send

import (
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/coder"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// summed reports whether values may lose something, though the app sends a CRC-32 that covers them, which stays right.
func (p *plan) summed() bool { return p.t.CRC32 && codecs.Lossy(p.choice.Codec) }

// keepSum has a value that a CRC-32 covers lose nothing where the CRC-32 would not stay right: only blocks of dense gradients are made to keep it.
func (c *chooser) keepSum(p *plan) {
	if !p.summed() {
		return
	}
	why := tensor.Checksum
	switch {
	case p.choice.Closed || sparse(p.t) || p.t.Size < coder.SumElements*p.t.DType.Size():
	case c.conn.Lacks(coder.Checksums):
		why = tensor.PeerLacks
	default:
		return
	}
	p.choice = policy.Choice{Codec: c.conn.Env.Lossless, Why: why}
}

package proxy

import (
	"bytes"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"io"
	"net/netip"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/tensor"
)

func mustAddrs(s ...string) (a []netip.AddrPort) {
	for _, x := range s {
		a = append(a, netip.MustParseAddrPort(x))
	}
	return a
}

// cutReader gives a stream's bytes in pieces of the given sizes, over and over.
type cutReader struct {
	b     []byte
	sizes []int
	i     int
}

func (r *cutReader) ReadChunk() ([]byte, error) {
	if len(r.b) == 0 {
		return nil, io.EOF
	}
	n := min(max(r.sizes[r.i%len(r.sizes)], 1), len(r.b))
	r.i++
	chunk := bytes.Clone(r.b[:n])
	r.b = r.b[n:]
	return chunk, nil
}

// Whatever bytes a peer sends, the receiver takes no more memory than they and what their slots allow, and ends in an
// error or at the end.
func FuzzReceive(f *testing.F) {
	d := frame.Declaration{Codec: "lossless", DType: tensor.Float32, N: 4}
	wire := frame.Append(nil, frame.Frame{Kind: frame.Declare, Slot: 2, Body: d.Append(nil)})
	block := frame.Append(nil, frame.Frame{Kind: frame.Block, Slot: 2, Body: append([]byte{frame.FormCoded}, make([]byte, 8)...)})
	f.Add(append(wire, block...))
	f.Add(append(append(wire, frame.Append(nil, frame.Frame{Kind: frame.Gather, Body: []byte{4, 'a', 'b', 16<<1 | 1, 0}})...), block...))
	f.Add([]byte{byte(frame.Bytes), 3, 1, 2, 3, byte(frame.CloseWrite), 0})
	f.Add([]byte{byte(frame.Block), 9, 255, 255, 255, 255, 15})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, far, err := tcpPair()
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		defer far.Close()
		go io.Copy(io.Discard, far)
		p := newTestProxy(t)
		r := newReceiver(&connection{shared: p, conn: app.Plain(a), stream: &sink{}, log: p.Log}, &cutReader{b: b, sizes: []int{5, 3000}})
		r.run()
		r.pipe.Wait()
	})
}

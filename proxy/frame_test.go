package proxy

import (
	"bytes"
	"errors"
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"io"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/internal/latch"
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

func anyLength(Kind, uint32) (int, error) { return 1 << 20, nil }

func freely(Kind, uint32, int) error { return nil }

// Frames come out as they went in, however the stream is cut; Bytes frames may come in pieces.
func TestFramesSurviveAnyCut(t *testing.T) {
	frames := []Frame{{Kind: Bytes, Body: []byte("handshake")}, {Kind: Declare, Slot: 300, Body: []byte("d")},
		{Kind: Block, Slot: 300, Body: make([]byte, 70000)}, {Kind: Bytes, Body: make([]byte, 5000)}, {Kind: Reset}}
	var wire, opaque []byte
	for _, f := range frames {
		wire = AppendFrame(wire, f)
		if f.Kind == Bytes {
			opaque = append(opaque, f.Body...)
		}
	}
	for range 200 {
		r := frameReader{src: &cutReader{b: wire, sizes: []int{1 + rand.IntN(3), 1 + rand.IntN(20000)}}, limit: anyLength, keeps: freely, buffers: new(mem.Pool)}
		var got []byte
		var others []Frame
		for {
			f, err := r.ReadFrame()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if f.Kind == Bytes {
				got = append(got, f.Body...)
				continue
			}
			f.Body = bytes.Clone(f.Body)
			others = append(others, f)
		}
		if !bytes.Equal(got, opaque) || len(others) != 3 || others[1].Slot != 300 || len(others[1].Body) != 70000 || others[2].Kind != Reset {
			t.Fatalf("%d opaque bytes and frames %v", len(got), others)
		}
	}
}

// A stream that ends within a frame has not ended.
func TestTruncatedFrames(t *testing.T) {
	wire := AppendFrame(nil, Frame{Kind: Block, Slot: 1, Body: []byte("12345")})
	for n := 1; n < len(wire); n++ {
		r := frameReader{src: &cutReader{b: wire[:n], sizes: []int{100}}, limit: anyLength, keeps: freely, buffers: new(mem.Pool)}
		if _, err := r.ReadFrame(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v", n, len(wire), err)
		}
	}
}

func TestDeclarationSurvives(t *testing.T) {
	d := declaration{codec: "3lc(s=1.75)", dtype: tensor.BFloat16, n: 1 << 18, job: "resnet", key: 1 << 63, off: 1 << 40, base: 7, keys: 9}
	got, err := parseDeclaration(append(d.append(nil), "a later version's"...))
	if err != nil || !reflect.DeepEqual(got, d) {
		t.Fatalf("%+v, %v", got, err)
	}
	short := declaration{codec: "rice", dtype: tensor.Uint64, n: 300}
	body := short.append(nil)
	if got, err = parseDeclaration(body); err != nil || got != short || len(body) != 1+4+1+2 {
		t.Errorf("of no tensor: %+v in %d bytes, %v", got, len(body), err)
	}
	if _, err := parseDeclaration(append(body, 0)); err == nil {
		t.Error("a declaration that is cut short after n was taken")
	}
	o := opening{client: mustAddrs("10.0.0.1:5")[0], server: mustAddrs("[2001:db8::1]:29500")[0], number: 3}
	back, err := parseOpening(o.append(nil))
	if err != nil || back != o {
		t.Fatalf("%+v, %v", back, err)
	}
}

// Whatever bytes a peer sends, the receiver takes no more memory than they and what their slots allow, and ends in an
// error or at the end.
func FuzzReceive(f *testing.F) {
	d := declaration{codec: "lossless", dtype: tensor.Float32, n: 4}
	wire := AppendFrame(nil, Frame{Kind: Declare, Slot: 2, Body: d.append(nil)})
	block := AppendFrame(nil, Frame{Kind: Block, Slot: 2, Body: append([]byte{formCoded}, make([]byte, 8)...)})
	f.Add(append(wire, block...))
	f.Add(append(append(wire, AppendFrame(nil, Frame{Kind: Gather, Body: []byte{4, 'a', 'b', 16<<1 | 1, 0}})...), block...))
	f.Add([]byte{byte(Bytes), 3, 1, 2, 3, byte(CloseWrite), 0})
	f.Add([]byte{byte(Block), 9, 255, 255, 255, 255, 15})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, app, err := tcpPair()
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		defer app.Close()
		go io.Copy(io.Discard, app)
		p := newTestProxy(t)
		r := newReceiver(&connection{shared: p, conn: latch.Plain(a), stream: &sink{}, log: p.Log}, &cutReader{b: b, sizes: []int{5, 3000}})
		r.run()
		r.pipe.Wait()
	})
}

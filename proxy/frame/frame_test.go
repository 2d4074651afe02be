package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/tensor"
)

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
		wire = Append(wire, f)
		if f.Kind == Bytes {
			opaque = append(opaque, f.Body...)
		}
	}
	for range 200 {
		r := Reader{Source: &cutReader{b: wire, sizes: []int{1 + rand.IntN(3), 1 + rand.IntN(20000)}}, Limit: anyLength, Reserve: freely, Pool: new(memory.Pool)}
		var got []byte
		var others []Frame
		for {
			f, err := r.Next()
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

// Bytes frames of a byte each that have come together are few Frames, since each costs a write to the app. All are
// counted, and no other frame changes its place. An empty one is no end.
func TestShortFramesAreJoined(t *testing.T) {
	const n = 10_000
	var wire, want []byte
	for i := range n {
		b := []byte{byte(i), byte(i >> 8)}[:i%3]
		wire = Append(wire, Frame{Kind: Bytes, Body: b})
		want = append(want, b...)
	}
	last := make([]byte, maxJoined)
	wire = Append(wire, Frame{Kind: Bytes, Body: last})
	wire = Append(Append(wire, Frame{Kind: Ref, Body: []byte("!")}), Frame{Kind: Bytes, Body: []byte("end")})
	want = append(append(append(want, last...), '!'), "end"...)
	for _, chunk := range []int{len(wire), 5000, 7, 1} {
		var counts Counts
		r := Reader{Source: &cutReader{b: wire, sizes: []int{chunk}}, Limit: anyLength, Counts: &counts}
		var got []byte
		frames := 0
		for {
			f, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if f.Kind == Bytes && len(f.Body) == 0 || f.Kind == Bytes && chunk != len(wire) && len(f.Body) > maxJoined {
				t.Fatalf("pieces of %d bytes: a Bytes frame of %d", chunk, len(f.Body))
			}
			got = append(got, f.Body...)
			frames++
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("pieces of %d bytes: other bytes came out", chunk)
		}
		if limit := len(want)/maxJoined + len(wire)/chunk + 5; chunk >= 5000 && frames > limit {
			t.Errorf("pieces of %d bytes: %d frames came as %d, and %d are enough", chunk, n+3, frames, limit)
		}
		if counts.Of(Bytes) != n+2 || counts.Of(Ref) != 1 {
			t.Errorf("pieces of %d bytes: %d Bytes frames and %d Ref frames were counted", chunk, counts.Of(Bytes), counts.Of(Ref))
		}
	}
}

// A stream that ends within a frame has not ended.
func TestTruncatedFrames(t *testing.T) {
	wire := Append(nil, Frame{Kind: Block, Slot: 1, Body: []byte("12345")})
	for n := 1; n < len(wire); n++ {
		r := Reader{Source: &cutReader{b: wire[:n], sizes: []int{100}}, Limit: anyLength, Reserve: freely, Pool: new(memory.Pool)}
		if _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v", n, len(wire), err)
		}
	}
}

func TestDeclarationSurvives(t *testing.T) {
	d := Declaration{Codec: "3lc(s=1.75)", DType: tensor.BFloat16, N: 1 << 18, Job: "resnet", Key: 1 << 63, Off: 1 << 40, Base: 7, Keys: 9, Role: tensor.Aggregate}
	got, err := ParseDeclaration(append(d.Append(nil), "a later version's"...))
	if err != nil || !reflect.DeepEqual(got, d) {
		t.Fatalf("%+v, %v", got, err)
	}
	told := d.Append(nil)
	for _, old := range [][]byte{told[:len(told)-1], append(told[:len(told)-1:len(told)-1], 200)} { // an older version's, and one with a role of a later version
		if got, err = ParseDeclaration(old); err != nil || got.Role != tensor.Unknown || got.Keys != 9 {
			t.Errorf("without a known role: %+v, %v", got, err)
		}
	}
	short := Declaration{Codec: "rice", DType: tensor.Uint64, N: 300}
	body := short.Append(nil)
	if got, err = ParseDeclaration(body); err != nil || got != short || len(body) != 1+4+1+2 {
		t.Errorf("of no tensor: %+v in %d bytes, %v", got, len(body), err)
	}
	if _, err := ParseDeclaration(append(body, 0)); err == nil {
		t.Error("a declaration that is cut short after n was taken")
	}
	o := Opening{Client: netip.MustParseAddrPort("10.0.0.1:5"), Server: netip.MustParseAddrPort("[2001:db8::1]:29500"), Number: 3}
	back, err := ParseOpening(o.Append(nil))
	if err != nil || back != o {
		t.Fatalf("%+v, %v", back, err)
	}
}

// A frame whose body is longer than its limit, and one of a slot beyond MaxSlots, is an error before any memory is
// taken for it.
func TestHeadersAreBounded(t *testing.T) {
	const limit = 1000
	read := func(wire []byte) error {
		r := Reader{Source: &cutReader{b: wire, sizes: []int{1 << 20}}, Pool: new(memory.Pool),
			Limit: func(Kind, uint32) (int, error) { return limit, nil },
			Reserve: func(_ Kind, _ uint32, n int) error {
				if n > limit {
					t.Errorf("memory is reserved for %d bytes, where %d are the limit", n, limit)
				}
				return nil
			}}
		_, err := r.Next()
		return err
	}
	for k := Bytes; k.valid(); k++ {
		for _, n := range []int{0, 1, limit, limit + 1, 2 * limit} {
			err := read(Append(nil, Frame{Kind: k, Slot: 7, Body: make([]byte, n)}))
			if n > limit != errors.Is(err, ErrFrame) || n <= limit && err != nil && !(n == 0 && k == Bytes) {
				t.Errorf("%v of %d bytes, at most %d: %v", k, n, limit, err)
			}
		}
		if err := read(binary.AppendUvarint(AppendHeader(nil, k, 7, 0)[:len(AppendHeader(nil, k, 7, 0))-1], 1<<63)); !errors.Is(err, ErrFrame) {
			t.Errorf("%v of 2^63 bytes: %v", k, err)
		}
		if !k.hasSlot() {
			continue
		}
		for slot, ok := range map[uint32]bool{0: true, MaxSlots - 1: true, MaxSlots: false, 1<<32 - 1: false} {
			if err := read(Append(nil, Frame{Kind: k, Slot: slot, Body: []byte{0}})); (err == nil) != ok || !ok && !errors.Is(err, ErrFrame) {
				t.Errorf("%v of slot %d of %d: %v", k, slot, MaxSlots, err)
			}
		}
		huge := binary.AppendUvarint(binary.AppendUvarint([]byte{byte(k)}, 1<<32+7), 1) // whose lower half is a slot that may be
		if err := read(append(huge, 0)); !errors.Is(err, ErrFrame) {
			t.Errorf("%v of slot 2^32+7: %v", k, err)
		}
	}
}

// A Gather delivers its runs in order, and one that names too much, too little or the wrong block is an error.
func TestGather(t *testing.T) {
	body := AppendLiteral(nil, []byte("head"))
	body = AppendRun(body, 2, 0)
	body = AppendRun(body, 3, 1)
	body = AppendLiteral(body, []byte("-"))
	body = AppendRun(body, 1, 0)
	sizes, err := ParseGather(body)
	if err != nil || !reflect.DeepEqual(sizes, []int{3, 3}) {
		t.Fatalf("blocks of %v bytes, %v; want 3 and 3", sizes, err)
	}
	var got []byte
	err = DeliverRuns(body, [][]byte{[]byte("abc"), []byte("xyz")}, func(runs ...[]byte) error {
		got = append(got, bytes.Join(runs, nil)...)
		return nil
	})
	if err != nil || string(got) != "headabxyz-c" {
		t.Errorf("%q was delivered, %v", got, err)
	}
	many := AppendRun(nil, 1, 0)
	for range MaxRuns {
		many = AppendLiteral(many, []byte{0})
	}
	for name, bad := range map[string][]byte{
		"empty":                    nil,
		"of no block":              AppendLiteral(nil, []byte("x")),
		"of an empty run":          AppendRun(AppendRun(nil, 1, 0), 0, 0),
		"cut short":                body[:len(body)-1],
		"of blocks out of order":   AppendRun(nil, 1, 1),
		"of more than a block has": AppendRun(nil, MaxBlock+1, 0),
		"of more than may be":      AppendRun(AppendRun(nil, MaxBlock, 0), 1, 1),
		"of too many runs":         many,
	} {
		if _, err := ParseGather(bad); !errors.Is(err, ErrFrame) {
			t.Errorf("a gather %s: %v", name, err)
		}
	}
}

// Declarations, Gathers and lengths beyond what a sender makes are broken frames, and the last ones within it are none.
func TestBounds(t *testing.T) {
	declare := func(codec string, d tensor.DType, n int) error {
		_, err := ParseDeclaration((&Declaration{Codec: codec, DType: d, N: n}).Append(nil))
		return err
	}
	gather := func(blocks int) (body []byte) {
		for i := range blocks {
			body = AppendRun(body, 4, i)
		}
		return body
	}
	gathered := func(blocks int) error {
		_, err := ParseGather(gather(blocks))
		return err
	}
	text := func(n int) string { return string(make([]byte, n)) }
	// Of ten bytes the last one may only be 1, for the highest of 64 bits.
	length := func(last byte) error {
		wire := append([]byte{byte(Bytes), 0x85, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, last}, "bytes"...)
		r := Reader{Source: &cutReader{b: wire, sizes: []int{100}}, Limit: anyLength, Reserve: freely, Pool: new(memory.Pool)}
		_, err := r.Next()
		return err
	}
	for name, c := range map[string]struct{ within, beyond error }{
		"a codec's text":       {declare(text(maxCodecText), tensor.Float32, 1), declare(text(maxCodecText+1), tensor.Float32, 1)},
		"no elements":          {declare("int8", tensor.Float32, 1), declare("int8", tensor.Float32, 0)},
		"elements":             {declare("int8", tensor.Float32, MaxBlock/4), declare("int8", tensor.Float32, MaxBlock/4+1)},
		"a type":               {declare("int8", tensor.Float64, 1), declare("int8", 200, 1)},
		"blocks of a Gather":   {gathered(MaxGathered), gathered(MaxGathered + 1)},
		"a number of 10 bytes": {length(0), length(2)},
	} {
		if c.within != nil || !errors.Is(c.beyond, ErrFrame) {
			t.Errorf("%s: within the bound %v, beyond it %v", name, c.within, c.beyond)
		}
	}
}

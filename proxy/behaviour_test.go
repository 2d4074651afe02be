package proxy

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// Whatever pieces tensors come in, interleaved or not, with opaque bytes between them, the far app reads the same
// bytes.
func TestAnyStreamArrives(t *testing.T) {
	for _, flow := range []bool{false, true} {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 1))
		p := newPair(t, []parser.Protocol{pathtest.Toy{Flow: flow}})
		client, server := p.connect(t)
		stream := toyStream(r, 400)
		got := make(chan []byte)
		go func() { b, _ := io.ReadAll(server); got <- b }()
		for rest := stream; len(rest) > 0; {
			n := min(1+r.IntN(70000), len(rest))
			if _, err := client.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		client.CloseWrite()
		if b := <-got; sha256.Sum256(b) != sha256.Sum256(stream) {
			t.Fatalf("%d bytes arrived of %d, and differ", len(b), len(stream))
		}
		var raw, wire int64
		for _, row := range p.near.Tensors() {
			raw, wire = raw+row.RawBytes, wire+row.WireBytes
		}
		if !flow && wire >= raw { // a flow-controlled sender may be so slow that all travels verbatim
			t.Errorf("%d bytes became %d: nothing was coded", raw, wire)
		}
		server.Close()
		client.Close()
	}
}

// toyStream returns pieces of tensors. Several tensors are under way at a time.
func toyStream(r *rand.Rand, pieces int) []byte {
	var out []byte
	sizes := map[byte]int{}
	left := map[byte][]byte{}
	for len(left) > 0 || pieces > 0 {
		pieces--
		id := byte(r.IntN(5))
		if len(left[id]) == 0 {
			if pieces <= 0 {
				id = slices.Min(slices.Collect(maps.Keys(left)))
			} else {
				sizes[id] = 4 * (1 + r.IntN(20000))
				left[id] = pathtest.Random(r, sizes[id])
			}
		}
		n := 1 + r.IntN(len(left[id]))
		out = append(out, pathtest.ToyPiece(id, sizes[id], left[id][:n])...)
		if left[id] = left[id][n:]; len(left[id]) == 0 {
			delete(left, id)
		}
		if r.IntN(4) == 0 {
			out = append(out, pathtest.ToyPiece(200, 0, nil)...)
		}
	}
	return out
}

// A FIN ends one direction; the other goes on for as long as it likes.
func TestHalfClose(t *testing.T) {
	for name, fromClient := range map[string]bool{"client closes": true, "server closes": false} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, nil)
			a, b := p.connect(t)
			if !fromClient {
				a, b = b, a
			}
			a.CloseWrite()
			if n, err := b.Read(make([]byte, 1)); err != io.EOF {
				t.Fatalf("read %d bytes, %v; want the FIN", n, err)
			}
			sent := pathtest.Random(rand.New(rand.NewPCG(1, 1)), 8<<20)
			go func() { b.Write(sent); b.CloseWrite() }()
			got, err := io.ReadAll(a)
			if err != nil || !bytes.Equal(got, sent) {
				t.Fatalf("%d of %d bytes came after the FIN: %v", len(got), len(sent), err)
			}
		})
	}
}

// An RST arrives as an RST, after the bytes before it.
func TestReset(t *testing.T) {
	for name, fromClient := range map[string]bool{"client resets": true, "server resets": false} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, nil)
			a, b := p.connect(t)
			if !fromClient {
				a, b = b, a
			}
			if _, err := a.Write([]byte("before")); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 6)
			if _, err := io.ReadFull(b, got); err != nil || string(got) != "before" {
				t.Fatalf("%q, %v", got, err)
			}
			app.Reset(a)
			if _, err := b.Read(got); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("read after the far app's RST: %v, want a reset", err)
			}
		})
	}
}

// An app that only writes learns of the far app's death as well.
func TestWriterSeesReset(t *testing.T) {
	p := newPair(t, nil)
	client, server := p.connect(t)
	app.Reset(server)
	client.SetWriteDeadline(time.Now().Add(time.Minute)) // a bound on the failure, not on the success
	for {
		if _, err := client.Write(make([]byte, 1<<16)); err != nil {
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Fatalf("write ended with %v, want a reset", err)
			}
			return
		}
	}
}

// A client whose server, peer or permission is missing is reset, and does not see an end that looks like an answer.
func TestRefusedIsReset(t *testing.T) {
	for name, spoil := range map[string]func(*pair){
		"server down": func(p *pair) { p.target.Close() },
		"peer down":   func(p *pair) { p.down.Store(true) },
		"denied": func(p *pair) {
			s := *p.far.settings.Load()
			s.Peers = nil
			p.far.Apply(s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, nil)
			spoil(p)
			c, err := net.Dial("tcp", p.entry.Addr().String())
			if err == nil {
				defer c.Close()
				_, err = c.Read(make([]byte, 1))
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("connect, then read: %v, want a reset", err)
			}
		})
	}
}

// A codec that panics costs its gain, and not a byte.
func TestBrokenCodecTravelsRaw(t *testing.T) {
	p := newPair(t, []parser.Protocol{pathtest.Toy{}}, policy.Rule{Codec: "broken"})
	client, server := p.connect(t)
	stream := toyStream(rand.New(rand.NewPCG(7, 7)), 50)
	go func() { client.Write(stream); client.CloseWrite() }()
	if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, stream) {
		t.Fatalf("%d of %d bytes arrived: %v", len(got), len(stream), err)
	}
}

// A frame that was changed on the way resets the connection at both ends; bytes that were delivered before are right.
func TestCorruptFrameResets(t *testing.T) {
	p := newPair(t, []parser.Protocol{pathtest.Toy{}})
	client, server := p.connect(t)
	tensor := make([]byte, 40000)
	tensor[0] = 1
	tamper := func(b []byte) {
		if i := bytes.Index(b, []byte("lossless")); i >= 0 {
			b[i] = 'L'
		}
	}
	p.mu.Lock()
	p.streams[1].tamper.Store(&tamper)
	p.mu.Unlock()
	go client.Write(pathtest.ToyPiece(1, len(tensor), tensor))
	got, err := io.ReadAll(server)
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the server's app read %d bytes and %v, want a reset", len(got), err)
	}
	if len(got) > 8 {
		t.Fatalf("%d bytes were delivered though their block did not decode", len(got))
	}
	if _, err := io.ReadAll(client); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the client's app saw %v, want a reset", err)
	}
}

// A reader that stops stops its writer, and nobody else; all that is held is within the budget.
func TestBackpressure(t *testing.T) {
	p := newPair(t, []parser.Protocol{pathtest.Toy{}})
	stalledClient, stalledServer := p.connect(t)
	defer stalledServer.Close()
	stalledClient.SetWriteDeadline(time.Now().Add(2 * time.Second))
	written := 0
	value := make([]byte, 1<<20) // that no codec makes smaller: the held block is coded
	rand.NewChaCha8([32]byte{7}).Read(value)
	for chunk := pathtest.ToyPiece(1, len(value), value); ; {
		n, err := stalledClient.Write(chunk)
		written += n
		if err != nil {
			break
		}
		if written > 1<<30 {
			t.Fatal("a reader that does not read has not stopped its writer after 1 GiB")
		}
	}
	client, server := p.connect(t)
	stream := toyStream(rand.New(rand.NewPCG(9, 9)), 200)
	go func() { client.Write(stream); client.CloseWrite() }()
	if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, stream) {
		t.Fatalf("beside a stalled connection %d of %d bytes arrived: %v", len(got), len(stream), err)
	}
	stalledClient.Close()
}

// With no memory to hold blocks everything travels all the same.
func TestNoBudget(t *testing.T) {
	p := newLimitedPair(t, 1, 1)
	client, server := p.connect(t)
	stream := toyStream(rand.New(rand.NewPCG(3, 3)), 100)
	go func() { client.Write(stream); client.CloseWrite() }()
	if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, stream) {
		t.Fatalf("%d of %d bytes arrived: %v", len(got), len(stream), err)
	}
}

package proxy

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// whole checks that nothing is taken of the budgets of a proxy whose connections have ended.
func whole(t *testing.T, p *Proxy) {
	t.Helper()
	if err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*memory.Budget{"senders": p.env.Sending, "receivers": p.env.Receiving} {
		if b.Used() != 0 {
			t.Errorf("%d bytes of the budget of %s are not given back", b.Used(), name)
		}
	}
	if n := p.env.Buffers.InUse(); n != 0 {
		t.Errorf("%d bytes of buffers are not given back", n)
	}
}

// Connections that break at any moment give back all that they hold.
func TestBrokenConnectionsGiveBackTheirBudget(t *testing.T) {
	p := newPair(t, []parser.Protocol{pathtest.Toy{}})
	r := rand.New(rand.NewPCG(11, 11))
	for range 40 {
		client, server := p.connect(t)
		stream := toyStream(r, 60)
		read := make(chan struct{})
		go func() { io.Copy(io.Discard, server); close(read) }()
		client.Write(stream[:r.IntN(len(stream))+1])
		if r.IntN(2) == 0 {
			app.Reset(client)
			<-read
			server.Close()
		} else {
			app.Reset(server)
			<-read
			client.Close()
		}
	}
	whole(t, p.near)
	whole(t, p.far)
}

// A block that does not decode resets the connection at once, though both apps wait and no frame follows.
func TestCorruptBlockResetsWaitingApps(t *testing.T) {
	p := newPair(t, []parser.Protocol{pathtest.Toy{}})
	client, server := p.connect(t)
	value := make([]byte, 4000) // one block: its encoding begins with the test codec's count of blocks
	value[0] = 0xab
	tamper := func(b []byte) {
		if i := bytes.LastIndexByte(b, 0xab); i >= 8 {
			b[i-8]++
		}
	}
	p.mu.Lock()
	p.streams[1].tamper.Store(&tamper)
	p.mu.Unlock()
	if _, err := client.Write(pathtest.ToyPiece(1, len(value), value)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(server); !errors.Is(err, syscall.ECONNRESET) || len(b) > 8 {
		t.Errorf("the server's app read %d bytes and %v, want a reset", len(b), err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client's app saw %v, want a reset", err)
	}
}

// An app resets its connection while the proxy writes to it, and the write uses up the error; the far app must not take
// that for an orderly end.
func TestResetDuringDeliveryIsNoEnd(t *testing.T) {
	for range 30 {
		p := newPair(t, nil)
		client, server := p.connect(t)
		wrote := make(chan error)
		go func() {
			for {
				if _, err := client.Write(make([]byte, 1<<16)); err != nil {
					wrote <- err
					return
				}
			}
		}()
		io.ReadFull(server, make([]byte, 1<<16))
		app.Reset(server)
		_, errRead := client.Read(make([]byte, 1))
		errWrite := <-wrote // whichever of the two comes first is told of the RST
		if !errors.Is(errRead, syscall.ECONNRESET) && !errors.Is(errWrite, syscall.ECONNRESET) {
			t.Fatalf("read: %v, write: %v; want a reset", errRead, errWrite)
		}
		client.Close()
	}
}

// A sender that stops in the second block of a tensor, and waits for an answer to the first, gets one.
func TestFlowControlledSenderIsNotHeldUp(t *testing.T) {
	p := newPair(t, []parser.Protocol{pathtest.Toy{Flow: true}})
	client, server := p.connect(t)
	value := pathtest.Random(rand.New(rand.NewPCG(2, 2)), 20000)
	message := pathtest.ToyPiece(1, len(value), value)
	got := make([]byte, len(message))
	for _, part := range [][2]int{{0, 9000}, {9000, 9001}, {9001, len(message)}} {
		client.Write(message[part[0]:part[1]])
		if _, err := io.ReadFull(server, got[part[0]:part[1]]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, message) {
		t.Error("the bytes differ")
	}
}

// faulty is a protocol whose parser breaks in the middle of a tensor, in the way that its value says.
type faulty string

func (f faulty) String() string      { return string(f) }
func (faulty) Traits() parser.Traits { return parser.Traits{} }
func (f faulty) New(parser.Conn) (a, b parser.Parser) {
	return &faultyParser{f: f}, &faultyParser{f: f}
}

type faultyParser struct {
	f faulty
	n int
}

func (p *faultyParser) Next(b []byte) (parser.Segment, error) {
	if p.n++; p.n == 1 {
		return parser.Segment{Len: min(len(b), 1000), Tensor: tensor.Tensor{Key: 1, Size: 8000, Hold: 8000, DType: tensor.Float32}}, nil
	}
	switch p.f {
	case "panics":
		panic("on purpose")
	case "claims nothing":
		return parser.Segment{}, nil
	case "claims too much":
		return parser.Segment{Len: len(b) + 1}, nil
	case "forgets its tensor": // and begins another of the same key
		return parser.Segment{Len: len(b), Tensor: tensor.Tensor{Key: 1, Size: 4 * len(b), DType: tensor.Float32}}, nil
	}
	return parser.Segment{}, errors.New("broken")
}

// Whatever a parser does, every byte arrives, and none waits for a block that will never be whole.
func TestFaultyParserHoldsNothingUp(t *testing.T) {
	for _, f := range []faulty{"panics", "claims nothing", "claims too much", "forgets its tensor", "errs"} {
		t.Run(string(f), func(t *testing.T) {
			p := newPair(t, []parser.Protocol{f})
			client, server := p.connect(t)
			sent := pathtest.Random(rand.New(rand.NewPCG(4, 4)), 3000)
			for at := 0; at < len(sent); at += 1000 {
				client.Write(sent[at : at+1000])
				if f != "forgets its tensor" && at == 0 {
					continue // its block waits for its rest
				}
			}
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, sent) {
				t.Fatalf("%v, or the bytes differ", err)
			}
		})
	}
}

// A codec that the peer does not have is not used, and the user is told.
func TestPeerLacksCodec(t *testing.T) {
	p := newPair(t, []parser.Protocol{gradients{}}, policy.Rule{Codec: "halves"})
	p.mu.Lock()
	p.codecs = []string{"lossless"}
	p.mu.Unlock()
	client, server := p.connect(t)
	l := &lossyRun{t: t, r: rand.New(rand.NewPCG(1, 2))}
	for range 5 {
		v, msg := values(l.r)
		l.step(client, server, v, msg)
	}
	for i, exact := range l.exact {
		if !exact {
			t.Errorf("value %d was changed", i)
		}
	}
	if rows := p.near.Tensors(); len(rows) != 1 || rows[0].Reason != tensor.PeerLacks.String() {
		t.Errorf("%+v, want the reason %q", rows, tensor.PeerLacks)
	}
}

package send

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/path/receive"
	"github.com/gradproxy/gradproxy/proxy/policy"
)

// A recorder notes how its parser has classified each byte.
type recorder struct {
	parser.Parser
	class []class
	bytes int
}

// A class is a run of bytes: of the tensor with that key, from off on, or opaque.
type class struct {
	key    uint64
	off, n int
}

func (r *recorder) Next(b []byte) (parser.Segment, error) {
	seg, err := r.Parser.Next(b)
	if err != nil {
		return seg, err
	}
	r.bytes += seg.Len
	c := class{seg.Tensor.Key, seg.Tensor.Off, seg.Len}
	if seg.Tensor.Size == 0 {
		c = class{n: seg.Len}
	}
	if last := len(r.class) - 1; last >= 0 && r.class[last].key == c.key && (c.key == 0 || r.class[last].off+r.class[last].n == c.off) {
		r.class[last].n += c.n
	} else {
		r.class = append(r.class, c)
	}
	return seg, nil
}

// A testSender is a Sender that reads the bytes that a test writes.
type testSender struct {
	*Sender
	env  *path.Env
	app  *net.TCPConn
	sink *pathtest.Sink
	seen recorder
}

// newTestSender returns a Sender of a stream of toy whose policy has the given rules.
func newTestSender(t *testing.T, toy pathtest.Toy, rules ...policy.Rule) *testSender {
	t.Helper()
	a, b := pathtest.TCPPair(t)
	s := &testSender{env: pathtest.NewEnv(t, rules...), app: a, sink: new(pathtest.Sink)}
	s.seen.Parser, _ = toy.New(parser.Conn{})
	s.open(t, &path.Conn{Env: s.env, App: app.Plain(b), Stream: s.sink, Log: pathtest.Log(t)})
	return s
}

func (s *testSender) open(t *testing.T, c *path.Conn) {
	t.Helper()
	var err error
	if s.Sender, err = New(c, policy.Flow{}); err != nil {
		t.Fatal(err)
	}
	s.Parse(&s.seen)
}

// delivered returns the bytes that the far app is given.
func (s *testSender) delivered(t *testing.T) []byte {
	t.Helper()
	if err := s.cut.fallBack(false); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	return deliver(t, s.env, s.sink.Sent())
}

// deliver returns the bytes that the far app is given of a stream.
func deliver(t *testing.T, env *path.Env, sent []byte) []byte {
	t.Helper()
	near, far := pathtest.TCPPair(t)
	wire := frame.Append(sent, frame.Frame{Kind: frame.CloseWrite})
	r := receive.New(&path.Conn{Env: env, App: app.Plain(near), Stream: &pathtest.Cut{B: wire, Sizes: []int{1 << 16}}, Log: pathtest.Log(t)}, nil)
	ended := make(chan error, 1)
	go func() {
		ended <- r.Run()
		near.CloseWrite()
	}()
	got, err := io.ReadAll(far)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return got
}

// readAll reads until the parser has seen n bytes, or, if n is 0, to the end.
func (s *testSender) readAll(t *testing.T, n int) {
	t.Helper()
	for n == 0 || s.seen.bytes < n {
		came, err := s.read.once()
		if !came && err == io.EOF && n == 0 {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// takes gives the classifier b as if it had been read.
func (s *testSender) takes(b []byte) error {
	return s.classify.take(append(make([]byte, frame.MaxHeader), b...), nil)
}

// kinds counts the frames of a stream by their kind.
func kinds(t *testing.T, wire []byte) map[frame.Kind]int {
	t.Helper()
	n := map[frame.Kind]int{}
	inBytes := false
	eachFrame(t, wire, func(f frame.Frame) {
		if f.Kind != frame.Bytes || !inBytes {
			n[f.Kind]++
		}
		inBytes = f.Kind == frame.Bytes
	})
	return n
}

// eachFrame calls see with each frame that has left.
func eachFrame(t *testing.T, wire []byte, see func(frame.Frame)) {
	t.Helper()
	r := frame.Reader{Source: &pathtest.Cut{B: wire, Sizes: []int{len(wire)}}, Pool: pathtest.NewEnv(t).Buffers,
		Limit: func(frame.Kind, uint32) (int, error) { return frame.MaxBytes, nil }, Reserve: func(frame.Kind, uint32, int) error { return nil }}
	for {
		f, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		see(f)
	}
}

// A Sender gives back all memory that it has taken, whatever waits when its app leaves.
func TestRunGivesBack(t *testing.T) {
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Codec: "wide"})
	sent := bytes.Join([][]byte{pathtest.ToyPiece(1, 8000, make([]byte, 8000)), pathtest.ToyPiece(2, 8000, make([]byte, 5000))}, nil)
	go func() {
		s.app.Write(sent)
		s.app.CloseWrite()
	}()
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	if got := s.delivered(t); !bytes.Equal(got, sent) {
		t.Errorf("%d bytes arrive of %d, or they differ", len(got), len(sent))
	}
	pathtest.Whole(t, s.env)
}

package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/tensor"
)

// A traffic says which frames carry a connection's bytes.
type traffic int

const (
	opaque   traffic = iota // Bytes
	blocks                  // Declare, Block and Gather of a lossless codec
	shared                  // Ref: values that several connections carry; each predicts the next
	gradient                // Block of a lossy codec, with error feedback
	answered                // Blocks whose sender stops amid them
	kinds                   // how many there are
)

// A chaosProtocol finds in a server's port the kind of traffic of its connections.
type chaosProtocol struct{}

func (chaosProtocol) String() string        { return "chaos" }
func (chaosProtocol) Traits() parser.Traits { return parser.Traits{Reconnects: true} }

func (chaosProtocol) New(c parser.Conn) (fromClient, fromServer parser.Parser) {
	switch kindOf(c.Server.Port()) {
	case blocks:
		return pathtest.Toy{}.New(c)
	case shared:
		return pathtest.Toy{Role: tensor.State, Proof: tensor.ByWire, Base: true}.New(c)
	case gradient:
		return pathtest.Toy{Role: tensor.Gradient, Proof: tensor.ByUpdate}.New(c)
	case answered:
		return pathtest.Toy{Flow: true}.New(c)
	}
	return parser.Verbatim{}, parser.Verbatim{}
}

// firstPort is the port of the first exchange; the next is another kind's.
const firstPort = 10_000

func kindOf(port uint16) traffic { return traffic(port-firstPort) % kinds }

// chaosCodecs knows every codec, and the test's lossless one, whose decoder fails if blocks come out of order, as
// "lossless(level=fast)".
func chaosCodecs(text string) (codecs.Codec, error) {
	if text == "lossless" {
		return pathtest.Codec(text)
	}
	return all.New(text)
}

// A script is an app's part in one direction: the app writes all, with pauses, and then ends the direction.
type script struct {
	all    []byte
	lossy  []span          // bytes of float32 that may arrive as an approximation
	cuts   []int           // ends of the writes
	pauses []time.Duration // before each write
	reset  bool            // the connection is reset where the end would be
	slow   time.Duration   // pause between two reads of these bytes
}

type span struct{ from, to int }

// newScripts returns the scripts of the client and the server of a connection.
func newScripts(r *rand.Rand, kind traffic, values [][]byte) (both [2]script) {
	for i := range both {
		s := &both[i]
		switch kind {
		case opaque:
			s.all = pathtest.Random(r, 1+r.IntN(200_000))
		case blocks, answered:
			s.all = toyStream(r, 3+r.IntN(12))
		case shared:
			for _, v := range values {
				s.all = append(s.all, pathtest.ToyPiece(1, len(v), v)...)
			}
		case gradient:
			id, n := byte(1+r.IntN(3)), 0
			n = 500 * int(id)
			for range 2 + r.IntN(6) {
				v := signed(r, n)
				s.all = append(s.all, pathtest.ToyPiece(id, len(v), v)...)
				s.lossy = append(s.lossy, span{len(s.all) - len(v), len(s.all)})
			}
		}
		spread := time.Duration(1+r.IntN(20)) * time.Second
		for at, writes := 0, 1+r.IntN(12); at < len(s.all); {
			at = min(at+1+r.IntN(2*len(s.all)/writes+1), len(s.all))
			s.cuts = append(s.cuts, at)
			s.pauses = append(s.pauses, time.Duration(r.Int64N(int64(spread)))/time.Duration(writes))
		}
		if r.IntN(6) == 0 {
			s.slow = time.Duration(r.IntN(40)) * time.Millisecond
		}
		s.reset = r.IntN(12) == 0
	}
	return both
}

// signed returns n float32 whose absolute values lie in [1, 2), so that an approximation shows which they are.
func signed(r *rand.Rand, n int) (b []byte) {
	for range n {
		x := 1 + r.Float32()
		if r.IntN(2) == 0 {
			x = -x
		}
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// differs returns how the bytes that have arrived are not the first ones of a script; "": they are.
func (s *script) differs(got []byte) string {
	if len(got) > len(s.all) {
		return fmt.Sprintf("%d bytes arrived of %d", len(got), len(s.all))
	}
	at := 0
	for _, x := range append(s.lossy, span{len(s.all), len(s.all)}) {
		from, to := min(x.from, len(got)), min(x.to, len(got))
		if !bytes.Equal(got[at:from], s.all[at:from]) {
			return fmt.Sprintf("bytes %d to %d differ", at, from)
		}
		for i := from; i+4 <= to; i += 4 {
			a := float64(math.Float32frombits(binary.LittleEndian.Uint32(s.all[i:])))
			b := float64(math.Float32frombits(binary.LittleEndian.Uint32(got[i:])))
			if !(math.Abs(a-b) < 0.9) {
				return fmt.Sprintf("the value at %d is %v and no approximation of %v", i, b, a)
			}
		}
		at = to
	}
	return ""
}

type interval struct{ from, to time.Time }

// An exchange is one connection of the job: both apps, and the bytes and ends that they have seen.
type exchange struct {
	port    uint16
	scripts [2]script // of the client, of the server
	begun   time.Time
	sides   [2]side

	mu    sync.Mutex
	reset bool // by an app of its own
	left  sync.WaitGroup
}

// A side is an app's end.
type side struct {
	got   []byte // of the other side's script
	end   error  // of reading: io.EOF, or a reset
	ended bool   // all was written, and then a FIN
	over  time.Time
}

func (e *exchange) kind() traffic { return kindOf(e.port) }

// run is the app of a side, until its connection has ended.
func (e *exchange) run(i int, c *wayConn) {
	mine, me := &e.scripts[i], &e.sides[i]
	wrote := make(chan bool)
	go func() {
		at := 0
		for k, to := range mine.cuts {
			time.Sleep(mine.pauses[k])
			if _, err := c.Write(mine.all[at:to]); err != nil {
				wrote <- false
				return
			}
			at = to
		}
		if mine.reset {
			e.mu.Lock()
			e.reset = true
			e.mu.Unlock()
			app.Reset(c)
			wrote <- false
			return
		}
		e.mu.Lock()
		me.ended = true
		e.mu.Unlock()
		c.CloseWrite()
		wrote <- true
	}()
	buf := make([]byte, 1+len(e.scripts[1-i].all)/7)
	var got []byte
	var err error
	for err == nil {
		var n int
		n, err = c.Read(buf)
		got = append(got, buf[:n]...)
		time.Sleep(e.scripts[1-i].slow)
	}
	if err != io.EOF {
		app.Reset(c) // as an app does that sees an error
	}
	<-wrote
	c.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	me.got, me.end, me.over = got, err, time.Now()
}

// complete reports whether both sides have got everything, and its end.
func (e *exchange) complete() bool {
	for i := range e.sides {
		if e.sides[i].end != io.EOF || len(e.sides[i].got) != len(e.scripts[1-i].all) {
			return false
		}
	}
	return true
}

// fault names the broken promise of a connection; "": none is broken. disturbed are the times at which streams had
// to be reset.
func (e *exchange) fault(disturbed []interval) string {
	for i := range e.sides {
		me, theirs := &e.sides[i], &e.scripts[1-i]
		switch d := theirs.differs(me.got); {
		case d != "":
			return d
		case errors.Is(me.end, io.EOF) && len(me.got) < len(theirs.all):
			return fmt.Sprintf("a FIN came after %d of %d bytes", len(me.got), len(theirs.all))
		case errors.Is(me.end, io.EOF) && !e.sides[1-i].ended:
			return "a FIN came, and the other app has sent none"
		case me.over.IsZero():
			return "the connection has not ended"
		}
	}
	if e.complete() || e.reset {
		return ""
	}
	over := slices.MaxFunc([]time.Time{e.sides[0].over, e.sides[1].over}, time.Time.Compare)
	if slices.ContainsFunc(disturbed, func(t interval) bool { return !t.to.Before(e.begun) && !t.from.After(over) }) {
		return ""
	}
	return fmt.Sprintf("reset for no reason: %v with %d of %d bytes, %v with %d of %d", e.sides[0].end, len(e.sides[0].got), len(e.scripts[1].all),
		e.sides[1].end, len(e.sides[1].got), len(e.scripts[0].all))
}

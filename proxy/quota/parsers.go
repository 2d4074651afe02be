package quota

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/tensor"
)

// Parsers returns the parser of the bytes that the own app of a peer's connection sends and the parser of the bytes
// that are delivered to it. recognized is called with the name of the protocol once its parser has seen a tensor.
// release gives back the memory that the parsers have paid for, once they are not used any more.
func (q *Quotas) Parsers(peer string, protocols []parser.Protocol, c parser.Conn, log *slog.Logger, m Metrics, recognized func(string)) (own, other parser.Parser, release func()) {
	if len(protocols) == 0 {
		return parser.Verbatim{}, nil, func() {}
	}
	asks := &stopwatch{worked: threadTime}
	if c.Calls != nil {
		c.Calls = &questions{Calls: c.Calls, watch: asks, now: sinceStart}
	}
	both := sync.OnceValues(func() (own, other parser.Parser) { return newParsers(protocols, c, recognized) })
	x := q.Of(peer)
	costs := &metering{log: log, metrics: m, peer: peer, time: &x.parserTime, memory: q.parsing, now: sinceStart}
	a := &meter{Parser: guarded{&late{both: both}}, metering: costs, watch: asks, share: memory.Share{Peer: &x.parserMemory}}
	b := &meter{Parser: guarded{&late{both: both, other: true}}, metering: costs, watch: &stopwatch{worked: threadTime}, share: memory.Share{Peer: &x.parserMemory}}
	return a, b, func() {
		a.release()
		b.release()
	}
}

// newParsers returns the parsers of a connection's two directions. Each parser tries all protocols.
func newParsers(protocols []parser.Protocol, c parser.Conn, recognized func(string)) (own, other parser.Parser) {
	var fromClient, fromServer []parser.Parser
	for _, protocol := range protocols {
		a, b := protocol.New(c)
		fromClient = append(fromClient, a)
		fromServer = append(fromServer, b)
	}
	if c.Own == parser.Server {
		fromClient, fromServer = fromServer, fromClient
	}
	for i, protocol := range protocols {
		fromClient[i] = &named{Parser: fromClient[i], name: protocol.String(), seen: recognized}
	}
	return parser.First(fromClient...), parser.First(fromServer...)
}

// A late parser is the one of a direction, made when the connection's first bytes come, in either direction. The
// parsers of a connection take 10 KiB, and many connections say nothing for long.
type late struct {
	both   func() (own, other parser.Parser) // the same ones each time, and the same panic
	other  bool
	Parser parser.Parser // nil until the direction's first bytes
}

func (l *late) Next(b []byte) (parser.Segment, error) {
	if l.Parser == nil {
		own, other := l.both()
		if l.Parser = own; l.other {
			l.Parser = other
		}
		l.both = nil
	}
	return l.Parser.Next(b)
}

// Held implements parser.Sized.
func (l *late) Held() int {
	if l.Parser == nil {
		return 0
	}
	return parser.Held(l.Parser)
}

// Label implements parser.Labeler.
func (l *late) Label(t tensor.Tensor) parser.Label {
	if l.Parser == nil {
		return parser.Label{}
	}
	return parser.LabelOf(l.Parser, t)
}

// A named parser reports the protocol of the first tensor.
type named struct {
	parser.Parser
	name string
	seen func(string)
}

func (n *named) Next(b []byte) (parser.Segment, error) {
	seg, err := n.Parser.Next(b)
	if err == nil && seg.Tensor.Size > 0 && n.seen != nil {
		n.seen(n.name)
		n.seen = nil
	}
	return seg, err
}

// Held implements parser.Sized.
func (n *named) Held() int { return parser.Held(n.Parser) }

// Label implements parser.Labeler.
func (n *named) Label(t tensor.Tensor) parser.Label { return parser.LabelOf(n.Parser, t) }

// guarded makes a parser's panic, and an answer that no parser may give, an error: the stream then travels verbatim.
type guarded struct{ parser.Parser }

func (g guarded) Next(b []byte) (seg parser.Segment, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("proxy: parser: panic: %v", p)
		}
	}()
	seg, err = g.Parser.Next(b)
	if err == nil && (seg.Len < 1 || seg.Len > len(b)) {
		err = fmt.Errorf("proxy: parser classified %d bytes of %d", seg.Len, len(b))
	}
	return seg, err
}

// Held implements parser.Sized.
func (g guarded) Held() int { return parser.Held(g.Parser) }

// Label implements parser.Labeler. A parser that panics tells no name.
func (g guarded) Label(t tensor.Tensor) (l parser.Label) {
	defer func() {
		if recover() != nil {
			l = parser.Label{}
		}
	}()
	return parser.LabelOf(g.Parser, t)
}

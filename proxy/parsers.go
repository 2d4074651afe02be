package proxy

import (
	"fmt"

	"github.com/gradproxy/gradproxy/parser"
)

// parsers returns the parser of the bytes that the own app sends and the parser of the bytes that are delivered to it. recognized is
// called with the name of the protocol once its parser has seen a tensor.
func parsers(protocols []parser.Protocol, c parser.Conn, recognized func(string)) (own, other parser.Parser) {
	if len(protocols) == 0 {
		return parser.Verbatim{}, nil
	}
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
	return guarded{parser.First(fromClient...)}, guarded{parser.First(fromServer...)}
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

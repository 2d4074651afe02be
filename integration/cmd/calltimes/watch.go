package main

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/http2"
)

// A watch notes the calls of one connection.
type watch struct {
	now   func() time.Time
	table *table

	mu     sync.Mutex // guards the fields below
	first  []byte     // of the client, until the protocol is known
	known  bool
	halves [2]*http2.Direction // of HTTP/2; nil: another protocol, or not understood

	// The call of HTTP/1.1 under way.
	line        []byte // its first, as far as it has come; nil: there is no call
	begun, last time.Time
	answered    bool // the server has sent bytes of its answer
}

// preface begins a connection of HTTP/2.
const preface = "PRI * HTTP/2.0\r\n"

// maxLine bounds the line that names a call of HTTP/1.1.
const maxLine = 200

// see takes bytes of a side, in order.
func (w *watch) see(from parser.Side, b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.known {
		if from == parser.Server { // nothing but HTTP/2 has a server speak first
			w.known = len(w.first) > 0 && !strings.HasPrefix(preface, string(w.first))
		}
		if from == parser.Client && len(w.first) < len(preface) {
			w.first = append(w.first, b[:min(len(b), len(preface)-len(w.first))]...)
			w.known = len(w.first) == len(preface) || !strings.HasPrefix(preface, string(w.first))
		}
		if w.known || w.halves[0] == nil {
			w.begin()
		}
	}
	if d := w.halves[from]; d != nil {
		for len(b) > 0 {
			seg, err := d.Next(b)
			if err != nil {
				w.halves[from] = nil
				return
			}
			b = b[seg.Len:]
		}
		return
	}
	if w.known && string(w.first) != preface {
		w.http1(from, b)
	}
}

// begin settles the protocol, as far as it is known.
func (w *watch) begin() {
	if w.known && string(w.first) != preface {
		w.halves = [2]*http2.Direction{}
		return
	}
	if w.halves[0] == nil {
		w.halves[0], w.halves[1] = http2.New(func(request http2.Fields) (http2.Exchange, error) {
			return &call{watch: w, method: strings.Clone(request.Get(":path")), begun: w.now()}, nil
		})
	}
}

// A call is one of gRPC, or of HTTP/2.
type call struct {
	watch  *watch
	method string
	begun  time.Time
}

func (*call) Headers(parser.Side, http2.Fields) {}

func (*call) Data(_ parser.Side, b []byte, _ int) (parser.Segment, error) {
	return parser.Segment{Len: len(b)}, nil
}

func (c *call) Close() { c.watch.table.add(c.method, c.watch.now().Sub(c.begun)) }

// http1 takes bytes of a connection of HTTP/1.1.
func (w *watch) http1(from parser.Side, b []byte) {
	if from == parser.Server {
		w.answered, w.last = w.line != nil, w.now()
		return
	}
	if w.line == nil || w.answered {
		w.finish()
		w.line, w.begun = []byte{}, w.now()
	}
	if !bytes.Contains(w.line, []byte("\r\n")) && len(w.line) < maxLine {
		w.line = append(w.line, b[:min(len(b), maxLine-len(w.line))]...)
	}
}

// finish notes the call of HTTP/1.1 that has been answered, if there is one.
func (w *watch) finish() {
	if w.answered {
		line, _, _ := strings.Cut(string(w.line), "\r\n")
		method, _, _ := strings.Cut(strings.TrimSuffix(line, " HTTP/1.1"), "?")
		w.table.add(method, w.last.Sub(w.begun))
	}
	w.line, w.answered = nil, false
}

// end ends the connection.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finish()
}

// Package http1 reads the heads of HTTP/1.1 messages (RFC 9112) out of a stream, as its bytes come.
package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// MaxHead bounds the bytes of a head: a message with a longer one is not understood.
const MaxHead = 64 << 10

// ErrHead says that a stream has something else than a head.
var ErrHead = errors.New("http1: not the head of a message")

var blank = []byte("\r\n\r\n")

// A Collector gathers heads. The zero Collector is before one.
type Collector struct{ held []byte }

// Next takes bytes of b up to the end of a head and returns their number. whole is the head, up to its blank line, once
// it is there; it is valid until the next call.
func (c *Collector) Next(b []byte) (n int, whole []byte, err error) {
	before := len(c.held)
	c.held = append(c.held, b[:min(len(b), MaxHead-before)]...)
	end := bytes.Index(c.held[max(0, before-len(blank)+1):], blank)
	if end < 0 {
		if len(c.held) == MaxHead {
			return 0, nil, fmt.Errorf("%w: it has more than %d bytes", ErrHead, MaxHead)
		}
		return len(b), nil, nil
	}
	end += max(0, before-len(blank)+1) + len(blank)
	whole = c.held[:end]
	if c.held = c.held[:0]; cap(c.held) > MaxHead/4 {
		c.held = nil
	}
	return end - before, whole, nil
}

// Begun returns the bytes of a head that has come in part.
func (c *Collector) Begun() []byte { return c.held }

// Held returns how many bytes the Collector holds.
func (c *Collector) Held() int { return cap(c.held) }

// A Request is the head of a request.
type Request struct {
	Method string
	Path   string // without the query, also where the target is a whole URL
	Body   int    // bytes
	Header http.Header
}

// ParseRequest reads the head of a request whose body, if it has one, has a known length.
func ParseRequest(head []byte) (r Request, err error) {
	q, err := http.ReadRequest(bufio.NewReaderSize(bytes.NewReader(head), len(head)))
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrHead, err)
	}
	n, err := length(q.ContentLength, q.TransferEncoding)
	return Request{Method: strings.Clone(q.Method), Path: q.URL.Path, Body: n, Header: q.Header}, err
}

// A Response is the head of a response.
type Response struct {
	Status int
	Body   int // bytes
	Header http.Header
}

// ParseResponse reads the head of a response to a request of that method, whose body, if it has one, has a known
// length.
func ParseResponse(head []byte, method string) (r Response, err error) {
	q, err := http.ReadResponse(bufio.NewReaderSize(bytes.NewReader(head), len(head)), &http.Request{Method: method})
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrHead, err)
	}
	n := 0
	if q.StatusCode >= 200 || q.StatusCode == http.StatusSwitchingProtocols {
		if n, err = length(q.ContentLength, q.TransferEncoding); q.StatusCode == http.StatusSwitchingProtocols || method == http.MethodHead {
			n, err = 0, nil
		}
	}
	return Response{Status: q.StatusCode, Body: n, Header: q.Header}, err
}

// length returns the bytes of a body.
func length(n int64, coding []string) (int, error) {
	if n < 0 || len(coding) > 0 || n != int64(int(n)) {
		return 0, fmt.Errorf("%w: the length of the body is not known", ErrHead)
	}
	return int(n), nil
}

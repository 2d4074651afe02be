package http1

import (
	"bytes"
	"net/http"
	"testing"
)

// collect returns the first head of b, which comes in pieces of step bytes, and the bytes that it took.
func collect(b []byte, step int) (head []byte, taken int, failed bool) {
	var c Collector
	for taken < len(b) {
		n, whole, err := c.Next(b[taken:min(len(b), taken+step)])
		if err != nil {
			return nil, taken, true
		}
		if taken += n; whole != nil {
			return bytes.Clone(whole), taken, false
		}
	}
	return nil, taken, false
}

// Any bytes have the same head however they are cut, no more of them are taken than it has, and a head that is read has
// a body of a possible length.
func FuzzHead(f *testing.F) {
	for _, s := range []string{push + "12345", whole, answer, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x82\x05hello",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\n\r\n"} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		head, n, failed := collect(b, max(1, len(b)))
		if got, m, stopped := collect(b, 1+int(step)); !bytes.Equal(got, head) || failed != stopped || !failed && m != n {
			t.Fatalf("in pieces of %d bytes a head of %d bytes ends at %d, and one of %d at %d when all come together", 1+int(step), len(got), m, len(head), n)
		}
		if head == nil {
			return
		}
		if n != len(head) || !bytes.HasPrefix(b, head) {
			t.Fatalf("%d bytes were taken for a head of %d", n, len(head))
		}
		if r, err := ParseRequest(head); err == nil && r.Body < 0 {
			t.Fatalf("a request has a body of %d bytes", r.Body)
		}
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			if r, err := ParseResponse(head, method); err == nil && r.Body < 0 {
				t.Fatalf("a response has a body of %d bytes", r.Body)
			}
		}
	})
}

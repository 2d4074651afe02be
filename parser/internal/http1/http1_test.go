package http1

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

const (
	push   = "POST /v1/fleet/push-object?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
	whole  = "POST http://a:8000/v1/fleet/get-run HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
	answer = "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: 2\r\n\r\n"
)

// A head ends with its blank line, however it is cut.
func TestCollectorCutsAnywhere(t *testing.T) {
	stream := []byte(push + "12345")
	for step := 1; step <= len(stream); step++ {
		var c Collector
		at := 0
		for at < len(push) {
			n, head, err := c.Next(stream[at:min(len(stream), at+step)])
			if err != nil {
				t.Fatal(err)
			}
			at += n
			if head != nil && (string(head) != push || at != len(push)) {
				t.Fatalf("cut at %d: head %q ends at %d", step, head, at)
			}
		}
		if at != len(push) || len(c.Begun()) != 0 {
			t.Fatalf("cut at %d: %d bytes taken, want %d", step, at, len(push))
		}
	}
}

func TestCollectorIsBounded(t *testing.T) {
	var c Collector
	b := bytes.Repeat([]byte("a"), 1000)
	for range MaxHead/len(b) + 2 {
		if _, _, err := c.Next(b); err != nil {
			if !errors.Is(err, ErrHead) {
				t.Error(err)
			}
			return
		}
	}
	t.Errorf("a head of more than %d bytes is taken", MaxHead)
}

func TestParse(t *testing.T) {
	for head, want := range map[string]Request{
		push:  {Method: "POST", Path: "/v1/fleet/push-object", Body: 5},
		whole: {Method: "POST", Path: "/v1/fleet/get-run", Body: 0},
	} {
		r, err := ParseRequest([]byte(head))
		if err != nil || r.Method != want.Method || r.Path != want.Path || r.Body != want.Body {
			t.Errorf("%q: %+v, %v", head, r, err)
		}
	}
	for _, c := range []struct {
		head, method string
		status, body int
		ok           bool
	}{
		{answer, "POST", 200, 2, true},
		{answer, "HEAD", 200, 0, true},
		{"HTTP/1.1 100 Continue\r\n\r\n", "POST", 100, 0, true},
		{"HTTP/1.1 204 No Content\r\n\r\n", "POST", 204, 0, true},
		{"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", "GET", 101, 0, true},
		{"HTTP/1.1 200 OK\r\n\r\n", "GET", 200, 0, false},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", 200, 0, false},
	} {
		r, err := ParseResponse([]byte(c.head), c.method)
		if (err == nil) != c.ok || r.Status != c.status || c.ok && r.Body != c.body {
			t.Errorf("%q: %+v, %v", c.head, r, err)
		}
	}
	for _, head := range []string{"\r\n\r\n", "POST\r\n\r\n", strings.Replace(push, "5", "-5", 1), strings.Replace(push, "Content-Length: 5", "Transfer-Encoding: chunked", 1)} {
		if _, err := ParseRequest([]byte(head)); !errors.Is(err, ErrHead) {
			t.Errorf("%q: %v", head, err)
		}
	}
}

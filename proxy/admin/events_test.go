package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/proxy"
)

// serve serves a Config until the test ends, and returns its address.
func serve(t *testing.T, c Config) string {
	t.Helper()
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, c) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// open opens a stream of events.
func open(t *testing.T, address string) *http.Response {
	t.Helper()
	r, err := http.Get("http://" + address + "/events")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	return r
}

// A page is told of all three kinds of news, and a tensor of a peer's half is explained like one of this site.
func TestEvents(t *testing.T) {
	address := serve(t, Config{
		Live: func() Live { return Live{Site: "paris"} },
		Summary: func(limit int) proxy.TensorSummary {
			return proxy.TensorSummary{Count: 5, Largest: []proxy.TensorInfo{{ID: 1, Job: "resnet"}}}
		},
		Halves: func(context.Context) []Half {
			return []Half{{Peer: "tokyo", View: &PeerView{Site: "tokyo", Tensors: Tensors{Largest: []proxy.TensorInfo{{ID: 3, Role: "gradient", Reason: "no rule"}}}}}}
		},
	})
	r := open(t, address)
	if got := r.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type %q", got)
	}
	left := map[string]string{"live": `"site":"paris"`, "tensors": `"count":5`, "halves": `"peer":"tokyo"`}
	lines := bufio.NewScanner(r.Body)
	kind := ""
	for len(left) > 0 && lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "event: "):
			kind = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			if !json.Valid([]byte(line[len("data: "):])) || !strings.Contains(line, left[kind]) {
				t.Errorf("%s: %s", kind, line)
			}
			delete(left, kind)
		}
	}
	if len(left) > 0 {
		t.Fatalf("no event of %v", left)
	}
	got, err := http.Get("http://" + address + "/tensor?id=3&peer=tokyo")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	var a Answer
	if err := json.NewDecoder(got.Body).Decode(&a); err != nil || a.Tensor.Role != "gradient" || !strings.Contains(a.Explanation.YAML, "role: gradient") {
		t.Errorf("%+v, %v", a, err)
	}
}

// Only so many pages are told. No news is made where nobody listens, and a page that closes makes room.
func TestReadersAreBounded(t *testing.T) {
	var made atomic.Int64
	address := serve(t, Config{Live: func() Live { made.Add(1); return Live{} }})
	if made.Load() != 0 {
		t.Error("news is made for nobody")
	}
	var pages []*http.Response
	for range maxReaders {
		r := open(t, address)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("page %d: %s", len(pages), r.Status)
		}
		if _, err := r.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		pages = append(pages, r)
	}
	if r := open(t, address); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one page more than %d: %s", maxReaders, r.Status)
	}
	pages[0].Body.Close()
	for until := time.Now().Add(time.Minute); ; {
		r := open(t, address)
		if r.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(until) {
			t.Fatal("a page that has closed makes no room")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := made.Load(); n > 20 {
		t.Errorf("%d events are made for %d pages within moments: each page has its own", n, maxReaders)
	}
}

// A reader that takes nothing holds up nobody, and no more is kept for it than its room.
func TestSlowReaderCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{}
		c.setDefaults()
		h := newHub(&c)
		slow, quick := h.enter(), h.enter()
		defer h.leave(slow)
		defer h.leave(quick)
		big := strings.Repeat("x", 1<<16)
		begin := time.Now()
		got := 0
		for range 200 {
			h.tell("tensors", big)
			for len(quick.events) > 0 {
				<-quick.events
				got++
			}
		}
		if took := time.Since(begin); took > 0 { // time stands still in a bubble unless all wait
			t.Errorf("200 events took %v", took)
		}
		if len(slow.events) > readerRoom || got < 200 {
			t.Errorf("%d events wait for the slow reader; the quick one has got %d", len(slow.events), got)
		}
	})
}

// A proxy that ends does not wait for its open pages.
func TestPagesEndWithTheProxy(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, Config{}) }()
	r := open(t, l.Addr().String())
	silent, err := net.Dial("tcp", l.Addr().String()) // reads nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	io.WriteString(silent, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(r.Body); err != nil {
		t.Errorf("the page's stream ends with %v", err)
	}
}

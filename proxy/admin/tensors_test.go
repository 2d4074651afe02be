package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/shadow"
)

// manyTensors lists n tensors, whose lines are like those of a job.
func manyTensors(n int) []proxy.TensorInfo {
	list := make([]proxy.TensorInfo, n)
	for i := range list {
		list[i] = proxy.TensorInfo{ID: uint64(i + 1), Peer: "tokyo", Job: "<resnet>", Key: 1 << 63, Bytes: 4096, DType: "float32", Role: "gradient", Codec: "int8", Reason: "ok",
			RawBytes: int64(n - i), Name: fmt.Sprintf("layer%d & 1", i), Shadow: []shadow.Result{{Codec: "3lc"}}}
	}
	return list
}

// pieces notes the longest piece that it was given.
type pieces struct {
	bytes.Buffer
	longest int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.longest = max(p.longest, len(b))
	return p.Buffer.Write(b)
}

// A list of tensors is written in pieces, and is the text of an object that was encoded whole.
func TestTensorsAreWrittenInPieces(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3000} {
		list := manyTensors(n)
		var whole bytes.Buffer
		e := json.NewEncoder(&whole)
		e.SetIndent("", " ")
		if err := e.Encode(map[string]any{"tensors": list, "count": 7}); err != nil {
			t.Fatal(err)
		}
		var got pieces
		if err := writeTensors(&got, 7, list); err != nil {
			t.Fatal(err)
		}
		if got.String() != whole.String() {
			t.Errorf("%d tensors: %.300q, want %.300q", n, got.String(), whole.String())
		}
		if got.longest > piece {
			t.Errorf("%d tensors: a piece of %d bytes", n, got.longest)
		}
	}
}

// Of clients that ask for all tensors and read nothing, two are answered: the others are refused at once, and a short
// list is not. Once one has gone another is answered.
func TestReadersThatStopHoldTwoLists(t *testing.T) {
	const narrow = 16 << 10      // bytes of a socket's buffers
	list := manyTensors(1 << 12) // more than sockets hold, with these buffers
	made := make(chan struct{}, 100)
	s := httptest.NewUnstartedServer(Handler(Config{Summary: func(limit int) proxy.TensorSummary {
		if limit > shortList {
			made <- struct{}{}
		}
		return proxy.TensorSummary{Largest: list[:min(limit, len(list))], Count: len(list)}
	}}))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		c.(*net.TCPConn).SetWriteBuffer(narrow)
		return ctx
	}
	s.Start()
	defer s.Close()
	ask := func(query string) (int, http.Header, string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/tensors"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, answer.Header, string(text)
	}
	var stopped []net.Conn
	for range longAnswers {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.(*net.TCPConn).SetReadBuffer(narrow)
		io.WriteString(c, "GET /tensors HTTP/1.1\r\nHost: localhost\r\n\r\n")
		<-made
		stopped = append(stopped, c)
	}
	for _, query := range []string{"", "", "?limit=1000000"} {
		if status, header, text := ask(query); status != http.StatusServiceUnavailable || header.Get("Retry-After") != "30" || !strings.Contains(text, "limit=100") {
			t.Errorf("/tensors%s: %d, %v, %.100s", query, status, header, text)
		}
	}
	if status, _, text := ask("?limit=100"); status != http.StatusOK || strings.Count(text, `"id":`) != 100 {
		t.Errorf("a short list: %d, %.100s", status, text)
	}
	stopped[0].Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if status, _, _ := ask(""); status == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no list is made after a reader has gone")
		}
	}
}

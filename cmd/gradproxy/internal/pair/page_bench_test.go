package pair

import (
	"bufio"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require/paired"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/admin"
	"github.com/gradproxy/gradproxy/tensor"
)

const (
	manyTensors = 100_000
	manySize    = 4096 // bytes of each
)

// many is a protocol of tensors of one size, without anything between them: a connection sends them one after the
// other, and then from the first again.
type many struct{}

func (many) String() string { return "many" }

func (many) Traits() parser.Traits { return parser.Traits{} }

func (many) New(parser.Conn) (fromClient, fromServer parser.Parser) {
	return new(manyParser), new(manyParser)
}

type manyParser struct{ at int64 }

func (p *manyParser) Next(b []byte) (parser.Segment, error) {
	off := int(p.at % manySize)
	t := tensor.Tensor{Key: uint64(p.at/manySize%manyTensors) + 1, Role: tensor.Gradient, DType: tensor.Float32, Size: manySize, Off: off, Hold: manySize - off}
	n := min(len(b), manySize-off)
	p.at += int64(n)
	return parser.Segment{Len: n, Tensor: t}, nil
}

// BenchmarkOpenPage says by how much an open page changes the throughput of two proxies that carry 100,000 tensors, one
// of which serves it. The page is open and closed in turns, of which two make a pair: the change is their median, with
// bounds of 95 %. Its bound is 1 %. It also says how long an answer takes with the tensors of the page, of which the
// bound is 100 ms, while the proxies take all processors that they get. Give it four minutes: -benchtime 45x.
func BenchmarkOpenPage(b *testing.B) {
	ln := listen(b)
	p := start(b, Config{Protocols: []parser.Protocol{many{}}})
	pages := admin.Handler(admin.Config{Site: "near", Tensors: p.Near.Tensors, Summary: func(limit int) proxy.TensorSummary { return p.Near.Summary("", limit) }})
	server := httptest.NewServer(pages)
	b.Cleanup(func() { pages.End(); server.Close() })
	client, far := connect(b, forward(b, p, ln), ln)
	b.Cleanup(func() { client.Close(); far.Close() })
	go func() {
		value := make([]byte, 1<<20)
		rand.NewChaCha8([32]byte{1}).Read(value[:1<<19])
		for {
			if _, err := client.Write(value); err != nil {
				return
			}
		}
	}()
	var arrived atomic.Int64
	go func() {
		got := make([]byte, 1<<18)
		for {
			n, err := far.Read(got)
			if err != nil {
				return
			}
			arrived.Add(int64(n))
		}
	}()
	for arrived.Load() < manyTensors*manySize {
		time.Sleep(10 * time.Millisecond)
	}
	if n := p.Near.Summary("", 1).Count; n != manyTensors {
		b.Fatalf("%d tensors are listed", n)
	}
	rate := func() float64 {
		time.Sleep(200 * time.Millisecond)
		before, began := arrived.Load(), time.Now()
		time.Sleep(2 * time.Second) // in which the page is told of tensors once
		return float64(arrived.Load()-before) / time.Since(began).Seconds()
	}
	open := func() float64 {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/events", nil)
		if err != nil {
			b.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			b.Fatal(err)
		}
		defer answer.Body.Close()
		var events atomic.Int64
		go func() {
			lines := bufio.NewReader(answer.Body)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if strings.HasPrefix(line, "event: tensors") {
					events.Add(1)
				}
			}
		}()
		r := rate()
		if events.Load() == 0 {
			b.Error("an open page was told nothing of the tensors")
		}
		return r
	}
	var pairs []paired.Pair
	for i := 0; b.Loop(); i++ {
		var x paired.Pair
		if i%2 == 0 {
			x.Without = rate()
			x.With = open()
		} else {
			x.With = open()
			x.Without = rate()
		}
		pairs = append(pairs, x)
	}
	var answers []float64 // seconds
	for range 21 {
		began := time.Now()
		answer, err := http.Get(server.URL + "/tensors?limit=240")
		if err != nil {
			b.Fatal(err)
		}
		n, err := bufio.NewReader(answer.Body).WriteTo(io.Discard)
		answer.Body.Close()
		if err != nil || n == 0 {
			b.Fatalf("%d bytes, %v", n, err)
		}
		answers = append(answers, time.Since(began).Seconds())
	}
	b.ReportMetric(1e3*median(answers), "answer-ms")
	if c, err := paired.Compare(pairs, paired.Normal95); err == nil {
		b.ReportMetric(c.Without/1e6, "MB/s")
		b.ReportMetric(100*c.Median, "change-%")
		b.ReportMetric(100*c.Low, "low-%")
		b.ReportMetric(100*c.High, "high-%")
	}
}

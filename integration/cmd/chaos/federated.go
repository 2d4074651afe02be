//go:build linux

package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/net/websocket"

	"github.com/gradproxy/gradproxy/parser/flower/flowersim"
	"github.com/gradproxy/gradproxy/parser/nvflare/nvflaresim"
)

// A training is one client's part of a federated job: in each round the server sends the client a model, and the client
// answers with a result. Models and results predict each other, so the proxies keep values of both directions for a
// while (Want, Kept and Seen frames). Two clients train by Flower's protocol. One trains by NVFlare's, over a
// WebSocket, whose client masks all bytes that it sends (Mask frames).
type training struct {
	x      *tensors
	client int
	seed   uint64
	round  int // the first round that is not done yet; guarded by tensors.mu
}

const (
	rounds        = 24
	perConnection = 8       // rounds of a connection
	small         = 4 << 10 // elements of the array that a training changes
	changes       = 16      // elements that a round changes in the other array, so that most of its bytes stay the same
)

// flowerClients is how many clients train by Flower's protocol. The client after them trains by NVFlare's.
const flowerClients = 2

// model returns the model that the client gets in a round, in two arrays.
func (t *training) model(round int) [2][]float32 {
	r := rand.New(rand.NewPCG(t.seed, uint64(1000+t.client/flowerClients))) // one model for each server
	frozen, trained := make([]float32, elements), make([]float32, small)
	for i := range frozen {
		frozen[i] = float32(r.NormFloat64())
	}
	for i := range trained {
		trained[i] = float32(r.NormFloat64()) * (1 + float32(round)/1000)
	}
	for i := range changes {
		frozen[1000+i] = float32(round + i)
	}
	return [2][]float32{frozen, trained}
}

// weights returns the client's result of a round, as weights.
func (t *training) weights(round int) [2][]float32 {
	m := t.model(round)
	for i, d := range t.difference(round) {
		m[1][i] += d / 1000
	}
	return m
}

// difference returns the client's result of a round as a difference, of the array that the training changes.
func (t *training) difference(round int) []float32 {
	r := rand.New(rand.NewPCG(t.seed, uint64(round<<2|t.client)))
	d := make([]float32, small)
	for i := range d {
		d[i] = float32(r.NormFloat64())
	}
	return d
}

// equal reports whether arrays has the values of want, bit for bit.
func equal(arrays [][]float32, want [2][]float32) bool {
	return len(arrays) == len(want) && slices.Equal(arrays[0], want[0]) && slices.Equal(arrays[1], want[1])
}

// next returns the first round that is not done yet.
func (t *training) next() int {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	return t.round
}

// did notes that a round is done, and with it all rounds before.
func (t *training) did(round int) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	t.round = max(t.round, round+1)
}

// attend plays the client until all rounds are done. When a connection ends it opens another one.
func (t *training) attend(entry string, join func(ctx context.Context, c net.Conn) error) {
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(50 * time.Millisecond) {
		connected := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		c, err := dialFrom(ctx, entry)
		if err == nil {
			err = join(ctx, c)
		}
		cancel()
		switch {
		case err != nil:
			t.x.ended(connected, err)
		case t.next() == rounds:
			return
		}
	}
}

// joinFlower plays the client over one connection, by Flower's protocol.
func (t *training) joinFlower(ctx context.Context, c net.Conn) error {
	return flowersim.Join(ctx, c, func(m flowersim.Message) (flowersim.Message, error) {
		if m.Kind == flowersim.GetParameters { // by which the server knows the client
			return flowersim.Message{Arrays: [][]float32{{float32(t.client)}}}, nil
		}
		if len(m.Arrays) != 3 || len(m.Arrays[0]) != 1 {
			t.x.s.wrongly("client %d: a model of %d arrays", t.client, len(m.Arrays))
			return m, errBadModel
		}
		round := int(m.Arrays[0][0])
		if !equal(m.Arrays[1:], t.model(round)) {
			t.x.s.wrongly("client %d: the model of round %d differs", t.client, round)
		}
		w := t.weights(round)
		return flowersim.Message{Arrays: [][]float32{m.Arrays[0], w[0], w[1]}}, nil
	})
}

var errBadModel = errors.New("a model is out of form")

// serveFlower plays the server for one client, by Flower's protocol.
func (x *tensors) serveFlower(c *flowersim.Client) {
	who, err := c.Ask(flowersim.Message{Kind: flowersim.GetParameters})
	if err != nil {
		return // the client says so
	}
	if len(who.Arrays) != 1 || len(who.Arrays[0]) != 1 || int(who.Arrays[0][0]) >= flowerClients {
		x.s.wrongly("a client of Flower's is %v", who.Arrays)
		return
	}
	t := x.trainings[int(who.Arrays[0][0])]
	for n := 0; ; n++ {
		round := t.next()
		if round == rounds || n == perConnection {
			c.End() // if it fails, the client says so
			return
		}
		m := t.model(round)
		time.Sleep(pace)
		result, err := c.Ask(flowersim.Message{Kind: flowersim.Fit, Arrays: [][]float32{{float32(round)}, m[0], m[1]}})
		if err != nil {
			return
		}
		if a := result.Arrays; len(a) != 3 || !slices.Equal(a[0], []float32{float32(round)}) || !equal(a[1:], t.weights(round)) {
			x.s.wrongly("client %d: the result of round %d differs", t.client, round)
		}
		t.did(round)
	}
}

// names are the names of a model's arrays.
var names = [2]string{"frozen.weight", "trained.weight"}

// sharesDifference reports whether the client's result of a round is a difference, which may lose something, rather
// than weights. Only NVFlare's protocol has differences.
func sharesDifference(round int) bool { return round%2 == 1 }

// joinNVFlare plays the client over one connection, by NVFlare's protocol.
func (t *training) joinNVFlare(ctx context.Context, c net.Conn) error {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	config, err := websocket.NewConfig("ws://"+serverHost+"/f3", "http://"+clientHost)
	if err != nil {
		return err
	}
	ws, err := websocket.NewClient(config, c)
	if err != nil {
		return err
	}
	ws.PayloadType = websocket.BinaryFrame
	return nvflaresim.Join(ctx, ws, "site-1", func(task nvflaresim.Shareable) (nvflaresim.Shareable, error) {
		var arrays [][]float32
		for _, a := range task.Arrays {
			arrays = append(arrays, a.Values)
		}
		if !equal(arrays, t.model(task.Round)) {
			t.x.s.wrongly("client %d: the model of round %d differs", t.client, task.Round)
		}
		if sharesDifference(task.Round) {
			return nvflaresim.Shareable{Kind: nvflaresim.Differences, Arrays: []nvflaresim.Array{{Name: names[1], Values: t.difference(task.Round)}}}, nil
		}
		w := t.weights(task.Round)
		return nvflaresim.Shareable{Kind: nvflaresim.Weights, Arrays: []nvflaresim.Array{{Name: names[0], Values: w[0]}, {Name: names[1], Values: w[1]}}}, nil
	})
}

// nvflareServer returns the server of the training by NVFlare's protocol. Its connections end with their clients'.
func (x *tensors) nvflareServer() *http.Server {
	accept := func(ws *websocket.Conn) {
		ws.PayloadType = websocket.BinaryFrame
		if c, err := nvflaresim.Accept(ws); err == nil {
			x.trainings[flowerClients].conduct(c)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/f3", websocket.Server{Handler: accept})
	return &http.Server{Handler: mux}
}

// conduct plays the server for one client, by NVFlare's protocol. When a round fails it returns: the client reports the
// error.
func (t *training) conduct(c *nvflaresim.Client) {
	for n := 0; ; n++ {
		round := t.next()
		if round == rounds || n == perConnection {
			c.End() // if it fails, the client says so
			return
		}
		m := t.model(round)
		time.Sleep(pace)
		result, err := c.Do(nvflaresim.Shareable{Task: nvflaresim.Train, Round: round, Kind: nvflaresim.Weights,
			Arrays: []nvflaresim.Array{{Name: names[0], Values: m[0]}, {Name: names[1], Values: m[1]}}})
		if err != nil {
			return
		}
		t.compare(round, result)
		t.did(round)
	}
}

// compare judges a result by NVFlare's protocol.
func (t *training) compare(round int, result nvflaresim.Shareable) {
	want, farthest := t.weights(round), 0.0
	if sharesDifference(round) { // farthestSum allows for two values, and a difference is one
		want, farthest = [2][]float32{nil, t.difference(round)}, farthestSum/2
	}
	differs := false
	for i, name := range names {
		at := slices.IndexFunc(result.Arrays, func(a nvflaresim.Array) bool { return a.Name == name })
		switch {
		case at < 0 && want[i] == nil:
			continue
		case at < 0 || len(result.Arrays[at].Values) != len(want[i]):
			t.x.s.wrongly("client %d: the result of round %d lacks %s, or it is not whole", t.client, round, name)
			return
		}
		for k, got := range result.Arrays[at].Values {
			exact := want[i][k]
			if differs = differs || got != exact; !(math.Abs(float64(got-exact)) <= farthest) {
				t.x.s.wrongly("client %d: value %d of %s of round %d is %v and no approximation of %v", t.client, k, name, round, got, exact)
				return
			}
		}
	}
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	if differs {
		t.x.lossy++
	}
}

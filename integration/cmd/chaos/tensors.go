//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gradproxy/gradproxy/integration/require/freeport"
	"github.com/gradproxy/gradproxy/parser/flower/flowersim"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
)

// tensors are apps whose bytes the proxies find tensors in: all-reduces of gradients by Gloo's protocol, coded with
// loss and error feedback; weights that several clients pull over gRPC, which are differences to the last ones and
// cross once for all; and federated trainings.
type tensors struct {
	s         *stage
	entries   [kindsOfApps]string // where clients connect
	targets   [kindsOfApps]net.Listener
	trainings [flowerClients + 1]*training

	mu     sync.Mutex
	sums   int // all-reduces that were compared
	lossy  int // of these and of trainings' results, with values that are not the exact ones
	pulls  int // weights that were compared, bit for bit
	ends   []interval
	reason []string // of each end
}

// Indices of tensors.entries and tensors.targets.
const (
	ofSums = iota
	ofWeights
	ofFlower
	ofNVFlare
	kindsOfApps
)

// newTensors opens the listeners of servers.
func newTensors(s *stage, seed uint64) (*tensors, error) {
	x := &tensors{s: s}
	for i := range x.trainings {
		x.trainings[i] = &training{x: x, client: i, seed: seed}
	}
	for i := range x.targets {
		var err error
		if x.entries[i], err = freeport.Find("tcp", clientHost); err != nil {
			return nil, err
		}
		if x.targets[i], err = net.Listen("tcp", serverHost+":0"); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// keys returns the lines of both sites' files for the apps.
func (x *tensors) keys() string {
	return "jobs: [{name: chaos, networks: [127.0.0.0/16], ranks: 2, sums: gradients, aggregates: lossy}]\n" +
		"policy: [{job: chaos, role: gradient, codec: int8}, {job: chaos, role: aggregate, codec: int8}]\n"
}

// forwards returns the entries of paris's list of forwards.
func (x *tensors) forwards() (text string) {
	for i, entry := range x.entries {
		text += fmt.Sprintf(", {listen: %q, target: %q}", entry, x.targets[i].Addr())
	}
	return text
}

func dialFrom(ctx context.Context, to string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(clientHost)}}
	return d.DialContext(ctx, "tcp", to)
}

// run plays the apps, from new connections after each end, until each has done its part.
func (x *tensors) run(seed uint64) {
	var apps sync.WaitGroup
	server := &http.Server{Handler: http.HandlerFunc(serveWeights), Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	go server.Serve(x.targets[ofWeights])
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go flowersim.Serve(ctx, x.targets[ofFlower], x.serveFlower)
	nvflare := x.nvflareServer()
	go nvflare.Serve(x.targets[ofNVFlare])
	defer nvflare.Close()
	apps.Go(func() { x.reduce(seed) })
	for _, t := range x.trainings[:flowerClients] {
		apps.Go(func() { t.attend(x.entries[ofFlower], t.joinFlower) })
	}
	apps.Go(func() { t := x.trainings[flowerClients]; t.attend(x.entries[ofNVFlare], t.joinNVFlare) })
	for range 2 {
		apps.Go(x.pull)
	}
	apps.Wait()
}

// ended takes note of connections that have ended before their time.
func (x *tensors) ended(begun time.Time, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ends, x.reason = append(x.ends, interval{begun, time.Now()}), append(x.reason, err.Error())
}

const (
	steps    = 60
	each     = 20 // steps, or pulls, of a connection: a process codes nothing on one that it has taken over
	pace     = 15 * time.Millisecond
	elements = 16 << 10
	patience = 2 * time.Minute // of the apps with a machine under load
)

// reduce sums gradients of two ranks.
func (x *tensors) reduce(seed uint64) {
	for step, begun := 0, time.Now(); step < steps && time.Since(begun) < patience; {
		group := time.Now()
		ranks, err := x.connect()
		if err == nil {
			step, err = x.steps(ranks, seed, step)
			for _, g := range ranks {
				g.Close()
			}
		}
		if err != nil {
			x.ended(group, err)
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// connect connects two ranks, the one behind paris with the one behind tokyo.
func (x *tensors) connect() (ranks [2]*gloosim.Group, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	file, err := x.targets[ofSums].(*net.TCPListener).File()
	if err != nil {
		return ranks, err
	}
	defer file.Close()
	l, err := net.FileListener(file) // Connect closes its own
	if err != nil {
		return ranks, err
	}
	addrs := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.2:1")} // the second one connects
	var errs [2]error
	var both sync.WaitGroup
	for i := range ranks {
		c := gloosim.Config{Rank: i, Addrs: addrs, Dial: func(ctx context.Context, _ int) (net.Conn, error) { return dialFrom(ctx, x.entries[ofSums]) }}
		if i == 0 {
			c.Listeners = []net.Listener{l}
		} else {
			unused, err := net.Listen("tcp", clientHost+":0")
			if err != nil {
				return ranks, err
			}
			c.Listeners = []net.Listener{unused}
		}
		both.Go(func() {
			if ranks[i], errs[i] = gloosim.Connect(ctx, c); errs[i] != nil {
				cancel()
			}
		})
	}
	both.Wait()
	if err = errors.Join(errs[:]...); err != nil {
		for i, g := range ranks {
			if g != nil {
				g.Close()
				ranks[i] = nil
			}
		}
	}
	return ranks, err
}

// gradient returns normal values.
func gradient(seed uint64, step, rank int) (b []byte) {
	r := rand.New(rand.NewPCG(seed, uint64(step<<1|rank)))
	for range elements {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64())))
	}
	return b
}

// steps does the steps of one connection of each rank, from one on, and returns the next one.
func (x *tensors) steps(ranks [2]*gloosim.Group, seed uint64, from int) (step int, err error) {
	for step = from; step < min(from+each, steps); step++ {
		time.Sleep(pace)
		var sums, gathered [2][]byte
		var errs [2]error
		var both sync.WaitGroup
		for i, g := range ranks {
			sums[i] = gradient(seed, step, i)
			gathered[i] = make([]byte, 2*64)
			copy(gathered[i][64*i:], sums[i][:64])
			both.Go(func() {
				if errs[i] = g.AllReduce(sums[i]).Wait(); errs[i] == nil {
					errs[i] = g.AllGather(gathered[i]).Wait()
				}
				if errs[i] != nil {
					ranks[1-i].Abort(errs[i])
				}
			})
		}
		both.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return step, err
		}
		x.compare(seed, step, sums, gathered)
	}
	return step, nil
}

// farthestSum is how far a sum of two normal values may be from the exact one: int8 has 127 steps of a block's largest,
// at most 7, for the gradient and again for the sum, each with a residual.
const farthestSum = 0.25

func (x *tensors) compare(seed uint64, step int, sums, gathered [2][]byte) {
	a, b := gradient(seed, step, 0), gradient(seed, step, 1)
	want := append(bytes.Clone(a[:64]), b[:64]...)
	differs := false
	for i := range sums {
		if !bytes.Equal(gathered[i], want) {
			x.s.wrongly("rank %d: gathered bytes of step %d differ", i, step)
		}
		for at := 0; at < len(a); at += 4 {
			exact := value(a[at:]) + value(b[at:])
			got := value(sums[i][at:])
			if differs = differs || got != exact; !(math.Abs(float64(got-exact)) < farthestSum) {
				x.s.wrongly("rank %d: sum %d of step %d is %v and no approximation of %v", i, at/4, step, got, exact)
				return
			}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sums++; differs {
		x.lossy++
	}
}

func value(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// weights returns a message with the weights of a version: a few differ from the last one's. Every tenth version is of
// another model.
func weights(version int) []byte {
	n := elements
	if version%10 == 9 {
		n -= version
	}
	w := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(w[4*i:], math.Float32bits(float32(math.Sin(float64(i)))*(1+float32(version+i%7)/1000)))
	}
	return framed(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), w))
}

// framed puts gRPC's prefix before a message.
func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// serveWeights answers a request, whose message is a field with the version.
func serveWeights(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil || len(b) < 7 {
		return
	}
	version, _ := protowire.ConsumeVarint(b[6:])
	w.Header().Set("Content-Type", "application/grpc")
	w.Write(weights(int(version)))
}

// pull asks for all versions, one after the other. A connection that has had its part of them is reset.
func (x *tensors) pull() {
	for version, begun := 0, time.Now(); version < steps && time.Since(begun) < patience; {
		connected := time.Now()
		var conn net.Conn
		t := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
			if c, err = dialFrom(ctx, x.entries[ofWeights]); err == nil {
				conn = c
			}
			return c, err
		}}
		t.Protocols.SetUnencryptedHTTP2(true)
		client := &http.Client{Transport: t, Timeout: time.Minute}
		for end := min(version+each, steps); version < end; version++ {
			time.Sleep(pace)
			got, err := ask(client, version)
			if err != nil {
				x.ended(connected, err)
				time.Sleep(50 * time.Millisecond)
				break
			}
			if !bytes.Equal(got, weights(version)) {
				x.s.wrongly("%d bytes of weights of version %d differ", len(got), version)
			}
			x.mu.Lock()
			x.pulls++
			x.mu.Unlock()
		}
		if conn != nil {
			abort(conn)
		}
	}
}

func ask(client *http.Client, version int) ([]byte, error) {
	message := framed(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(version)))
	r, err := http.NewRequest("POST", "http://weights/chaos.Weights/Pull", bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/grpc")
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

// judge reports apps that have not done their part, and connections that ended for no reason.
func (x *tensors) judge(r *row, disturbed []interval) {
	x.mu.Lock() // a job that has not ended goes on
	defer x.mu.Unlock()
	for i, e := range x.ends {
		excused := false
		for _, d := range disturbed {
			excused = excused || !d.to.Before(e.from) && !d.from.After(e.to)
		}
		if !excused {
			x.s.wrongly("connections of tensors ended for no reason: %s", x.reason[i])
		}
	}
	if x.sums != steps || x.pulls != 2*steps {
		x.s.wrongly("%d of %d sums and %d of %d weights arrived", x.sums, steps, x.pulls, 2*steps)
	}
	for _, t := range x.trainings {
		if r.Rounds += t.round; t.round != rounds {
			x.s.wrongly("client %d: %d of %d rounds of a training were done", t.client, t.round, rounds)
		}
	}
	r.Sums, r.Lossy, r.Pulls = x.sums, x.lossy, x.pulls
}

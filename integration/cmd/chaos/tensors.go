//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/integration/require/freeport"
	"github.com/gradproxy/gradproxy/parser/flower/flowersim"
)

// tensors runs the apps in whose bytes the proxies find tensors: all-reduces of gradients by Gloo's protocol, which
// are coded with loss and error feedback; pulls of weights by several clients over gRPC, which travel as differences to
// the last weights and cross once for all clients; and federated trainings.
type tensors struct {
	s         *stage
	entries   [kindsOfApps]string // where clients connect
	targets   [kindsOfApps]net.Listener
	trainings [flowerClients + 1]*training

	mu     sync.Mutex
	sums   int // all-reduces that were compared
	lossy  int // sums, and results of trainings, whose values are not the exact ones
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

// newTensors opens the listeners of the apps' servers.
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

// keys returns the lines about the apps in the configuration files of both sites.
func (x *tensors) keys() string {
	return "jobs: [{name: chaos, networks: [127.0.0.0/16], ranks: 2, sums: gradients, aggregates: lossy}]\n" +
		"policy: [{job: chaos, role: gradient, codec: int8}, {job: chaos, role: aggregate, codec: int8}]\n"
}

// forwards returns the apps' entries in paris's list of forwards.
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

// run plays the apps until each of them has done its part. An app whose connection ends opens another one.
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

// ended notes that connections, which began at begun, have ended before their time.
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
	patience = 2 * time.Minute // with a loaded machine, before an app gives up
)

// judge reports apps that have not done their part, and connections that have ended for no reason.
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

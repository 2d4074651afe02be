//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/integration/require/freeport"
)

// A stage is two sites, the network between them, a job, and the faults that happen to them.
type stage struct {
	lab     *lab
	dir     string
	r       *rand.Rand
	relay   network
	crowded bool          // there is no room for all shared values
	notices time.Duration // the longest time in which a process notices that the network has ended its carriers
	sites   [2]*site
	job     *job
	tensors *tensors

	mu        sync.Mutex
	disturbed []interval        // when streams had to be reset
	moved     int               // processes that another one has taken over
	frames    map[string]uint64 // that came at either site, by kind
	wrong     []string
}

// crowds reports whether the sites of a seed have so little room for shared values that they evict some.
func crowds(seed uint64) bool { return seed%2 == 1 }

const (
	clientHost = "127.0.1.1"
	serverHost = "127.0.2.1"
)

func newStage(l *lab, seed uint64, rate int) (*stage, error) {
	dir := filepath.Join(l.dir, fmt.Sprint("seed", seed))
	s := &stage{lab: l, dir: dir, r: rand.New(rand.NewPCG(seed, 0)), crowded: crowds(seed), notices: time.Second, frames: map[string]uint64{}}
	for _, d := range []string{dir, filepath.Join(dir, "paris-state"), filepath.Join(dir, "tokyo-state")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
	}
	if err := s.certificates(); err != nil {
		return nil, err
	}
	network := "tcp"
	if l.carrier == "dtls" {
		network = "udp"
	}
	tunnel, err := freeport.Find(network, serverHost)
	if err != nil {
		return nil, err
	}
	entry, err := freeport.Find("tcp", clientHost)
	if err != nil {
		return nil, err
	}
	server, err := net.Listen("tcp", serverHost+":0")
	if err != nil {
		return nil, err
	}
	if l.carrier == "dtls" {
		s.notices = 20 * time.Second // the relay passes on no ICMP: 15 s of silence tell that no process listens, and a dial follows
		s.relay, err = newDatagrams(tunnel)
	} else {
		s.relay, err = newRelay(tunnel, rate)
	}
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	s.job = newJob(server, entry)
	if s.tensors, err = newTensors(s, seed); err != nil {
		return nil, err
	}
	for i, name := range []string{"paris", "tokyo"} {
		s.sites[i] = &site{s: s, name: name, binary: l.binary, config: filepath.Join(dir, name+".yaml")}
		if err := s.sites[i].configure(tunnel); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *stage) certificates() error {
	out, err := exec.Command(s.lab.binary, "cert", "--ca-dir", s.dir, "--domain", "chaos", "--force", "paris", "tokyo").CombinedOutput()
	if err != nil {
		return fmt.Errorf("certificates: %w\n%s", err, out)
	}
	return nil
}

// disturb begins an interval in which streams may be reset. The interval ends once end was called and the other process
// has noticed that the carriers of now are gone: the streams that it opens on these before are lost with them.
func (s *stage) disturb() (end func()) {
	from, wait := time.Now(), s.relay.outlast()
	return func() {
		wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.disturbed = append(s.disturbed, interval{from, time.Now().Add(s.notices)})
	}
}

func (s *stage) wrongly(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// connect starts some clients, which connect at different times.
func (s *stage) connect(work *sync.WaitGroup) {
	for n := range uint64(3 + s.r.IntN(6)) {
		halves := [2]half{newHalf(s.r, n, 400_000, 500*time.Millisecond), newHalf(s.r, n, 400_000, 500*time.Millisecond)}
		after := ms(s.r, 300)
		work.Go(func() {
			time.Sleep(after)
			if err := s.job.client(n, halves); err != nil {
				s.wrongly("%v", err)
			}
		})
	}
}

// judge checks all promises and fills in r.
func (s *stage) judge(r *row) {
	for _, e := range s.job.order {
		if f := e.fault(s.disturbed); f != "" {
			s.wrong = append(s.wrong, f)
		}
		if e.complete() {
			r.Complete++
		} else {
			r.Reset++
		}
		r.Bytes += len(e.sides[0].got) + len(e.sides[1].got)
	}
	s.tensors.judge(r, s.disturbed)
	r.Streams, r.Moved, r.Frames = len(s.job.order), s.moved, s.frames
	if r.Outcome = "ok"; len(s.wrong) > 0 {
		r.Outcome = strings.Join(s.wrong, "; ")
	}
}

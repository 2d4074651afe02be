//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gradproxy/gradproxy/integration/require/freeport"
)

// A lab is a folder with the program, and with that of an earlier commit.
type lab struct {
	dir      string
	binary   string
	previous string // "": none
	carrier  string // of the tunnel: tls or dtls
	tmpfs    bool   // file systems can be mounted
	clocks   bool   // the clocks of processes can jump
}

func newLab(ctx context.Context, dir, binary, previous, carrier string) (*lab, error) {
	l := &lab{dir: dir, binary: binary, carrier: carrier, tmpfs: os.Geteuid() == 0}
	if binary == "" {
		l.binary = filepath.Join(dir, "gradproxy")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", l.binary, "./cmd/gradproxy").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build, from the root of the checkout: %w\n%s", err, out)
		}
	}
	if previous != "" {
		l.previous = filepath.Join(dir, "previous")
		const build = `set -e; mkdir "$1"; git archive "$0" | tar -x -C "$1"; cd "$1"; go build -o "$2" ./cmd/gradproxy`
		if out, err := exec.CommandContext(ctx, "sh", "-c", build, previous, filepath.Join(dir, "tree"), l.previous).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build of commit %s: %w\n%s", previous, err, out)
		}
	}
	return l, l.tryClock()
}

// tryClock finds out whether the clocks of processes can jump here.
func (l *lab) tryClock() error {
	cmd := exec.Command(l.binary, "version")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c, err := startWithClock(cmd)
	if err != nil {
		return nil // the processes say so, if it is not the clock
	}
	c.close()
	l.clocks = true
	return cmd.Wait()
}

// atOnce is how many seeds are played at the same time: they wait more than they work, with DTLS most of all.
var atOnce = map[string]int{"tls": 3, "dtls": 8}

func runReal(ctx context.Context, dir, binary, previous, carrier string, first uint64, seeds int) error {
	l, err := newLab(ctx, dir, binary, previous, carrier)
	if err != nil {
		return err
	}
	bad := 0
	var came census
	err = l.playAll(ctx, first, seeds, func(r row) error {
		came.add(r)
		return r.print(&bad)
	})
	return errors.Join(err, verdict(bad, seeds), came.verdict())
}

// playAll plays seeds and calls seen for the row of each, one at a time. It returns the first error that is no outcome
// of a seed.
func (l *lab) playAll(ctx context.Context, first uint64, seeds int, seen func(row) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce[l.carrier])
	var one sync.Mutex
	for seed := first; seed < first+uint64(seeds); seed++ {
		group.Go(func() error {
			r, err := l.play(ctx, seed)
			if err != nil {
				return fmt.Errorf("seed %d: %w", seed, err)
			}
			one.Lock()
			defer one.Unlock()
			return seen(r)
		})
	}
	return group.Wait()
}

// A stage is two sites, the network between them, a job, and the faults that happen to them.
type stage struct {
	lab     *lab
	dir     string
	r       *rand.Rand
	relay   network
	crowded bool          // there is no room for all shared values
	notices time.Duration // that a process takes at most to miss carriers once the network has ended them
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

// A site is one process at a time.
type site struct {
	s            *stage
	name, config string
	binary       string
	dying        sync.Mutex // held from a death to the next start, and while signals are sent
	process
}

// A process is one of the program.
type process struct {
	cmd   *exec.Cmd
	log   *bytes.Buffer
	clock *wallClock // nil: it cannot jump
	ended chan error // has the result of the process once it has ended
}

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

// configure writes a site's file. tunnel is where tokyo's tunnel listens.
func (x *site) configure(tunnel string) error {
	s := x.s
	text := fmt.Sprintf("site: %[1]s\nadmin: \"unix:%[2]s/%[1]s.sock\"\ndrain: 1s\nstate: {dir: %[2]s/%[1]s-state}\n"+
		"upgrade: {socket: %[2]s/%[1]s.upgrade, within: 15s}\n", x.name, s.dir) + s.tensors.keys()
	if s.crowded {
		text += "references: 1MiB\n"
	}
	if x.name == "paris" {
		text += fmt.Sprintf("tunnel: {listen: off, resume: 30s, carrier: "+s.lab.carrier+"}\npeers: [{name: tokyo, dial: %q, id: \"spiffe://chaos/tokyo\", networks: [127.0.2.0/24]}]\n"+
			"forward: [{listen: %q, target: %q}%s]\n", s.relay.address(), s.job.entry, s.job.server.Addr(), s.tensors.forwards())
	} else {
		text += fmt.Sprintf("tunnel: {listen: %q, resume: 30s, carrier: "+s.lab.carrier+"}\npeers: [{name: paris, id: \"spiffe://chaos/paris\", networks: [127.0.1.0/24], "+
			"may_dial: [\"127.0.2.0/24:1024-65535\"]}]\n", tunnel)
	}
	return os.WriteFile(x.config, []byte(text), 0o600)
}

func (x *site) start() error {
	p, err := x.launch(x.binary)
	if err != nil {
		return err
	}
	x.process = p
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(5 * time.Millisecond) { // until it listens, signals would end it
		if c, err := net.Dial("unix", filepath.Join(x.s.dir, x.name+".sock")); err == nil {
			return c.Close()
		}
		select {
		case err := <-x.ended:
			x.ended <- err
			return fmt.Errorf("%s ended at its start: %w: %s", x.name, err, x.last())
		default:
		}
	}
	return fmt.Errorf("%s has not started in a minute", x.name)
}

// launch begins a process of a binary.
func (x *site) launch(binary string) (p process, err error) {
	p = process{cmd: exec.Command(binary, "run", "-c", x.config), log: new(bytes.Buffer), ended: make(chan error, 1)}
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if x.s.lab.clocks {
		p.clock, err = startWithClock(p.cmd)
	} else {
		err = p.cmd.Start()
	}
	if err != nil {
		return p, err
	}
	go func() {
		err := p.cmd.Wait()
		if p.clock != nil {
			p.clock.close()
		}
		p.ended <- err
	}()
	return p, nil
}

// handOver has a process of a binary take the place of the one that runs, which nobody must notice. A process that
// could not take over, since connections did not come to rest while other faults went on, ends by itself, and the old
// one must carry on.
func (x *site) handOver(binary string) {
	x.dying.Lock()
	defer x.dying.Unlock()
	before := x.metrics()
	p, err := x.launch(binary)
	if err != nil {
		x.s.wrongly("%v", err)
		return
	}
	select {
	case err := <-x.ended:
		if err != nil {
			x.s.wrongly("%s ended with %v while another process was to take over: %s", x.name, err, x.last())
		}
		x.binary, x.process = binary, p
		x.count(before)
		x.s.mu.Lock()
		x.s.moved++
		x.s.mu.Unlock()
	case err := <-p.ended:
		if p.cmd.ProcessState.ExitCode() != 1 {
			x.s.wrongly("the process that was to take %s over ended with %v", x.name, err)
		}
	case <-time.After(time.Minute):
		p.cmd.Process.Kill()
		<-p.ended
		x.s.wrongly("%s was not taken over in a minute, and no process says why", x.name)
	}
}

// signal sends a signal to the process that runs now.
func (x *site) signal(sig os.Signal) {
	x.dying.Lock()
	defer x.dying.Unlock()
	x.cmd.Process.Signal(sig)
}

// stop has the process end in order, and reports one that ended before, or does not.
func (x *site) stop() {
	x.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-x.ended:
		if err != nil {
			x.s.wrongly("%s ended with %v: %s", x.name, err, x.last())
		}
	case <-time.After(time.Minute):
		x.cmd.Process.Kill()
		<-x.ended
		x.s.wrongly("%s does not end: %s", x.name, x.last())
	}
}

// last returns the last line of the log. The process must have ended.
func (x *site) last() string {
	lines := strings.Split(strings.TrimSpace(x.log.String()), "\n")
	return lines[len(lines)-1]
}

// replace ends the process by sig and starts another one after a pause.
func (x *site) replace(sig syscall.Signal, pause time.Duration) {
	x.dying.Lock()
	defer x.dying.Unlock()
	defer x.s.disturb()()
	x.count(x.metrics())
	if sig == syscall.SIGKILL {
		x.cmd.Process.Kill()
		<-x.ended
	} else {
		x.stop()
	}
	time.Sleep(pause)
	if err := x.start(); err != nil {
		x.s.wrongly("%v", err)
	}
}

// disturb notes that streams have to be reset from now on, until end is called and the other process knows of the end
// of the carriers of now: streams that it opens on them before are lost with them.
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

// A realFault happens to two processes. It returns once it is over.
type realFault struct {
	name string
	can  func(l *lab) bool // nil: always
	do   func(s *stage, r *rand.Rand)
}

func ms(r *rand.Rand, limit int) time.Duration {
	return time.Duration(r.IntN(limit)) * time.Millisecond
}

var realFaults = []realFault{
	{"kill", nil, func(s *stage, r *rand.Rand) { s.sites[r.IntN(2)].replace(syscall.SIGKILL, ms(r, 200)) }},
	{"restart", nil, func(s *stage, r *rand.Rand) { s.sites[r.IntN(2)].replace(syscall.SIGTERM, ms(r, 200)) }},
	{"stop", nil, func(s *stage, r *rand.Rand) {
		x := s.sites[r.IntN(2)]
		x.dying.Lock()
		defer x.dying.Unlock()
		x.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(ms(r, 400))
		x.cmd.Process.Signal(syscall.SIGCONT)
	}},
	{"black hole", nil, func(s *stage, r *rand.Rand) { s.relay.cut(ms(r, 600), 0, 1) }},
	{"black hole one way", nil, func(s *stage, r *rand.Rand) { s.relay.cut(ms(r, 600), r.IntN(2)) }},
	{"reset carriers", nil, func(s *stage, r *rand.Rand) {
		for range 1 + r.IntN(4) {
			s.relay.some(r, func(p path) { p.reset() })
			time.Sleep(ms(r, 100))
		}
	}},
	{"bit flips", nil, tampersWith("bit flips")},
	{"duplicates", nil, tampersWith("duplicates")},
	{"reordering", nil, tampersWith("reordering")},
	{"omissions", nil, tampersWith("omissions")},
	{"address", nil, func(s *stage, r *rand.Rand) {
		if err := s.relay.move(); err != nil {
			s.wrongly("%v", err)
		}
		if err := s.sites[0].configure(""); err != nil {
			s.wrongly("%v", err)
		}
		s.sites[0].signal(syscall.SIGHUP)
	}},
	{"certificates", nil, func(s *stage, r *rand.Rand) {
		if err := s.certificates(); err != nil {
			s.wrongly("%v", err)
		}
		s.sites[r.IntN(2)].signal(syscall.SIGHUP)
	}},
	{"reload", nil, func(s *stage, r *rand.Rand) {
		for range 1 + r.IntN(8) {
			s.sites[r.IntN(2)].signal(syscall.SIGHUP)
			time.Sleep(ms(r, 80))
		}
	}},
	{"full disk", func(l *lab) bool { return l.tmpfs }, func(s *stage, r *rand.Rand) {
		x := s.sites[r.IntN(2)]
		state := filepath.Join(s.dir, x.name+"-state")
		if err := syscall.Mount("chaos", state, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
			s.wrongly("mount: %v", err)
			return
		}
		os.WriteFile(filepath.Join(state, "ballast"), make([]byte, 1<<20), 0o600) // as much as there is room
		x.replace(syscall.SIGTERM, 0)
		if err := syscall.Unmount(state, syscall.MNT_DETACH); err != nil {
			s.wrongly("unmount: %v", err)
		}
	}},
	{"hand-over", nil, func(s *stage, r *rand.Rand) {
		for range 1 + r.IntN(2) {
			binary := s.lab.binary
			if s.lab.previous != "" && r.IntN(2) == 0 {
				binary = s.lab.previous
			}
			s.sites[r.IntN(2)].handOver(binary)
			time.Sleep(ms(r, 200))
		}
	}},
	{"upgrade", func(l *lab) bool { return l.previous != "" }, func(s *stage, r *rand.Rand) {
		x := s.sites[r.IntN(2)]
		x.dying.Lock()
		if x.binary = s.lab.previous; r.IntN(2) == 0 {
			x.binary = s.lab.binary
		}
		x.dying.Unlock()
		x.replace(syscall.SIGTERM, 0)
	}},
	{"mtu", nil, func(s *stage, r *rand.Rand) {
		s.relay.narrow(600 + r.IntN(800))
		time.Sleep(ms(r, 600))
		s.relay.narrow(0)
	}},
	{"clock", func(l *lab) bool { return l.clocks }, func(s *stage, r *rand.Rand) {
		some := s.sites[:]
		if i := r.IntN(3); i < len(s.sites) {
			some = s.sites[i : i+1]
		}
		by := jumps[r.IntN(len(jumps))]
		for _, x := range some {
			x.jump(by)
		}
		time.Sleep(ms(r, 600))
		for _, x := range some {
			x.jump(0)
		}
	}},
}

// jumps are how far a wall clock jumps: while it is off by years no certificate is valid.
var jumps = []time.Duration{time.Hour, -time.Hour, 300 * 24 * time.Hour, 20 * 365 * 24 * time.Hour, -20 * 365 * 24 * time.Hour}

// jump has the wall clock of the process that runs now be d from the host's.
func (x *site) jump(d time.Duration) {
	x.dying.Lock()
	defer x.dying.Unlock()
	if err := x.clock.jump(d); err != nil {
		x.s.wrongly("the clock of %s: %v", x.name, err)
	}
}

// tampersWith returns a fault that changes bytes of carriers.
func tampersWith(how string) func(s *stage, r *rand.Rand) {
	return func(s *stage, r *rand.Rand) {
		for range 1 + r.IntN(4) {
			s.relay.some(r, func(p path) { p.tamper(r.IntN(2), how) })
			time.Sleep(ms(r, 150))
		}
	}
}

// connect has clients connect, a little after each other.
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

// play plays one seed.
func (l *lab) play(ctx context.Context, seed uint64) (row, error) {
	begin := time.Now()
	s, err := newStage(l, seed, 8<<20)
	if err != nil {
		return row{}, err
	}
	result := row{Seed: seed, Real: true, Carrier: l.carrier}
	defer os.RemoveAll(s.dir)
	for _, x := range s.sites {
		if l.previous != "" && s.r.IntN(4) == 0 {
			x.binary = l.previous // a mixed pair
		}
		if err := x.start(); err != nil {
			return row{}, err
		}
	}
	var work sync.WaitGroup
	s.connect(&work)
	work.Go(func() { s.tensors.run(seed) })
	for range 1 + s.r.IntN(3) {
		f := realFaults[s.r.IntN(len(realFaults))]
		for f.can != nil && !f.can(l) {
			f = realFaults[s.r.IntN(len(realFaults))]
		}
		result.Faults = append(result.Faults, f.name)
		after, r := 100*time.Millisecond+ms(s.r, 500), rand.New(rand.NewPCG(s.r.Uint64(), 1))
		work.Go(func() {
			time.Sleep(after)
			f.do(s, r)
		})
	}
	done := make(chan struct{})
	go func() { work.Wait(); s.job.apps.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(2 * time.Minute): // an outage lasts less than a second: a minute is the patience with a loaded machine
		s.wrongly("the job has not ended")
	}
	result.Shared = s.sites[0].shared() + s.sites[1].shared()
	result.Replayed = s.sites[0].replayed() + s.sites[1].replayed()
	for _, x := range s.sites {
		x.count(x.metrics())
		x.stop()
	}
	s.relay.close()
	s.job.server.Close()
	for _, l := range s.tensors.targets {
		l.Close()
	}
	if ctx.Err() != nil {
		return row{}, ctx.Err()
	}
	s.judge(&result)
	result.Seconds = time.Since(begin).Seconds()
	return result, nil
}

// judge checks all promises, and fills in the row.
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

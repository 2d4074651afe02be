//go:build linux

package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// A realFault is a fault that happens to the two processes or to the network between them. do returns once the fault is
// over.
type realFault struct {
	name string
	can  func(l *lab) bool // whether the fault can happen in l; nil: it always can
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

// jumps are the distances by which a wall clock jumps. While the clock is off by years no certificate is valid.
var jumps = []time.Duration{time.Hour, -time.Hour, 300 * 24 * time.Hour, 20 * 365 * 24 * time.Hour, -20 * 365 * 24 * time.Hour}

// tampersWith returns a fault that changes bytes of carriers.
func tampersWith(how string) func(s *stage, r *rand.Rand) {
	return func(s *stage, r *rand.Rand) {
		for range 1 + r.IntN(4) {
			s.relay.some(r, func(p path) { p.tamper(r.IntN(2), how) })
			time.Sleep(ms(r, 150))
		}
	}
}

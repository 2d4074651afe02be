//go:build amd64 || arm64

package probe

import "sync/atomic"

// A Process is one whose collectives the programs note. Methods are safe for concurrent use.
type Process struct {
	objects  *probeObjects
	recent   *Recent
	pid      int
	born     string // its start time, which tells it from a later process with its number
	random   string // drawn anew whenever it executes a program: see randomOf
	name     string
	epoch    uint32 // by which the programs know it
	place    uint32 // of its newest calls
	identity uint64 // drawn at random
	library  *library
	ended    atomic.Pointer[string]
}

// Pid returns the number of the process.
func (p *Process) Pid() int { return p.pid }

// Identity returns a number that no other process has, and that the process does not have again if it is found once
// more: the buckets are others then.
func (p *Process) Identity() uint64 { return p.identity }

// Place says where a [Recent] has the process's newest calls.
func (p *Process) Place() Place { return Place{Epoch: p.epoch, Index: p.place} }

// Name returns the name of the process's program.
func (p *Process) Name() string { return p.name }

// End ends the proof for as long as the process lives. It reports whether this is the first reason.
func (p *Process) End(reason string) bool { return p.ended.CompareAndSwap(nil, &reason) }

// Ended returns why the proof has ended; "": it has not.
func (p *Process) Ended() string {
	if reason := p.ended.Load(); reason != nil {
		return *reason
	}
	return ""
}

// lives reports whether the process still executes the program in which it was found.
func (p *Process) lives() bool {
	s, err := statOf(p.pid)
	if err != nil || s.born != p.born {
		return false
	}
	random := randomOf(p.pid)
	return random == p.random || random == "" || p.random == "" // on a busy machine a look may miss them
}

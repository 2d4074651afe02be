//go:build amd64 || arm64

package probe

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Calls appends to dst the calls that have been given this tag: for each process group that may have given it, one in
// each layout. It appends nothing once the proof has ended.
func (p *Process) Calls(dst []Call, tag uint32) []Call {
	if p.ended.Load() != nil {
		return dst
	}
	all, err := p.calls(dst, tag)
	if err != nil {
		p.End(err.Error())
		return dst
	}
	return all
}

func (p *Process) calls(dst []Call, tag uint32) ([]Call, error) {
	state, err := p.state()
	if err != nil {
		return dst, err
	}
	recent, isRecent := p.recent.read(p.Place(), tag) // before the map is, which has a call that makes this one doubtful
	key := probeCallKey{Epoch: p.epoch, Tag: tag}
	var call probeCall
	for i := range state.Groups {
		g := &state.Groups[i]
		if g.Object <= changing {
			continue
		}
		key.Generation = uint32(g.Expected)
		err := p.objects.Calls.Lookup(key, &call)
		if errors.Is(err, ebpf.ErrKeyNotExist) && isRecent && recent.Generation == key.Generation {
			call, err = recent.Call, nil
		}
		switch {
		case err == nil:
			from := len(dst)
			if dst = state.group(i).appendCall(dst, &call); unknownRelease(dst[from:], &call) {
				return dst, errRelease
			}
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return dst, fmt.Errorf("probe: %w", err)
		case int32(tag-g.First) >= 0 && p.given(g.Object+uint64(state.Counter), tag):
			dst = state.group(i).appendCall(dst, &probeCall{})
		}
	}
	return dst, nil
}

// errRelease says that no known layout is the right one.
var errRelease = errors.New("probe: DistributedDataParallel sums a bucket whose size, type and operator are nowhere that a known release of PyTorch keeps them: this release is not known")

// changing is CHANGING of probe.c.
const changing = 1

// given reports whether the group whose counter has this address may have given a tag already: then some call has it
// that was not noted.
func (p *Process) given(counter uint64, tag uint32) bool {
	var next [4]byte
	return !readMemory(p.pid, counter, next[:]) || int32(binary.NativeEndian.Uint32(next[:])-tag) > 0
}

// errForgotten says that a process is not followed any more.
var errForgotten = errors.New("probe: the process has ended, or there are too many")

func (p *Process) state() (s probeProcess, err error) {
	err = p.objects.Processes.Lookup(uint32(p.pid), &s)
	if errors.Is(err, ebpf.ErrKeyNotExist) || err == nil && s.Epoch != p.epoch {
		err = errForgotten
	}
	return s, err
}

// Counts counts the process's calls.
func (p *Process) Counts() (Counts, error) {
	s, err := p.state()
	return Counts{Reduces: s.Reduces, Buckets: s.Buckets, ReducerBuckets: s.ReducerBuckets, Others: s.Others}, err
}

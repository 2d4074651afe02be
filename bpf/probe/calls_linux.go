//go:build amd64 || arm64

package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// Calls appends to dst the calls that have been given this tag: for each process group that may have given it, one in each
// layout. It appends nothing once the proof has ended.
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
		key.Generation = uint32(g.Noted >> 32)
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

// unknownRelease reports whether a call sums a bucket whose size is in no layout. layouts are the call as each of them shows it.
func unknownRelease(layouts []Call, c *probeCall) bool {
	return !slices.ContainsFunc(layouts, func(c Call) bool { return !c.Bucket || c.Elements != NoElements }) && !isEmpty(c)
}

// isEmpty reports whether a layout shows a tensor without elements, as that of a bucket whose parameters have none. Such a sum sends nothing. Where one layout keeps the
// number of elements another one may have the offset in the memory, which is zero, so that the rest has to be a bucket's too.
func isEmpty(c *probeCall) bool {
	for _, s := range c.Sums {
		if s.Elements == 0 && s.Storage != 0 && s.Op <= OpAverage && slices.Contains(floatTypes[:], s.Type) {
			return true
		}
	}
	return false
}

// floatTypes are c10::ScalarType of float16, float32, float64 and bfloat16.
var floatTypes = [...]uint8{5, 6, 7, 15}

// changing is CHANGING of probe.c.
const changing = 1

// given reports whether the group whose counter has this address may have given a tag already: then some call has it that was not noted.
func (p *Process) given(counter uint64, tag uint32) bool {
	var next [4]byte
	return !readMemory(p.pid, counter, next[:]) || int32(binary.NativeEndian.Uint32(next[:])-tag) > 0
}

// wordsOfCounts are the words of reference counts, less one, with which objects begin in each layout.
var wordsOfCounts = [len(probeCall{}.Sums)]int{0, 1, 0}

// A group is the part of a process group's state that its calls tell.
type group struct {
	generation, size uint32
	members          [2]uint64
}

func (p *probeProcess) group(i int) group {
	g := &p.Groups[i]
	return group{uint32(g.Noted >> 32), g.Size, g.Members}
}

// member returns the process's rank in the group; the zero Member if the words that should hold it do not.
func (g group) member(layout int) Member {
	v := g.members[wordsOfCounts[layout]]
	m := Member{int(uint32(v)), int(v >> 32)}
	if m.Rank >= m.Ranks || m.Ranks > maxRanks || g.size != 0 && int(g.size) != m.Ranks {
		return Member{}
	}
	return m
}

// maxRanks bounds the ranks of a group.
const maxRanks = 1 << 16

// appendCall appends a call of the group in each layout.
func (g group) appendCall(dst []Call, call *probeCall) []Call {
	for layout, sum := range call.Sums {
		c := Call{Source: uint64(g.generation)*uint64(len(call.Sums)) + uint64(layout), Ranks: int(g.size)}
		if call.Tensors == 1 {
			c.Freed, c.Member = call.Freed, g.member(layout)
			c.Elements, c.Type, c.Op, c.Storage, c.Bucket = sum.Elements, sum.Type, sum.Op, sum.Storage, call.Bucket != 0
			if c.Elements == 0 || c.Elements > NoElements || c.Op > maxOp || c.Type > maxType {
				c.Elements = NoElements
			}
		}
		dst = append(dst, c)
	}
	return dst
}

// The highest numbers of c10d::ReduceOp::RedOpType and c10::ScalarType, rounded up: higher ones are in no layout that is right.
const (
	maxOp   = 15
	maxType = 63
)

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

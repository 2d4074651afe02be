//go:build amd64 || arm64

package probe

import (
	"errors"
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The newest calls of a process with one group are told without a question, as they are then, and none that may not be
// the whole answer.
func TestRecentCalls(t *testing.T) {
	t.Parallel()
	p := load(t)
	j := built(t, releases[0]).start(t)
	other := built(t, releases[0]).start(t)
	rank, at := j.find(p), other.find(p).Place()
	check := func(why string, tag int, want bool) {
		t.Helper()
		all := j.calls(tag) // which compares them
		_, known := j.recent.Calls(nil, rank.Place(), uint32(tag))
		if known != want {
			t.Errorf("%s, tag %d: known %v, want %v; it is %+v", why, tag, known, want, all)
		}
	}
	reduce := func(group int) int { return j.do("reduce %d 1 0", group) }
	j.do("new 0 2 1")
	check("not given", 0, false)
	check("a sum", reduce(0), true)
	j.do("announce 1")
	check("a bucket", reduce(0), true)
	check("a reduce-scatter", j.do("scatter 0"), true)
	check("no all-reduce", j.do("broadcast 0"), false)
	check("before it", 2, true)
	for _, stranger := range []Place{at, {rank.epoch, at.Index}, {at.Epoch, rank.place}, {rank.epoch, 1 << 20}} {
		if all, known := j.recent.Calls(nil, stranger, 1); known {
			t.Errorf("another process's calls: %+v", all)
		}
	}
	j.do("new 1 2")
	check("another group is there", 1, false)
	check("of two groups", reduce(0), false)
	check("of the other group", reduce(1), false)
	j.do("end 1")
	check("before the other group's end", 4, false)
	check("one group again", reduce(0), true)
	j.do("fail 0 1")
	check("before a failed call", 5, true)
	tag := reduce(0)
	check("a tag that two calls expected", tag, false)
	check("before the doubt", 5, false)
	check("a sum after it", reduce(0), true)
	j.do("bench 0 1 %d 1", recentCalls)
	check("long ago", tag+1, false)
	if c := j.call(tag + 1); c.Elements != 0 {
		t.Errorf("a call that later ones have taken the place of: %+v", c)
	}
	tag = reduce(0)
	check("new", tag, true)
	j.do("connect 0 3")
	check("before the group was reconfigured", tag, false)
	check("reconfigured", reduce(0), true)
	j.do("end 0")
	check("of a group that has ended", 0, false)
}

// A process's calls from the time when it had one group are still told once it has several groups: an answer to a
// question has them, as calls of their own group.
func TestCallsBeforeAnotherGroup(t *testing.T) {
	t.Parallel()
	p := load(t)
	j := built(t, releases[0]).start(t)
	j.find(p)
	j.do("new 0 2 1")
	for range 2 {
		j.do("reduce 0 1 0")
	}
	j.do("new 1 2 1")
	for tag := range 2 {
		if c := j.call(tag); c.Elements != 1001 || c.Member != (Member{1, 2}) {
			t.Errorf("tag %d: call %+v", tag, c)
		}
	}
	j.do("reduce 1 2 0")
	if all := j.calls(0); len(all) != 2*int(layouts) || all[0].Elements != 1001 || all[layouts].Elements != 1002 {
		t.Errorf("tag 0 of two groups: %+v", all)
	}
	if c := j.call(1); c.Elements != 1001 {
		t.Errorf("tag 1, which one of two groups has given: call %+v", c)
	}
}

// What a call's version shows to be written, and a bucket of a release that is not known, are not told.
func TestRecentCallsInDoubt(t *testing.T) {
	at := Place{Epoch: 7, Index: 3}
	const tag = 9
	from := firstWord(at, tag)
	for name, x := range map[string]struct {
		change func(*probeRecentCall)
		want   bool
	}{
		"whole":           {func(*probeRecentCall) {}, true},
		"being written":   {func(c *probeRecentCall) { c.Version++ }, false},
		"never written":   {func(c *probeRecentCall) { c.Version = 0 }, false},
		"another tag":     {func(c *probeRecentCall) { c.Tag++ }, false},
		"other groups":    {func(c *probeRecentCall) { c.Changes++ }, false},
		"unknown release": {func(c *probeRecentCall) { c.Call.Bucket = 1 }, false},
	} {
		words := make([]uint64, recentSize/8)
		c := probeRecentCall{Version: 2, Epoch: 7, Generation: 1, Tag: tag, Size: 2, Call: probeCall{Tensors: 1}}
		for i := range c.Call.Sums {
			c.Call.Sums[i].Elements = NoElements
		}
		x.change(&c)
		copy(words[from:], wordsOf(&c))
		r := &Recent{bytesOf(words)}
		if all, known := r.Calls(nil, at, tag); known != x.want || known != (len(all) == int(layouts)) {
			t.Errorf("%s: known %v, want %v: %+v", name, known, x.want, all)
		}
	}
}

// Calls are read whole while a process makes them.
func TestRecentCallsWhileTheyAreMade(t *testing.T) {
	t.Parallel()
	p := load(t)
	j := built(t, releases[0]).start(t)
	rank := j.find(p)
	j.do("new 0 2 1")
	first := j.calls(j.do("reduce 0 1 0"))
	stop := make(chan struct{})
	told := make(chan int)
	go func() {
		n := 0
		for tag := uint32(1); ; {
			all, known := j.recent.Calls(nil, rank.Place(), tag)
			switch {
			case known:
				for i := range all {
					all[i].Bucket = false
				}
				if n++; !slices.Equal(all, first) {
					t.Errorf("tag %d: calls %+v, want %+v", tag, all, first)
				}
				tag++
			default:
				select {
				case <-stop:
					told <- n
					return
				default:
				}
			}
		}
	}()
	const calls = 20_000
	j.do("bench 0 1 %d 1", calls)
	close(stop)
	if n := <-told; n == 0 {
		t.Error("no call was told")
	}
}

// Nobody but the programs can write to the newest calls.
func TestRecentCallsAreForReading(t *testing.T) {
	t.Parallel()
	p := load(t)
	if _, err := unix.Mmap(p.Recent(), 0, recentSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, os.ErrPermission) {
		t.Errorf("mapped for writing: %v", err)
	}
	if err := unix.Mprotect(recentOf(t, p).memory, unix.PROT_READ|unix.PROT_WRITE); !errors.Is(err, os.ErrPermission) {
		t.Errorf("made writable: %v", err)
	}
	if err := p.objects.Recent.Put(uint32(0), &probeRecent{}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("written by bpf(2): %v", err)
	}
}

// BenchmarkRecent reads the calls of a tag.
func BenchmarkRecent(b *testing.B) {
	p := load(b)
	j := built(b, releases[0]).start(b)
	rank := j.find(p)
	j.do("new 0 2 1")
	tag := uint32(j.do("reduce 0 1 0"))
	var calls []Call
	for b.Loop() {
		var known bool
		if calls, known = j.recent.Calls(calls[:0], rank.Place(), tag); !known {
			b.Fatal(calls)
		}
	}
}

func wordsOf(c *probeRecentCall) []uint64 { return (*[recentWords]uint64)(unsafe.Pointer(c))[:] }

func bytesOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
}

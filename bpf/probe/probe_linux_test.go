//go:build amd64 || arm64

package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/require/netns"
)

func address(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

func load(t testing.TB) *Probes {
	t.Helper()
	return loadBy(t, func() (*Probes, error) { return Load() })
}

func loadBy(t testing.TB, load func() (*Probes, error)) *Probes {
	t.Helper()
	require.Root(t)
	_, err := os.Stat("/sys/bus/event_source/devices/uprobe/type")
	require.Named(t, "uprobes", err == nil, "use a kernel with CONFIG_UPROBE_EVENTS")
	p, err := load()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Buckets are told from all other collectives, in each release's objects, with the memory, size, type and operator of
// each sum.
func TestCallsAreTold(t *testing.T) {
	t.Parallel()
	p := load(t)
	for _, r := range releases {
		t.Run(r.name, func(t *testing.T) {
			j := built(t, r).start(t)
			j.do("new 0 4") // not seen
			rank := j.find(p)
			check := func(why string, tag int, want Call) {
				t.Helper()
				got := j.call(tag)
				got.Source, got.Freed, got.Member = 0, 0, Member{}
				if got != want {
					t.Errorf("%s: call %+v, want %+v", why, got, want)
				}
			}
			sum := func(tensor int) Call {
				return Call{Elements: uint64(1000 + tensor), Type: 6, Storage: uint64(0x7f0000000000 + tensor*0x1000)}
			}
			bucket := func(tensor int) Call { c := sum(tensor); c.Bucket = true; return c }

			check("somebody's sum", j.do("reduce 0 1 0"), sum(1))
			j.do("announce 1")
			check("a bucket", j.do("reduce 0 1 0"), bucket(1))
			check("the bucket's memory once more", j.do("reduce 0 1 0"), sum(1))
			j.do("announce 1")
			check("a hook's memory", j.do("reduce 0 2 0"), sum(2))
			check("the bucket after its hook", j.do("reduce 0 1 0"), sum(1))
			j.do("announce 1")
			check("another thread", j.do("thread 0 1"), sum(1))
			check("on the thread of the reducer", j.do("reduce 0 1 0"), bucket(1))
			j.do("announce 1")
			check("a collective in between", j.do("scatter 0"), Call{})
			c := bucket(1)
			c.Op = 4
			check("MAX of a bucket", j.do("reduce 0 1 4"), c)
			check("a sum whose operator cannot be read", j.do("reduce 0 1 -1"), Call{})
			j.do("announce 1")
			j.do("free")
			check("where a bucket of an ended reducer lay", j.do("reduce 0 1 0"), sum(1))
			j.do("announce 1")
			j.do("renew")
			check("where an old bucket lay", j.do("reduce 0 1 0"), sum(1))
			check("a reduce-scatter", j.do("scatter 0"), Call{})
			j.do("tensor 3 %d 1003 15", 0x7f0000001000) // the memory of tensor 1, but not all of it
			j.do("announce 1")
			check("a part of the bucket", j.do("reduce 0 3 0"), Call{Elements: 1003, Type: 15, Storage: 0x7f0000001000})

			j.do("new 1 3")
			if tag := j.do("reduce 1 5 0"); tag != 0 {
				t.Fatalf("the first tag of a group is %d", tag)
			}
			all := j.calls(0) // of both groups, the older one first
			if n := int(layouts); len(all) != 2*n || all[r.layout].Elements != 1001 || all[n+r.layout].Elements != 1005 || all[n+r.layout].Ranks != 3 {
				t.Errorf("tag 0 of two groups: calls %+v", all)
			}
			if all := j.calls(1000); len(all) != 0 {
				t.Errorf("a tag that nobody has given: calls %+v", all)
			}
			counts, err := rank.Counts()
			if want := (Counts{Reduces: 13, Buckets: 3, ReducerBuckets: 7, Others: 2}); err != nil || counts != want {
				t.Errorf("counts %+v (%v), want %+v", counts, err, want)
			}
		})
	}
}

// The calls of a release that keeps the parts of its objects elsewhere prove nothing, and the end of the proof says
// why.
func TestUnknownRelease(t *testing.T) {
	t.Parallel()
	p := load(t)
	j := build(t, strangeRelease).start(t)
	rank := j.find(p)
	if all := j.calls(j.do("reduce 0 1 0")); len(all) == 0 || rank.Ended() != "" {
		t.Errorf("somebody's sum: calls %+v, ended by %q", all, rank.Ended())
	}
	j.do("announce 1")
	if all := j.calls(j.do("reduce 0 1 0")); len(all) != 0 || !strings.Contains(rank.Ended(), "this release is not known") {
		t.Errorf("a bucket: calls %+v, ended by %q", all, rank.Ended())
	}
}

// A bucket without elements, which sends nothing, ends no proof, in whatever layout it is read.
func TestEmptyBucket(t *testing.T) {
	t.Parallel()
	p := load(t)
	for _, r := range releases {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			j := built(t, r).start(t)
			rank := j.find(p)
			j.do("tensor 7 %d 0 7", 0x7f0000009000) // float64
			j.do("announce 7")
			if c := j.call(j.do("reduce 0 7 0")); !c.Bucket || c.Elements != NoElements {
				t.Errorf("the empty bucket: %+v", c)
			}
			j.do("announce 1")
			if c := j.call(j.do("reduce 0 1 0")); !c.Bucket || c.Elements != 1001 || rank.Ended() != "" {
				t.Errorf("the bucket after it: %+v, ended by %q", c, rank.Ended())
			}
		})
	}
}

// A group that is reconfigured counts its tags anew, among other members: it is as a new group.
func TestReconfiguredGroup(t *testing.T) {
	t.Parallel()
	p := load(t)
	r := releases[0]
	j := built(t, r).start(t)
	j.find(p)
	call := func() Call {
		t.Helper()
		if tag := j.do("reduce 0 1 0"); tag != 0 {
			t.Fatalf("the first tag is %d", tag)
		}
		all := j.calls(0)
		if len(all) != int(layouts) {
			t.Fatalf("calls of one group: %+v", all)
		}
		return all[r.layout]
	}
	j.do("new 0 2 1")
	was := call()
	j.do("connect 0 3 2")
	is := call()
	if was.Elements != 1001 || was.Ranks != 2 || was.Member != (Member{1, 2}) {
		t.Errorf("before: call %+v", was)
	}
	if is.Elements != 1001 || is.Ranks != 3 || is.Member != (Member{2, 3}) || is.Source == was.Source {
		t.Errorf("reconfigured: call %+v, before %+v", is, was)
	}
}

// A call has the number of times that buckets were freed before it, and the process's place in the group: as the
// programs saw the group made, or as the group's object shows it where they did not.
func TestBucketsAndMembers(t *testing.T) {
	t.Parallel()
	p := load(t)
	for _, r := range releases {
		t.Run(r.name, func(t *testing.T) {
			j := built(t, r).start(t)
			j.do("new 0 4 2") // not seen
			j.find(p)
			check := func(why string, tag int, freed uint32, want Member) {
				t.Helper()
				if c := j.call(tag); c.Freed != freed || c.Member != want {
					t.Errorf("%s: freed %d times, member %+v; want %d and %+v", why, c.Freed, c.Member, freed, want)
				}
			}
			check("a group from before", j.do("reduce 0 1 0"), 0, Member{2, 4})
			j.do("renew")
			check("after new buckets", j.do("reduce 0 1 0"), 1, Member{2, 4})
			j.do("end 0")
			j.do("new 0 3 1")
			j.do("free")
			check("a new group, after a reducer's end", j.do("reduce 0 1 0"), 2, Member{1, 3})
			check("another collective", j.do("scatter 0"), 0, Member{})
			j.do("end 0")
			j.do("new 0 3 3")
			check("no such rank", j.do("reduce 0 1 0"), 2, Member{})
		})
	}
}

// Each group of a process gives its own tags, and calls of a group that has ended are forgotten, also where a new one
// has its address.
func TestGroups(t *testing.T) {
	t.Parallel()
	p := load(t)
	j := built(t, releases[0]).start(t)
	j.find(p)
	elements := func(tag int) (all []uint64) {
		for _, c := range j.calls(tag) {
			if c.Source%layouts == 0 {
				all = append(all, c.Elements)
			}
		}
		return all
	}
	j.do("new 0 2")
	j.do("new 1 2")
	j.do("reduce 0 1 0")
	j.do("reduce 1 2 0")
	if got := elements(0); len(got) != 2 || got[0]+got[1] != 1001+1002 {
		t.Fatalf("tag 0 of two groups: %v", got)
	}
	j.do("end 0")
	if got := elements(0); len(got) != 1 || got[0] != 1002 {
		t.Errorf("after the end of a group: %v", got)
	}
	j.do("new 1 2")
	if got := elements(0); len(got) != 0 {
		t.Errorf("a new group at an old address has calls: %v", got)
	}
	for g := range 100 { // more than are followed
		j.do("new %d 2", g)
		j.do("reduce %d 3 0", g)
	}
	if got := elements(0); len(got) != len(probeProcess{}.Groups) {
		t.Errorf("%d of 100 groups are followed, want the last %d", len(got), len(probeProcess{}.Groups))
	}
	if tag := j.do("reduce 5 4 0"); tag != 1 {
		t.Fatalf("tag %d", tag)
	}
	if got := elements(1); len(got) != 1 || got[0] != 1004 {
		t.Errorf("a group that was forgotten calls: %v", got)
	}
}

// A group that lives keeps its place while others come and go: its number of ranks stays known.
func TestOldGroupsStay(t *testing.T) {
	t.Parallel()
	p := load(t)
	j := built(t, releases[0]).start(t)
	j.find(p)
	j.do("new 0 5")
	for i := range len(probeProcess{}.Groups) + 10 {
		j.do("new 1 2")
		j.do("reduce 1 3 0")
		tag := j.do("reduce 0 1 0")
		if tag != i {
			t.Fatalf("tag %d, want %d", tag, i)
		}
		old := 0
		for _, c := range j.calls(tag) {
			if c.Elements == 1001 && c.Ranks == 5 && c.Source%layouts == 0 {
				old++
			}
		}
		if old != 1 {
			t.Fatalf("after %d other groups the old one's call is seen %d times: %+v", i+1, old, j.calls(tag))
		}
		j.do("end 1")
	}
}

// The kernel checks each program in a few milliseconds. The number of steps can grow as a power of a loop's length, and
// while the programs are loaded the calls of the first job go unseen.
func TestProgramsAreCheckedQuickly(t *testing.T) {
	t.Parallel()
	p := load(t)
	o := &p.objects
	for name, program := range map[string]*ebpf.Program{"all_reduce_bucket": o.AllReduceBucket, "free_buckets": o.FreeBuckets, "allreduce": o.Allreduce,
		"other": o.Other, "untold": o.Untold, "monitored_barrier": o.MonitoredBarrier, "new_group": o.NewGroup, "end_group": o.EndGroup, "connect_group": o.ConnectGroup} {
		info, err := program.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, ok := info.VerifiedInstructions()
		require.Named(t, "verified-instructions", ok, "use Linux 5.16 or later")
		t.Logf("%s: %d", name, n)
		if n > 50_000 {
			t.Errorf("%s: the kernel goes through %d instructions to check it, want 50,000 at most", name, n)
		}
	}
}

// Of a call that was not noted, was forgotten, or has a tag that two calls expected, nothing is known.
func TestCallsInDoubt(t *testing.T) {
	t.Parallel()
	p := load(t)
	j := built(t, releases[0]).start(t)
	rank := j.find(p)
	j.do("new 0 2")
	j.do("new 1 2") // the calls are in the map
	for range 3 {
		j.do("reduce 0 1 0")
	}
	j.do("end 1")
	state, err := rank.state()
	if err != nil {
		t.Fatal(err)
	}
	forget := func(tag uint32) {
		t.Helper()
		for _, g := range state.Groups {
			if g.Object != 0 {
				if err := p.objects.Calls.Delete(probeCallKey{Epoch: rank.epoch, Generation: uint32(g.Expected), Tag: tag}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	forget(1)
	for tag, want := range []uint64{1001, 0, 1001} {
		if got := j.call(tag); got.Elements != want {
			t.Errorf("tag %d: %+v, want %d elements", tag, got, want)
		}
	}
	if tag := j.do("unseen 0"); tag != 3 || j.call(tag) != (Call{Source: j.call(0).Source, Ranks: 2}) {
		t.Errorf("tag %d, which no all-reduce has: %+v", tag, j.call(tag))
	}
	j.do("announce 1")
	j.do("fail 0 1")
	if tag := j.do("reduce 0 2 0"); tag != 4 || j.call(tag).Elements != 0 {
		t.Errorf("tag %d, which a failed call expected: %+v", tag, j.call(tag))
	}
	forget(4)
	if c := j.call(4); c.Elements != 0 {
		t.Errorf("of the tag that a failed call expected one call is left: %+v", c)
	}
	if all := j.calls(5); len(all) != 0 {
		t.Errorf("a tag that was not given: %+v", all)
	}
}

// Two threads call collectives of one group at once. Between the call and its tag other calls may come, so that a later
// call of the other thread finds the tag that the first one is about to get. Such calls prove nothing. Once all have
// their tags, calls prove again.
func TestTwoThreadsOfAGroup(t *testing.T) {
	t.Parallel()
	p := load(t)
	for _, c := range []struct {
		name   string
		groups int
		first  []string // orders of the second thread while the first one waits for its tag
	}{
		{"an all-reduce comes between", 1, []string{"reduce 0 2 0"}},
		{"an all-reduce of two groups comes between", 2, []string{"reduce 0 2 0"}},
		{"many come between", 1, []string{"reduce 0 2 0", "broadcast 0", "scatter 0", "reduce 0 2 0", "fail 0 2", "barrier 0"}},
		{"a broadcast comes between", 1, []string{"broadcast 0"}},
		{"a broadcast of two groups comes between", 2, []string{"broadcast 0"}},
		{"a barrier of two tags comes between", 1, []string{"barrier 0"}},
		{"none comes between", 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := built(t, releases[0]).start(t)
			j.find(p)
			for g := range c.groups {
				j.do("new %d 2", g)
			}
			unknown := func(why string, tag int) {
				t.Helper()
				for _, x := range j.calls(tag) {
					if x.Elements != 0 || x.Bucket {
						t.Errorf("%s has tag %d, which is taken for %+v", why, tag, x)
					}
				}
			}
			bucket := func(why string) {
				t.Helper()
				j.do("announce 4")
				tag := j.do("reduce 0 4 0")
				if all := j.calls(tag); len(all) != int(layouts) || !all[0].Bucket || all[0].Elements != 1004 {
					t.Errorf("%s, tag %d is no bucket's: %+v", why, tag, all)
				}
			}
			bucket("before")
			j.do("enter 0 1")
			for _, order := range c.first {
				j.do(order)
			}
			j.do("enter 0 3 1") // a bucket
			unknown("the first thread", j.do("leave 1"))
			unknown("the second one", j.do("leave 3"))
			bucket("after both")
			j.do("broadcast 0")
			bucket("after a broadcast")
			j.do("barrier 0")
			bucket("after a barrier of two tags")
			j.do("fail 0 2")
			j.do("broadcast 0")
			bucket("after a call that has failed, and a broadcast")
			j.do("unseen 0")
			unknown("a call after one that was not counted", j.do("reduce 0 2 0"))
			bucket("after it")
		})
	}
}

// Three threads call all-reduces of one group at once and get their tags in some order. None is taken for another
// one's, and once all have their tags, calls prove again.
func TestThreeThreadsOfAGroup(t *testing.T) {
	t.Parallel()
	p := load(t)
	j := built(t, releases[0]).start(t)
	j.find(p)
	j.do("new 0 2")
	bucket := func(why string) {
		t.Helper()
		j.do("announce 4")
		if all := j.calls(j.do("reduce 0 4 0")); len(all) != int(layouts) || !all[0].Bucket || all[0].Elements != 1004 {
			t.Errorf("%s, a bucket is none: %+v", why, all)
		}
	}
	bucket("before")
	for _, between := range []string{"", "broadcast 0", "barrier 0", "reduce 0 6 0"} {
		for _, order := range [][3]int{{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}} {
			why := fmt.Sprintf("after %v and %q", order, between)
			for tensor := 1; tensor <= 3; tensor++ {
				j.do("enter 0 %d 1", tensor)
			}
			for i, tensor := range order {
				for _, c := range j.calls(j.do("leave %d", tensor)) {
					if c.Bucket && c.Elements != uint64(1000+tensor) {
						t.Errorf("%s: the call of tensor %d is taken for %+v", why, tensor, c)
					}
				}
				if i == 0 && between != "" {
					j.do(between)
				}
			}
			bucket(why)
		}
	}
}

// Where more calls are on their way to their tags than one call can confuse, all calls of the group so far are
// forgotten, and later ones prove again.
func TestManyThreadsOfAGroup(t *testing.T) {
	t.Parallel()
	p := load(t)
	j := built(t, releases[0]).start(t)
	j.find(p)
	j.do("new 0 2")
	known := func(tag int) bool {
		t.Helper()
		return slices.ContainsFunc(j.calls(tag), func(c Call) bool { return c.Elements != 0 })
	}
	first := j.do("reduce 0 1 0")
	if !known(first) {
		t.Fatal("a call is not known")
	}
	const threads = 8
	for tensor := range threads {
		j.do("enter 0 %d", tensor)
	}
	if !known(first) {
		t.Error("a call before them is forgotten too early")
	}
	tags := []int{first, j.do("scatter 0")}
	for tensor := range threads {
		tags = append(tags, j.do("leave %d", tensor))
	}
	for _, tag := range tags {
		if known(tag) {
			t.Errorf("of tag %d a call is known: %+v", tag, j.calls(tag))
		}
	}
	if !known(j.do("reduce 0 1 0")) {
		t.Error("a call after all is not known")
	}
}

// Ranks of one host share a library; each has its own calls.
func TestRanksOfAHost(t *testing.T) {
	t.Parallel()
	p := load(t)
	program := built(t, releases[0])
	a, b := program.start(t), program.start(t)
	a.find(p)
	b.find(p)
	if n := len(p.libraries); n != 1 {
		t.Errorf("%d libraries, want 1", n)
	}
	other := program.start(t) // whose connection is not asked for
	other.do("reduce 0 7 0")
	a.do("reduce 0 1 0")
	b.do("reduce 0 2 0")
	if got := a.call(0).Elements; got != 1001 {
		t.Errorf("the first rank sums %d elements", got)
	}
	if got := b.call(0).Elements; got != 1002 {
		t.Errorf("the second rank sums %d elements", got)
	}
	a.end()
	now := time.Now()
	if living := p.Living(now); len(living) != 1 || living[0] != b.rank {
		t.Errorf("living: %v", living)
	}
	if a.rank.Ended() == "" || len(a.calls(0)) != 0 {
		t.Error("a process that has ended has calls")
	}
	b.end()
	if living := p.Living(now); len(living) != 0 {
		t.Errorf("after the end of all: %v", living)
	}
	c := program.start(t) // a restart
	c.find(p)
	c.do("announce 3")
	c.do("reduce 0 3 0")
	if !c.call(0).Bucket {
		t.Error("after a restart a bucket is not told")
	}
}

// The programs stay attached to a library for a while after its last process, so that its next one is seen at once, and
// then they go. If the file is written they go at once: they would be in wrong places.
func TestLibraryIsKeptForAWhile(t *testing.T) {
	t.Parallel()
	p := load(t)
	program := build(t, releases[0])
	attached := func(why string, want int) (l *library) {
		t.Helper()
		if n := len(p.libraries); n != want {
			t.Fatalf("%s: %d libraries, want %d", why, n, want)
		}
		for _, l = range p.libraries {
		}
		return l
	}
	ends := func(j *job, now time.Time) {
		t.Helper()
		j.end()
		if living := p.Living(now); len(living) != 0 {
			t.Errorf("living: %v", living)
		}
	}
	proves := func() *job {
		t.Helper()
		j := program.start(t)
		j.find(p)
		j.do("announce 3")
		j.do("reduce 0 3 0")
		if !j.call(0).Bucket {
			t.Error("a bucket is not told")
		}
		return j
	}
	begin := time.Now()
	j := proves()
	first := attached("a process", 1)
	ends(j, begin)
	p.Living(begin.Add(keep - 1))
	attached("just before a minute has passed", 1)
	j = proves()
	if attached("the next process", 1) != first {
		t.Error("the programs are attached anew")
	}
	p.Living(begin.Add(2 * keep))
	attached("while a process uses it", 1)
	ends(j, begin.Add(2*keep))
	attached("at its end", 1)
	p.Living(begin.Add(3 * keep))
	attached("after a minute", 0)

	begin = begin.Add(4 * keep)
	ends(proves(), begin)
	code, err := os.ReadFile(program.library)
	if err == nil {
		err = os.WriteFile(program.library, code, 0o755) // in place
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Living(begin)
	attached("after the file was written", 0)
	ends(proves(), begin)
	second := attached("anew", 1)
	if err := os.Chtimes(program.library, begin, begin); err != nil {
		t.Fatal(err)
	}
	proves() // before anybody has looked at the file
	if attached("of the changed file", 1) == second {
		t.Error("programs stay attached to a library that has changed")
	}
}

// The calls of a child do not count as its parent's, and a connection that children have inherited is the parent's. A
// process with the number of another one inherits no proof.
func TestForks(t *testing.T) {
	t.Parallel()
	p := load(t)
	j := built(t, releases[0]).start(t)
	rank := j.find(p)
	j.do("reduce 0 1 0")
	if tag := j.do("fork 0 2"); tag != 1 {
		t.Fatalf("the child's tag is %d", tag)
	}
	if all := j.calls(1); len(all) != 0 {
		t.Errorf("the child's call counts as its parent's: %+v", all)
	}
	j.do("heir")
	for range 2 {
		if again := j.find(p); again != rank {
			t.Error("the process is found anew")
		}
		p.owners = nil // and is searched for among all
	}

	rank.born = "0" // as if another process had had the number
	next := j.find(p)
	if next == rank || rank.Ended() == "" {
		t.Fatal("a process inherits the proof of another one")
	}
	j.do("reduce 0 4 0")
	if len(rank.Calls(nil, 1)) != 0 || j.call(1).Elements != 1004 {
		t.Errorf("the new process's call: %+v", next.Calls(nil, 1))
	}
}

// A process that executes a program anew is followed anew: the groups and the calls of before are gone.
func TestExecutedAnew(t *testing.T) {
	t.Parallel()
	p := load(t)
	j := built(t, releases[0]).start(t)
	before := j.find(p)
	j.do("new 0 2")
	j.do("announce 1")
	if tag := j.do("reduce 0 1 0"); !j.call(tag).Bucket {
		t.Fatal("a bucket is not told")
	}
	j.execute()
	if j.find(p) == before || before.Ended() == "" {
		t.Fatal("it is followed as if it were the program of before")
	}
	j.do("tensor 2 %d 1002 6", 0x7f0000002000)
	j.do("new 1 2")
	j.do("announce 2")
	if c := j.call(j.do("reduce 1 2 0")); !c.Bucket || c.Elements != 1002 { // of one group only
		t.Errorf("call %+v", c)
	}
	if living := p.Living(time.Now()); len(living) != 1 || living[0] != j.rank {
		t.Errorf("processes %v", living)
	}
}

// A proof that was ended stays so.
func TestEnd(t *testing.T) {
	t.Parallel()
	p := load(t)
	j := built(t, releases[0]).start(t)
	rank := j.find(p)
	j.do("reduce 0 1 0")
	if !rank.End("first") || rank.End("second") || rank.Ended() != "first" {
		t.Errorf("ended by %q", rank.Ended())
	}
	if all := j.find(p).Calls(nil, 0); len(all) != 0 {
		t.Errorf("calls %+v", all)
	}
}

// Libraries are found in the job's mount namespace, stripped ones too; where there is none the error says it.
func TestLibraries(t *testing.T) {
	t.Parallel()
	p := load(t)
	proves := func(j *job) {
		t.Helper()
		j.find(p)
		j.do("announce 1")
		if j.do("reduce 0 1 0"); !j.call(0).Bucket {
			t.Error("a bucket is not told")
		}
	}
	t.Run("stripped", func(t *testing.T) { proves(build(t, releases[0], stripped).start(t)) })
	t.Run("with marks of jumps' targets", func(t *testing.T) {
		if runtime.GOARCH != "amd64" {
			t.Skip("needs amd64, for which alone gcc has the flag")
		}
		proves(build(t, releases[0], marked).start(t))
	})
	t.Run("in another mount namespace", func(t *testing.T) {
		program := built(t, releases[1])
		hidden := filepath.Join(t.TempDir(), "hidden")
		if err := os.Mkdir(hidden, 0o755); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(program.path)
		j := program.start(t, func(c *exec.Cmd) {
			c.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
			port := c.Args[1]
			require.Command(t, "sh")
			c.Path, c.Args = "/bin/sh", []string{"sh", "-c", `mount --bind "$1" "$2" && exec env LD_LIBRARY_PATH="$2" "$2/job" "$3"`, "sh", dir, hidden, port}
		})
		if entries, err := os.ReadDir(hidden); err != nil || len(entries) != 0 {
			t.Fatalf("the library can be seen from here: %v %v", entries, err)
		}
		proves(j)
	})
	refuses := func(j *job, want string) {
		t.Helper()
		_, pid, err := p.Find(address(j.conn.RemoteAddr()), address(j.conn.LocalAddr()))
		if err == nil || !strings.Contains(err.Error(), want) || pid != j.cmd.Process.Pid {
			t.Errorf("process %d, error %v, want %d and one with %q", pid, err, j.cmd.Process.Pid, want)
		}
	}
	t.Run("static", func(t *testing.T) { refuses(build(t, releases[0], static).start(t), "linked statically") })
	t.Run("replaced", func(t *testing.T) {
		j := build(t, releases[0]).start(t)
		if err := os.Remove(j.library); err != nil {
			t.Fatal(err)
		}
		refuses(j, "was replaced")
	})
	t.Run("another release", func(t *testing.T) {
		refuses(build(t, releases[0], renamed).start(t), "does not export _ZN4c10d7Reducer17all_reduce_bucket")
	})
	if n := len(p.libraries); n > 3 {
		t.Errorf("%d libraries are attached to, want those with processes", n)
	}
}

// The process of a connection is found in another network namespace, as a container's is, unless two namespaces have
// such a connection.
func TestOtherNetworkNamespace(t *testing.T) {
	// Not in parallel: a thread that has been in the namespace ends, and with it the jobs of other tests that it has
	// started (PR_SET_PDEATHSIG).
	p := load(t)
	program := build(t, releases[0])
	begin := func() (j *job) {
		n := netns.New(t)
		n.Do(func() {
			j = program.start(t, func(c *exec.Cmd) {
				c.Args = append(c.Args, "4242") // the port that it connects from
				c.SysProcAttr.Pdeathsig = 0     // the thread that starts it ends
			})
		})
		return j
	}
	j := begin()
	j.find(p)
	j.do("announce 1")
	if j.do("reduce 0 1 0"); !j.call(0).Bucket {
		t.Error("a bucket is not told")
	}
	other := begin()
	if _, _, err := p.Find(address(other.conn.RemoteAddr()), address(other.conn.LocalAddr()), address(j.conn.LocalAddr())); err == nil || !strings.Contains(err.Error(), "which of them is meant") {
		t.Errorf("of two namespaces with the same addresses: %v", err)
	}
}

// Where this process is in a PID namespace, as a proxy in a container is, the processes in it are seen.
func TestOwnProcessNamespace(t *testing.T) {
	t.Parallel()
	const inside = "GRADPROXY_TEST_INSIDE"
	if os.Getenv(inside) == "" {
		load(t) // or the test is skipped
		require.Command(t, "unshare")
		built(t, releases[0])
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", self, "-test.run=^TestOwnProcessNamespace$")
		c.Env = append(os.Environ(), inside+"=1")
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	p := load(t)
	j := built(t, releases[0]).start(t)
	if j.cmd.Process.Pid > 1000 {
		t.Fatalf("process %d: this is no new namespace", j.cmd.Process.Pid)
	}
	j.find(p)
	j.do("announce 1")
	if tag := j.do("reduce 0 1 0"); !j.call(tag).Bucket {
		t.Error("a bucket is not told")
	}
}

// The kernel's tables of sockets are understood.
func TestTableAddress(t *testing.T) {
	for text, want := range map[string]string{
		"0100007F:1092":                         "127.0.0.1:4242",
		"0000000000000000FFFF00000100007F:1092": "127.0.0.1:4242",
		"B80D0120000000000000000001000000:01BB": "[2001:db8::1]:443",
	} {
		if got := tableAddress(text).String(); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "local_address", "0100007F", "01:1092", "0100007F:", "0100007F:11092"} {
		if got := tableAddress(text); got.IsValid() {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// A socket that is in no process is an error.
func TestNotFound(t *testing.T) {
	// Not in parallel: a job that another test starts has this process's sockets until it executes its program.
	p := load(t)
	j := build(t, releases[0]).start(t)
	own, remote := address(j.conn.LocalAddr()), address(j.conn.RemoteAddr())
	if _, _, err := p.Find(own, remote); err == nil || !strings.Contains(err.Error(), "no process") {
		t.Errorf("the test's own socket: %v", err)
	}
	if _, _, err := p.Find(netip.AddrPortFrom(own.Addr(), 1), remote); err == nil {
		t.Error("a socket that does not exist is found")
	}
	wrong := netip.MustParseAddrPort("127.0.0.9:9")
	if _, pid, err := p.Find(remote, wrong, own); err != nil || pid != j.cmd.Process.Pid {
		t.Errorf("by the second of two remote addresses: %d %v", pid, err)
	}
}

// A connection that waits to be accepted has no process yet, here and in another network namespace.
func TestNotAccepted(t *testing.T) {
	// Not in parallel: a thread that has been in the namespace ends, and with it the jobs of other tests that it has
	// started (PR_SET_PDEATHSIG).
	p := load(t)
	n := netns.New(t)
	for name, do := range map[string]func(func()){"here": func(f func()) { f() }, "in another namespace": n.Do} {
		var listener net.Listener
		var conn net.Conn
		var err error
		do(func() {
			c := exec.Command("sleep", "60") // a process by which the namespace is seen
			if err = c.Start(); err != nil {
				return
			}
			defer t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
			if listener, err = net.Listen("tcp", "127.0.0.1:0"); err == nil {
				conn, err = net.Dial("tcp", listener.Addr().String())
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		defer conn.Close()
		if _, _, err := p.Find(address(listener.Addr()), address(conn.LocalAddr())); !errors.Is(err, ErrNotAccepted) {
			t.Errorf("%s, before it is accepted: %v", name, err)
		}
	}
}

// BenchmarkCollective measures the cost of probes for the all-reduce of a bucket, in ns of the calling thread's
// processor time: the kernel's part, which is the time of two functions with programs that do nothing, since the
// process is not followed, and the programs' part. Each is the least of many rounds, since others may use the processor
// too.
func BenchmarkCollective(b *testing.B) {
	const calls = 200
	measureCollective(b, func(j *job) float64 { return float64(j.do("bench 0 1 %d %d", calls, max(b.N, 100))) / calls })
}

// BenchmarkColdCollective measures the same, as the median of times on the clock, where the thread writes to so many MB
// between the all-reduces: a job computes a step between them, and the kernel and the programs find the processor's
// caches full of other things.
func BenchmarkColdCollective(b *testing.B) {
	for _, mb := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("%dMB", mb), func(b *testing.B) {
			measureCollective(b, func(j *job) float64 { return float64(j.do("cold 0 1 %d %d", mb<<20, max(b.N, 200))) })
		})
	}
}

// BenchmarkAfterCollective measures how much longer a bucket's sum and the work that follows take together, which runs
// much code and writes to so many MB: the traps and the programs leave the processor's caches, its tables of pages and
// its predictors with other contents than they had. Sums with and without probes take turns.
func BenchmarkAfterCollective(b *testing.B) {
	program := build(b, releases[0], working)
	for _, kb := range []int{0, 256, 1 << 10, 4 << 10, 16 << 10} {
		b.Run(fmt.Sprintf("%dkB", kb), func(b *testing.B) {
			p := load(b)
			j := program.start(b)
			rank := j.find(p)
			longer := func() (ns, without float64) {
				both := j.do("after 0 1 %d %d", kb<<10, max(b.N, 200))
				without = float64(both & (1<<32 - 1))
				return float64(both>>32) - without, without
			}
			ns, without := longer()
			b.ReportMetric(ns, "longer-ns")
			b.ReportMetric(without, "without-ns")
			if err := p.objects.Processes.Delete(uint32(rank.pid)); err != nil {
				b.Fatal(err)
			}
			ns, _ = longer()
			b.ReportMetric(ns, "kernel-longer-ns")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// measureCollective reports the kernel's part and the programs' part of what measure returns, in ns.
func measureCollective(b *testing.B, measure func(*job) float64) {
	p := load(b)
	j := built(b, releases[0]).start(b)
	without := measure(j)
	rank := j.find(p)
	with := measure(j)
	if err := p.objects.Processes.Delete(uint32(rank.pid)); err != nil {
		b.Fatal(err)
	}
	kernel := measure(j) - without
	b.ReportMetric(kernel, "kernel-ns")
	b.ReportMetric(with-without-kernel, "programs-ns")
	b.ReportMetric((with-without)/kernel, "of-kernel")
	b.ReportMetric(without, "functions-ns")
	b.ReportMetric(0, "ns/op")
}

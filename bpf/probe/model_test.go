package probe

import (
	"fmt"
	"slices"
	"testing"
)

// The model is a twin of enter, note, pass and confuse of probe.c for one group: threads run its steps, one access to
// shared memory each, in every order that there is.

// A kind is a collective, for the programs.
type kind uint8

const (
	reduces  kind = iota // an all-reduce, which is noted
	fails                // one that takes no tag
	casts                // a broadcast: one tag, and not noted
	barriers             // a barrier that takes two tags
)

func (k kind) tags() uint8 {
	if k == barriers {
		return 2
	}
	return 1
}

func (k kind) noted() bool { return k == reduces || k == fails }

// rules are the ones of probe.c, or less.
type rules struct {
	readFirst bool // a call reads the group's counter before it is counted, not afterwards
	all       bool // a call confuses all tags that calls on their way may get, not only the one that it has read
	add       bool // calls that were not counted are added to the count; otherwise the count is set right if no call has come since
	bound     int  // tags that a call confuses at most
}

var ours = rules{readFirst: true, all: true, add: true, bound: 8}

const (
	modelThreads = 3
	modelCalls   = 2 // of a thread, at most
	modelTags    = 10
	modelNames   = 4 // generations
	nobody       = 0
	doubted      = 255
)

// A script has the calls of each thread, and how many tags the group has given uncounted, at rest, before them.
type script struct {
	uncounted uint8
	calls     [modelThreads][]kind
}

type recentModel struct {
	call, generation, changes uint8
	busy                      bool // an odd version
}

// A threadModel is a thread's place in the program, its variables, and its last call as struct thread has it.
type threadModel struct {
	done, step                   uint8 // calls that it has made; step of the next one
	changes, tag, was, end, left uint8
	generation                   uint8
	alone, doubt                 bool
	last                         struct{ known, tag, generation, tags, after uint8 }
}

// A world is the state of a group, of the calls and of the threads.
type world struct {
	next                         uint8 // the group's counter
	expected, generation, newest uint8
	changes                      uint8
	noted                        [modelNames][modelTags]uint8 // by generation and tag: the map
	recent                       [modelTags]recentModel
	given                        [modelTags]uint8 // the call that has the tag, if it is an all-reduce
	threads                      [modelThreads]threadModel
}

// Steps of a call.
const (
	begins uint8 = iota
	reads
	counts
	compares
	readsAgain
	shows
	showed
	looksAgain
	notes
	confuses
	renames
	changes
	confusesOne
	takes
	takesMore
)

// name returns the number of a thread's call.
func name(thread int, call uint8) uint8 { return uint8(thread)*modelCalls + call + 1 }

// step returns the world after the next step of a thread.
func (w world) step(r rules, s *script, thread int) world {
	t := &w.threads[thread]
	k := s.calls[thread][t.done]
	call := name(thread, t.done)
	count := func() { t.was, t.generation, w.expected = w.expected, w.generation, w.expected+k.tags() }
	switch t.step {
	case begins:
		t.changes, t.alone, t.doubt, t.step = w.changes, false, false, reads
	case reads:
		if t.step = counts; r.readFirst {
			t.tag = w.next
		} else {
			count()
		}
	case counts:
		if t.step = compares; r.readFirst {
			count()
		} else {
			t.tag = w.next
		}
		if l := &t.last; int8(t.tag-t.was) <= 0 && !(l.known == 1 && l.generation == t.generation && l.tag == t.tag) {
			return w.step(r, s, thread) // it touches nothing that is shared
		}
	case compares:
		after, ahead := t.was+k.tags(), int8(t.tag-t.was)
		l := &t.last
		repeats := l.known == 1 && l.generation == t.generation && l.tag == t.tag && (r.add || l.after == t.was)
		t.end = max(t.was, t.tag)
		switch {
		case repeats:
			w.expected -= l.tags
			after -= l.tags
			t.doubt, t.end = true, max(t.was-l.tags, t.tag)
		case ahead > 0 && r.add:
			t.doubt, t.end = true, max(t.tag, w.expected-1)
			w.expected += uint8(ahead)
		case ahead > 0:
			t.doubt = k.noted()
			if w.expected == after {
				w.expected = t.tag + k.tags()
				after = w.expected
			}
		case ahead < 0:
			t.doubt = true
		default:
			t.alone = true
		}
		*l = struct{ known, tag, generation, tags, after uint8 }{1, t.tag, t.generation, k.tags(), after}
		switch {
		case !k.noted() && !t.doubt:
			t.step = takes
		case t.alone:
			t.step = shows
		default:
			t.step = readsAgain
		}
	case readsAgain:
		if t.step = confuses; r.all {
			t.tag = w.next
			t.end = max(t.end, t.tag)
		}
	case shows:
		t.step = notes
		if w.changes == t.changes && !w.recent[t.tag].busy {
			w.recent[t.tag].busy = true
			t.step = showed
		}
	case showed:
		w.recent[t.tag] = recentModel{call: call, generation: t.generation, changes: t.changes}
		t.step = looksAgain
	case looksAgain:
		if t.step = notes; w.changes == t.changes {
			t.step = takes
		}
	case notes:
		t.step = confuses
		if at := &w.noted[t.generation][t.tag]; *at == nobody {
			*at = call
			t.step = changes
		} else {
			t.end = t.tag
		}
	case confuses:
		if !r.all {
			t.end = t.tag
		}
		switch t.left = t.end - t.tag + 1; {
		case int(t.left) > r.bound:
			w.newest++
			t.was, t.step = w.newest, renames
		default:
			w.changes++
			t.step = confusesOne
		}
	case renames:
		w.generation = t.was
		t.step = changes
	case changes:
		w.changes++
		t.step = takes
	case confusesOne:
		w.noted[t.generation][t.tag] = doubted
		if at := &w.recent[t.tag]; !at.busy {
			*at = recentModel{call: doubted, generation: t.generation, changes: 255}
		}
		t.tag++
		if t.left--; t.left == 0 {
			t.step = takes
		}
	case takes:
		t.step = begins
		switch k {
		case reduces:
			w.given[w.next] = call
			w.next++
		case casts:
			w.next++
		case barriers:
			w.next++
			t.step = takesMore
		}
	case takesMore:
		w.next++
		t.step = begins
	}
	if t.step == begins {
		t.done++
		last := t.last
		*t = threadModel{done: t.done, last: last}
	}
	return w
}

// wrong returns a tag that is taken for another call's than the one that has it, by one of the reader's two ways; -1:
// none.
func (w *world) wrong() int {
	for tag, call := range w.given {
		if call == nobody {
			continue
		}
		recent := w.recent[tag]
		shown := recent.call != nobody && !recent.busy
		if shown && recent.changes == w.changes && recent.call != call {
			return tag
		}
		asked := w.noted[w.generation][tag]
		if asked == nobody && shown && recent.generation == w.generation {
			asked = recent.call
		}
		if asked != nobody && asked != doubted && asked != call {
			return tag
		}
	}
	return -1
}

// explore runs a script in all orders. It returns the steps that lead to a wrong answer, if there are any, the number
// of states, and whether the group counts right at every end.
func explore(r rules, s *script) (path []string, states int, right bool) {
	type edge struct {
		from   int
		thread int8
	}
	first := world{next: s.uncounted}
	seen := map[world]struct{}{first: {}}
	worlds, edges := []world{first}, []edge{{-1, 0}}
	right = true
	for i := 0; i < len(worlds); i++ {
		w := worlds[i]
		if w.wrong() >= 0 {
			for ; edges[i].from >= 0; i = edges[i].from {
				path = append(path, fmt.Sprintf("%d:%d", edges[i].thread, worlds[edges[i].from].threads[edges[i].thread].step))
			}
			slices.Reverse(path)
			return path, len(worlds), false
		}
		end := true
		for thread := range modelThreads {
			if int(w.threads[thread].done) == len(s.calls[thread]) {
				continue
			}
			end = false
			next := w.step(r, s, thread)
			if _, ok := seen[next]; !ok {
				seen[next] = struct{}{}
				worlds, edges = append(worlds, next), append(edges, edge{i, int8(thread)})
			}
		}
		right = right && (!end || w.next == w.expected)
	}
	return nil, len(worlds), right
}

// scripts are three threads with one call each, and some in which one of them has two.
func scripts() (all []script) {
	kinds := []kind{reduces, fails, casts, barriers}
	for i, a := range kinds {
		for j, b := range kinds[i:] {
			for _, c := range kinds[i+j:] {
				s := script{0, [modelThreads][]kind{{a}, {b}, {c}}}
				if all = append(all, s); a == reduces {
					s.uncounted = 1
					all = append(all, s)
				}
			}
		}
	}
	for _, first := range []kind{reduces, fails} {
		all = append(all, script{0, [modelThreads][]kind{{first, reduces}, {reduces}, {reduces}}}, script{1, [modelThreads][]kind{{first, reduces}, {barriers}}})
	}
	return append(all, script{2, [modelThreads][]kind{{reduces}, {reduces}, {reduces}}})
}

// Whatever three threads do at once in one group, and in whichever order their programs run, no tag is taken for
// another call's. Where all calls get tags, and no more than one was not counted before, the group's count is right
// afterwards: it proves again.
func TestModelOfThreeThreads(t *testing.T) {
	t.Parallel()
	states := 0
	for _, bound := range []int{ours.bound, 1} { // with 1 a group is often named anew
		r := ours
		r.bound = bound
		for _, s := range scripts() {
			if bound == 1 && slices.ContainsFunc(s.calls[:], func(k []kind) bool { return slices.Contains(k, barriers) }) {
				continue // many states
			}
			path, n, right := explore(r, &s)
			states += n
			if path != nil {
				t.Errorf("%v, at most %d tags: a tag is taken for another call's after %v", s, bound, path)
			}
			failing := slices.ContainsFunc(s.calls[:], func(k []kind) bool { return slices.Contains(k, fails) })
			if !right && !failing && s.uncounted < 2 {
				t.Errorf("%v, at most %d tags: the group's count is wrong at the end", s, bound)
			}
		}
	}
	t.Logf("%d scripts, %d states", len(scripts()), states)
}

// The model finds a wrong answer under each of three weaker sets of rules.
func TestModelFindsWrongRules(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*rules){
		"only the tag that was read":                                         func(r *rules) { r.all = false },
		"counted before the counter is read, and only the tag that was read": func(r *rules) { r.readFirst, r.all = false, false },
		"set right only if no call has come since":                           func(r *rules) { r.add = false },
	} {
		r := ours
		change(&r)
		if !slices.ContainsFunc(scripts(), func(s script) bool { path, _, _ := explore(r, &s); return path != nil }) {
			t.Errorf("%s: nothing is wrong", name)
		}
	}
}

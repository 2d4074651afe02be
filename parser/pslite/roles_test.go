package pslite

import (
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/tensor"
)

// of makes a push of a key of 10 float32.
func of(key uint64, time int32) say {
	return say{kind: push, keys: []uint64{key}, vals: 40, time: time}
}

func (s say) with(f func(*say)) say {
	f(&s)
	return s
}

// expect checks role, type and reason.
func expect(t *testing.T, what string, got tensor.Tensor, role tensor.Role, d tensor.DType) {
	t.Helper()
	if got.Role != role || got.DType != d {
		t.Errorf("%s: %v %v, want %v %v", what, got.Role, got.DType, role, d)
	}
	why := tensor.OK
	switch {
	case role == tensor.Unknown:
		why = tensor.RoleUnproved
	case d == tensor.NoDType:
		why = tensor.DTypeUnknown
	}
	if got.Why != why {
		t.Errorf("%s: because of %v, want %v", what, got.Why, why)
	}
}

// The first push of a key by rank 0 are the initial weights; other workers never send any.
func TestPushesOfMXNet(t *testing.T) {
	n := newNetwork(t, "job")
	first, second := n.connect(9, 8), n.connect(11, 8)
	expect(t, "initial weights", first.say(of(3, 1)), tensor.Exact, tensor.Float32)
	expect(t, "those of another key", first.say(of(4, 2)), tensor.Exact, tensor.Float32)
	expect(t, "a gradient", first.say(of(3, 3)), tensor.Gradient, tensor.Float32)
	expect(t, "a gradient by push-pull", first.say(of(4, 4).with(func(s *say) { s.pulls = true })), tensor.Gradient, tensor.Float32)
	expect(t, "one of rank 1", second.say(of(3, 0)), tensor.Gradient, tensor.Float32)
	for head, d := range map[int32]tensor.DType{2: tensor.Float64, 5: tensor.Float16, 90: tensor.BFloat16} {
		key := 100 + uint64(head)
		typed := func(time int32) say { return of(key, time).with(func(s *say) { s.head = head }) }
		expect(t, "initial weights", first.say(typed(head)), tensor.Exact, d)
		expect(t, "a gradient", first.say(typed(head+200)), tensor.Gradient, d)
	}
	expect(t, "integers", second.say(of(7, 400).with(func(s *say) { s.head = 14 })), tensor.Exact, tensor.Int32)
}

// A push is sure to be a gradient only where the servers apply an optimizer to it: a job without one may average
// weights.
func TestProofOfPushes(t *testing.T) {
	w := newNetwork(t, "job").connect(9, 8)
	w.say(of(3, 1))
	if got := w.say(of(3, 2)); got.Role != tensor.Gradient || got.Proof != tensor.ByWire {
		t.Errorf("a push without an optimizer is a %v, proof %d", got.Role, got.Proof)
	}
	w.say(say{kind: command, head: optimizer, time: 3})
	if got := w.say(of(3, 4)); got.Role != tensor.Gradient || got.Proof != tensor.ByUpdate {
		t.Errorf("a push with an optimizer is a %v, proof %d", got.Role, got.Proof)
	}
}

// Only workers push: nothing is known of others' messages, nor of values where none belong.
func TestMessagesThatNobodySends(t *testing.T) {
	n := newNetwork(t, "job")
	n.connect(11, 8).say(say{kind: command, head: 0})
	expect(t, "a push by a server", n.connect(8, 9).say(of(3, 9)), tensor.Unknown, tensor.Float32)
	expect(t, "an answer by a worker", n.connect(9, 8).say(of(3, 9).with(func(s *say) { s.kind = answer })), tensor.Unknown, tensor.Float32)
	expect(t, "a pull with values", n.connect(11, 8).say(say{kind: pull, keys: []uint64{3}, vals: 8}), tensor.Unknown, tensor.NoDType)
}

// A split array is one key at each server; each has its own initial weights.
func TestKeysOfServers(t *testing.T) {
	n := newNetwork(t, "job")
	for i, w := range []*wire{n.connect(9, 8), n.connect(9, 10)} {
		key := uint64(i)*(1<<63-1) + 3
		expect(t, "initial weights", w.say(of(key, 1)), tensor.Exact, tensor.Float32)
		expect(t, "a gradient", w.say(of(key, 2)), tensor.Gradient, tensor.Float32)
	}
}

// 2-bit codes are exact, and the whole arrays that come back for them are not codes.
func TestCompressedPushesOfMXNet(t *testing.T) {
	n := newNetwork(t, "job")
	to, back := n.connect(9, 8), n.connect(8, 9)
	to.say(say{kind: command, time: 0})
	codes := say{kind: push, head: 3, keys: []uint64{500, 84}, vals: 128, lens: []int{0, 128}}
	expect(t, "initial weights", to.say(of(84, 1)), tensor.Exact, tensor.Float32)
	for time := range int32(3) {
		codes.time = 10 + time
		expect(t, "codes", to.say(codes), tensor.Exact, tensor.NoDType)
	}
	expect(t, "weights", back.say(say{kind: answer, head: 3, keys: []uint64{84}, vals: 2000}), tensor.State, tensor.Float32)
}

// A key that begins with codes has begun.
func TestCodesBeginAKey(t *testing.T) {
	w := newNetwork(t, "job").connect(9, 8)
	w.say(say{kind: push, head: 3, keys: []uint64{500, 84}, vals: 128, lens: []int{0, 128}, time: 1})
	expect(t, "a gradient", w.say(of(84, 2)), tensor.Gradient, tensor.Float32)
}

// Row-sparse pushes are gradients too; lengths are bytes in a push, and elements in an answer.
func TestRows(t *testing.T) {
	n := newNetwork(t, "job")
	to, back := n.connect(9, 8), n.connect(8, 9)
	to.say(say{kind: command, time: 0})
	sparse := func(time int32, rows ...uint64) say {
		s := say{kind: push, head: 1, keys: []uint64{7}, lens: []int{0}, time: time}
		for _, r := range rows {
			s.keys, s.lens, s.vals = append(s.keys, 7+r), append(s.lens, 48), s.vals+48
		}
		return s
	}
	expect(t, "initial weights", to.say(sparse(1, 0, 1, 2, 3)), tensor.Exact, tensor.Float32)
	some := to.say(sparse(2, 1, 3))
	expect(t, "a gradient", some, tensor.Gradient, tensor.Float32)
	to.say(sparse(3))
	others := to.say(sparse(4, 0, 2))
	expect(t, "other rows", others, tensor.Gradient, tensor.Float32)
	if again := to.say(sparse(5, 1, 3)); again.Key != some.Key || some.Key == others.Key {
		t.Errorf("keys %x, %x, and again %x of the first rows", some.Key, others.Key, again.Key)
	}
	expect(t, "rows of the weights", back.say(say{kind: answer, head: 1, keys: []uint64{7, 8, 10}, vals: 96, lens: []int{0, 12, 12}}), tensor.State, tensor.Float32)
	expect(t, "rows of no whole elements", to.say(say{kind: push, head: 1, keys: []uint64{7, 8, 9}, vals: 20, lens: []int{0, 10, 10}, time: 6}), tensor.Unknown, tensor.NoDType)
}

// A first push without rows is the first one all the same.
func TestNoRowsBeginAKey(t *testing.T) {
	w := newNetwork(t, "job").connect(9, 8)
	w.say(say{kind: push, head: 1, keys: []uint64{7}, lens: []int{0}, time: 1})
	expect(t, "a gradient", w.say(say{kind: push, head: 1, keys: []uint64{7, 8}, vals: 48, lens: []int{0, 48}, time: 2}), tensor.Gradient, tensor.Float32)
}

// Slices of P3 have keys of their own, and priorities, which the tests' metas all have.
func TestSlices(t *testing.T) {
	n := newNetwork(t, "job")
	w := n.connect(9, 8)
	for _, want := range []tensor.Role{tensor.Exact, tensor.Gradient, tensor.Gradient} {
		for slice := range uint64(5) {
			n.numbers++
			expect(t, "a slice", w.say(of(slice, int32(n.numbers))), want, tensor.Float32)
		}
	}
}

// Answers are weights if the servers have an optimizer, and else sums.
func TestAnswersOfMXNet(t *testing.T) {
	pulled := say{kind: answer, keys: []uint64{3}, vals: 40}
	for _, c := range []struct {
		name string
		says []say // of worker 11 to the server, before
		want tensor.Role
	}{
		{"nothing was heard", nil, tensor.Unknown},
		{"only the middle of the job", []say{of(3, 50)}, tensor.Unknown},
		{"an optimizer", []say{{kind: command, head: 0, time: 0}}, tensor.State},
		{"an optimizer, and more commands", []say{{kind: command, head: 0, time: 1}, {kind: command, head: 1, time: 2}}, tensor.State},
		{"no optimizer", []say{{kind: command, head: 3, time: 0}, of(3, 1)}, tensor.Aggregate},
		{"no command at all", []say{of(3, 0)}, tensor.Aggregate},
	} {
		n := newNetwork(t, "job")
		to, back := n.connect(11, 8), n.connect(8, 9)
		for _, s := range c.says {
			to.say(s)
		}
		expect(t, c.name, back.say(pulled), c.want, tensor.Float32)
		expect(t, c.name+", by push-pull", back.say(pulled.with(func(s *say) { s.pulls = true })), c.want, tensor.Float32)
	}
}

// The answer to a command is not one, nor is a command of the scheduler's or a server's.
func TestCommandsOfOthers(t *testing.T) {
	n := newNetwork(t, "job")
	to := n.connect(9, 8)
	to.say(say{kind: command, head: 3})
	back := n.connect(8, 9)
	back.send(0, multipart(meta{head: 0, simple: true}.proto()))
	to.send(0, multipart(meta{head: 0, simple: true}.proto()))
	back.say(say{kind: command, head: 0})
	n.connect(1, 8).say(say{kind: command, head: 0})
	expect(t, "a sum", back.say(say{kind: answer, keys: []uint64{3}, vals: 40}), tensor.Aggregate, tensor.Float32)
}

// A push that is sent again, as with PS_RESEND, would be fed back twice.
func TestPushesSentAgain(t *testing.T) {
	n := newNetwork(t, "job")
	w := n.connect(11, 8)
	for time := range int32(10) {
		expect(t, "a gradient", w.say(of(3, time)), tensor.Gradient, tensor.Float32)
		expect(t, "the same again", w.say(of(3, time)), tensor.Exact, tensor.Float32)
		if time > 3 {
			expect(t, "an earlier one again", w.say(of(3, time-3)), tensor.Exact, tensor.Float32)
		}
	}
	expect(t, "another customer's", w.say(of(3, 9).with(func(s *say) { s.customer = 1 })), tensor.Gradient, tensor.Float32)
	expect(t, "another key", w.say(of(4, 9)), tensor.Gradient, tensor.Float32)
	expect(t, "on another connection", n.connect(11, 8).say(of(3, 9)), tensor.Exact, tensor.Float32)
}

// In BytePS the first push of every worker makes room, the second may be a broadcast; answers are sums.
func TestBytePS(t *testing.T) {
	n := newNetwork(t, "job")
	for _, id := range []int{9, 11} {
		w := n.connect(id, 8)
		packed := func(key uint64, time int32) say { return of(key, time).with(func(s *say) { s.packed = true }) }
		for time, want := range []tensor.Role{tensor.Exact, tensor.Exact, tensor.Gradient, tensor.Gradient} {
			expect(t, fmt.Sprintf("push %d", time), w.say(packed(1<<16, int32(time))), want, tensor.Float32)
		}
		back := packed(1<<16, 3).with(func(s *say) { s.kind, s.back = answer, "ps8" })
		expect(t, "a sum", w.say(back), tensor.Aggregate, tensor.Float32)
		w.say(say{kind: command, head: 0, packed: true})
		expect(t, "a sum", w.say(back), tensor.Aggregate, tensor.Float32)
		w.send(1, say{kind: ack, packed: true, back: "ps8"}.bytes())
		expect(t, "what no server sends", w.say(back.with(func(s *say) { s.kind = push })), tensor.Unknown, tensor.Float32)
	}
}

// A key with a compressor holds codes, at all workers.
func TestCompressorsOfBytePS(t *testing.T) {
	n := newNetwork(t, "job")
	first, second := n.connect(9, 8), n.connect(11, 8)
	packed := func(key uint64, time int32) say { return of(key, time).with(func(s *say) { s.packed = true }) }
	first.say(packed(5, 0))
	expect(t, "settings", first.say(say{kind: push, head: 3, keys: []uint64{5}, vals: 33, packed: true, time: 1}), tensor.Exact, tensor.NoDType)
	for time := range int32(5) {
		for _, w := range []*wire{first, second} {
			expect(t, "codes", w.say(packed(5, 10+time)), tensor.Exact, tensor.NoDType)
			expect(t, "a sum's codes", w.say(packed(5, 10+time).with(func(s *say) { s.kind, s.back = answer, "ps8" })), tensor.Exact, tensor.NoDType)
		}
	}
	for time := range int32(3) {
		first.say(packed(6, 20+time))
	}
	expect(t, "another key's gradient", first.say(packed(6, 23)), tensor.Gradient, tensor.Float32)
}

// Of an application that keeps neither convention nothing is known but the type, where the frame says it.
func TestOtherApplications(t *testing.T) {
	n := newNetwork(t, "job")
	w, back := n.connect(9, 8), n.connect(8, 9)
	w.say(say{kind: command, head: 0})
	for _, c := range []struct {
		name string
		say  say
		want tensor.DType
	}{
		{"floats of many keys", say{kind: push, keys: []uint64{1, 2}, vals: 40, types: [3]byte{8, 9}, frames: 2}, tensor.Float32},
		{"doubles with lengths in elements", say{kind: push, keys: []uint64{1, 2}, vals: 40, lens: []int{2, 3}, types: [3]byte{8, 10, 3}}, tensor.Float64},
		{"integers", say{kind: push, keys: []uint64{1}, vals: 40, types: [3]byte{8, 6}, frames: 2}, tensor.Uint16},
		{"bytes without lengths", say{kind: push, keys: []uint64{1}, vals: 40, frames: 2}, tensor.NoDType},
		{"bytes of many keys", say{kind: push, keys: []uint64{1, 2}, vals: 40}, tensor.NoDType},
		{"an unknown head", say{kind: push, keys: []uint64{1}, vals: 40, head: 6}, tensor.NoDType},
		{"codes without a count", say{kind: push, keys: []uint64{1}, vals: 40, head: 3}, tensor.NoDType},
		{"no whole elements", say{kind: push, keys: []uint64{1}, vals: 41}, tensor.NoDType},
		{"keys of another type", say{kind: push, keys: []uint64{1}, vals: 40, types: [3]byte{4, 11, 3}}, tensor.NoDType},
	} {
		for range 3 {
			c.say.time++
			expect(t, c.name, w.say(c.say), tensor.Unknown, c.want)
		}
		if c.say.kind = answer; c.say.head != 3 { // there the whole array comes back
			expect(t, c.name+", back", back.say(c.say), tensor.Unknown, c.want)
		}
	}
}

// Builds with 32-bit keys send such.
func TestShortKeys(t *testing.T) {
	n := newNetwork(t, "job")
	w := n.connect(11, 8)
	s := of(3, 1).with(func(s *say) { s.types, s.keys = [3]byte{typeUint32, typeOther, 3}, nil })
	body := s.bytes()
	body = body[:len(body)-6-42-2] // as it is without keys, values and lengths
	body = append(body, multipart([]byte{3, 0, 0, 0}, make([]byte, 40), []byte{40, 0, 0, 0})...)
	found := w.send(0, body)
	if len(found) != 1 {
		t.Fatalf("%d tensors, %v", len(found), w.err[0])
	}
	expect(t, "a gradient", found[0], tensor.Gradient, tensor.Float32)
}

package pslite

import (
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
	"github.com/gradproxy/gradproxy/tensor"
)

// Index arrays are the keys of rows, or of many values, and the lengths of many. They are no payload, but may be a good
// part of the bytes, and often come again: at every step where a worker has all of an array, and within a step where it
// has rows (MXNet pulls them twice and pushes them once). A codec by rows needs the rows' keys first.

// minIndex is the size in bytes from which on an index array is a tensor even if nothing depends on it.
const minIndex = 256

// lead returns how many bytes of a frame of keys come before an index array, which goes on to the frame's end: they are
// the first key, which names the array. It is 0 if there is no index.
func lead(m *meta, size int) int {
	width := keyWidth(m.types[0])
	if width == 0 || size%width != 0 || size <= width {
		return 0
	}
	if r, _, ok := parseHead(m); ok && r == rowSparse && m.types[1] == typeOther || size-width >= minIndex {
		return width
	}
	return 0
}

// isList reports whether a message with size bytes of keys is a list of many keys' gradients: a push of floats by an
// application that is not known, in a job whose configuration says that its pushes are summands. Without lengths, all
// values have the same length.
func (x *connection) isList(m *meta, size int) bool {
	width := keyWidth(m.types[0])
	return x.conn.Sums == parser.SumsGradients && m.kind() == push && m.frames == 2 && dataTypes[m.types[1]].Float() &&
		width > 0 && size > width && size%width == 0
}

// ofIndex returns the identity of the index of an array with a worker. Pushes, pulls and answers have the same.
func (id identity) ofIndex(m *meta, k *keys) identity {
	id.direction, id.shape, id.key, id.set = push, indices, k.at(0, keyWidth(m.types[0])), 0
	return id
}

// ofList returns the identity of the keys of a list for a server. The keys may be others each time.
func (id identity) ofList(server uint64) identity {
	id.direction, id.shape, id.key, id.set = push, every, server, 0
	return id
}

// scoreOf returns the reuse score of an index.
func (f *facts) scoreOf(j *job, place uint64) int8 {
	if i, ok := f.indices.Use(j.peer, mix.Words(place, j.peer)); ok {
		return i.score
	}
	return initialScore
}

// come takes note of keys of an index, of size bytes, and returns its reuse score.
func (f *facts) come(id identity, j *job, size int, hash uint64) int8 {
	all := id.under(j.seed)
	id.set = uint64(size)
	sized := mix.Words(id.under(j.seed), j.peer)
	last, ok := f.indices.Use(j.peer, sized)
	f.indices.Keep(j.peer, sized, index{hash: hash}, f.limits.indices)
	score := after(f.scoreOf(j, all), ok && last.hash == hash)
	f.indices.Keep(j.peer, mix.Words(all, j.peer), index{score: score}, f.limits.indices)
	return score
}

// indexOf returns the tensor of a frame of keys of size bytes: all keys of a list, else the keys after the first one.
func (x *connection) indexOf(r route, m *meta, k *keys, size int) tensor.Tensor {
	f := x.facts
	f.mu.Lock()
	defer f.mu.Unlock()
	j, id, ok := x.identify(r, m)
	if !ok {
		return tensor.Tensor{}
	}
	all := size
	if x.isList(m, size) {
		id = id.ofList(x.receiver(j, r))
	} else {
		id = id.ofIndex(m, k)
		size -= keyWidth(m.types[0])
	}
	t := tensor.Tensor{Role: tensor.Exact, DType: dataTypes[m.types[0]], Size: size, Hold: size}
	t.Key = id.under(j.seed)
	t.Keys = t.Key
	if id.set = uint64(all); f.scoreOf(j, t.Key) > 0 {
		t.Base = id.under(j.seed)
	}
	return t
}

// endKeys takes note of a frame of keys, and of whether the values that an answer has for them will come again.
func (x *connection) endKeys(r route, m *meta, k *keys) {
	width := keyWidth(m.types[0])
	if k.again = width > 0 && k.bytes == width; k.again || width == 0 || k.bytes < width {
		return
	}
	f := x.facts
	f.mu.Lock()
	defer f.mu.Unlock()
	j, id, ok := x.identify(r, m)
	if !ok {
		return
	}
	if x.isList(m, k.bytes) {
		f.come(id.ofList(x.receiver(j, r)), j, k.bytes, k.sum())
		return
	}
	isAnswer := id.direction == answer
	id = id.ofIndex(m, k)
	f.come(id, j, k.bytes, k.sum())
	if isAnswer { // the request had the same keys, but the answers have a score of their own
		id.direction = answer
		k.again = f.come(id, j, k.bytes, k.sum()) > 0
	}
}

// lengthsOf returns the tensor of a frame of size bytes of lengths, if it is worth one. Lengths of equally many values
// of an array are the same, whichever rows or workers the values are of.
func (x *connection) lengthsOf(r route, m *meta, k *keys, size int) tensor.Tensor {
	if size < minIndex || size%4 != 0 || dataTypes[m.types[2]] != tensor.Int32 || keyWidth(m.types[0]) == 0 {
		return tensor.Tensor{}
	}
	f := x.facts
	f.mu.Lock()
	defer f.mu.Unlock()
	j, id, ok := x.identify(r, m)
	if !ok {
		return tensor.Tensor{}
	}
	id.shape, id.key, id.set = lengths, k.at(0, keyWidth(m.types[0])), uint64(size)
	t := tensor.Tensor{Role: tensor.Exact, DType: tensor.Int32, Size: size, Hold: size, Key: id.under(j.seed), Base: id.shared(j.seed)}
	t.Keys = t.Key
	return t
}

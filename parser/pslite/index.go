package pslite

import "github.com/gradproxy/gradproxy/tensor"

// Index arrays are the keys of rows, or of many values, and the lengths of many. They are no payload, but may be a good part
// of the bytes, and often are the same at every step and of every worker. What is coded by row needs the rows' keys first.

// minIndex is the size in bytes from which an index array is a tensor where nothing depends on it.
const minIndex = 256

// lead returns how many bytes of a frame of keys come before an index array, which goes on to the frame's end: they are the
// first key, which says of what the others are. It is 0 if there is no index.
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

// An index is what is remembered of the keys after the first one.
type index struct {
	hash   uint64 // of those that came last
	varies bool   // which were not those that came before
}

// indexPlace returns under which name keys of size bytes that begin like k are remembered, of all workers.
func (id identity) indexPlace(seed uint64, m *meta, k *keys, size int) uint64 {
	id.shape, id.key, id.set = indices, k.at(0, keyWidth(m.types[0])), uint64(size)
	return id.shared(seed)
}

// indexOf returns the tensor that the keys after the first one are, of size bytes in all. Its Base is that of what came last
// in its place, if that had come before as well or nothing else had: others are not worth holding.
func (x *connection) indexOf(r route, m *meta, k *keys, size int) tensor.Tensor {
	x.protocol.mu.Lock()
	defer x.protocol.mu.Unlock()
	f := &x.protocol.facts
	j := f.jobOf(x, r.listener)
	id, ok := x.identify(j, r, m)
	if !ok {
		return tensor.Tensor{}
	}
	width := keyWidth(m.types[0])
	t := tensor.Tensor{Role: tensor.Exact, DType: dataTypes[m.types[0]], Size: size - width, Hold: size - width}
	place := id.indexPlace(j.seed, m, k, size)
	if last, ok := f.indices.get(place); ok && !last.varies {
		t.Base = place
	}
	t.Key = id.index(j.seed, k.at(0, width))
	t.Keys = t.Key
	return t
}

// endKeys takes note of a frame of keys, and of whether they are those that came last in their place.
func (x *connection) endKeys(r route, m *meta, k *keys) {
	width := keyWidth(m.types[0])
	if k.again = width > 0 && k.bytes == width; k.again || width == 0 || k.bytes < width {
		return
	}
	x.protocol.mu.Lock()
	defer x.protocol.mu.Unlock()
	f := &x.protocol.facts
	j := f.jobOf(x, r.listener)
	id, ok := x.identify(j, r, m)
	if !ok {
		return
	}
	place := id.indexPlace(j.seed, m, k, k.bytes)
	last, ok := f.indices.get(place)
	now := index{hash: k.sum()}
	k.again = ok && last.hash == now.hash
	now.varies = ok && !k.again
	f.indices.put(place, now)
}

// lengthsOf returns the tensor that size bytes of lengths are, if they are worth one.
func (x *connection) lengthsOf(r route, m *meta, k *keys, size int) tensor.Tensor {
	if size < minIndex || size%4 != 0 || dataTypes[m.types[2]] != tensor.Int32 {
		return tensor.Tensor{}
	}
	x.protocol.mu.Lock()
	defer x.protocol.mu.Unlock()
	j := x.protocol.facts.jobOf(x, r.listener)
	id, ok := x.identify(j, r, m)
	if !ok {
		return tensor.Tensor{}
	}
	t := tensor.Tensor{Role: tensor.Exact, DType: tensor.Int32, Size: size, Hold: size}
	id.shape, id.set = lengths, k.sum()
	t.Key = id.under(j.seed)
	t.Keys = t.Key
	if k.again {
		t.Base = id.shared(j.seed)
	}
	return t
}

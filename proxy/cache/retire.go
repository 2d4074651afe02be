package cache

// unref takes note that one reason less is left for the peer to hold a value. Peer.mu is held.
func (w *writer) unref(e *entry) {
	if e.refs--; e.refs > 0 || e.slot.latest == e {
		return
	}
	w.retire(e)
}

// maxRetired bounds the values that are no slot's latest.
const maxRetired = 1 << 13

// retire is for an entry that is no slot's latest any more, and to which no Ref is under way: the peer keeps it while there is room, if it is found by its content.
// Peer.mu is held.
func (w *writer) retire(e *entry) {
	if _, there := w.retired.Peek(e.id); there {
		return
	}
	if len(e.marks) == 0 {
		w.drop(e)
		return
	}
	w.retired.Put(e.id, e)
	w.retiredBytes += int64(len(e.raw))
	w.expire(func() bool { return w.retiredBytes <= w.room/2 && w.retired.Len() <= maxRetired })
}

// expire drops the retired values that were used least recently, until enough.
func (w *writer) expire(enough func() bool) {
	if enough() {
		return
	}
	for id, e := range w.retired.FromOldest() {
		if e.refs > 0 {
			continue
		}
		w.retired.Delete(id)
		w.retiredBytes -= int64(len(e.raw))
		w.drop(e)
		if enough() {
			return
		}
	}
}

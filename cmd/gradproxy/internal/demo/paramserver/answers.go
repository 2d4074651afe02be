package paramserver

import (
	"fmt"
	"slices"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
)

// Receive implements pslitesim.App: an answer of a server.
func (w *Worker) Receive(_ *pslitesim.Node, m *pslitesim.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.pending[m.Timestamp]
	if r == nil || m.Request || m.Head != r.meta.Head || m.SimpleApp != r.meta.SimpleApp || m.Push != r.meta.Push || m.Pull != r.meta.Pull {
		return fmt.Errorf("message with timestamp %d, which answers no request", m.Timestamp)
	}
	if !m.SimpleApp {
		if err := r.take(m); err != nil {
			return fmt.Errorf("answer to the %s: %w", r.what, err)
		}
	}
	if r.left--; r.left == 0 {
		delete(w.pending, m.Timestamp)
		close(r.done)
	}
	return nil
}

// take takes one server's part of an answer. w.mu is held.
func (r *Request) take(m *pslitesim.Message) error {
	i := slices.IndexFunc(r.parts, func(p part) bool { return pslitesim.ServerID(p.server) == m.From })
	if i < 0 {
		return fmt.Errorf("server %d has nothing to answer", pslitesim.Rank(m.From))
	}
	p := r.parts[i]
	r.parts = slices.Delete(r.parts, i, i+1)
	if r.dst == nil {
		return nil
	}
	key, vals, err := open(m, 3)
	if err != nil {
		return err
	}
	if key != p.key || len(vals) != (p.to-p.from)*float32Len {
		return fmt.Errorf("%d bytes of key %#x, want %d of %#x", len(vals), key, (p.to-p.from)*float32Len, p.key)
	}
	decode(r.dst[p.from:p.to], vals)
	return nil
}

// Awaits implements pslitesim.App.
func (w *Worker) Awaits(id int32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.pending {
		if r.meta.SimpleApp && id%2 == 0 || slices.ContainsFunc(r.parts, func(p part) bool { return pslitesim.ServerID(p.server) == id }) {
			return true
		}
	}
	return false
}

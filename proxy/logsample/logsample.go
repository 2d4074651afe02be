// Package logsample keeps a log from being filled by lines that others can trigger at will: a peer that asks for
// destinations that it may not have, a job that connects again and again.
//
// Of the records of one kind the first [Burst] pass. Later ones are counted, and once in every [Interval] the newest
// of them passes too, with the attribute "suppressed": the number of the others. An interval without any begins anew. A
// kind is a level, a message, and the values of the attributes "peer" and "reason"; so these must not contain text that
// others send. Records below [slog.LevelInfo] always pass: an operator that asks for them wants all of them.
package logsample

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// Burst is how many records of a kind pass before one is left out.
	Burst = 5
	// Interval is how long records are counted before one passes with their number.
	Interval = 10 * time.Second
	// maxKinds bounds the kinds that are told apart at a time; all further ones count as one.
	maxKinds = 1024
)

// A Handler is a slog.Handler that samples the records for another one. Handlers that its With methods return share its
// counts.
type Handler struct {
	next         slog.Handler
	peer, reason string // of With
	kinds        *kinds
}

// New returns a Handler that passes records on to next. If next is one already, it is returned as it is.
func New(next slog.Handler) *Handler {
	if h, ok := next.(*Handler); ok {
		return h
	}
	return &Handler{next: next, kinds: &kinds{tallies: map[kind]*tally{}}}
}

// Enabled answers as next does.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// WithAttrs is as slog.Handler wants it.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.next = h.next.WithAttrs(attrs)
	for _, a := range attrs {
		c.note(a)
	}
	return &c
}

// WithGroup is as slog.Handler wants it. Attributes of groups tell kinds apart as well.
func (h *Handler) WithGroup(name string) slog.Handler {
	c := *h
	c.next = h.next.WithGroup(name)
	return &c
}

// note takes in an attribute if it tells kinds apart.
func (h *Handler) note(a slog.Attr) {
	switch a.Key {
	case "peer":
		h.peer = a.Value.String()
	case "reason":
		h.reason = a.Value.String()
	}
}

// Handle passes r on, or counts it.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return h.next.Handle(ctx, r)
	}
	c := *h
	r.Attrs(func(a slog.Attr) bool { c.note(a); return true })
	if !h.kinds.allow(kind{r.Level, r.Message, c.peer, c.reason}, h.next, r) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// Flush passes at once the newest record of each kind that had records left out.
func (h *Handler) Flush() { h.kinds.flush() }

type kind struct {
	level                 slog.Level
	message, peer, reason string
}

// A tally counts the records of a kind.
type tally struct {
	passed int // at most Burst
	left   int // since the last that passed
	newest slog.Record
	next   slog.Handler // of newest
	timer  *time.Timer
}

type kinds struct {
	mu      sync.Mutex
	tallies map[kind]*tally
}

// allow reports whether r may pass; otherwise it is counted.
func (k *kinds) allow(of kind, next slog.Handler, r slog.Record) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tallies[of]
	if t == nil && len(k.tallies) >= maxKinds {
		of = kind{}
		t = k.tallies[of]
	}
	if t == nil {
		t = &tally{}
		t.timer = time.AfterFunc(Interval, func() { k.tick(of, t) })
		k.tallies[of] = t
	}
	if t.passed < Burst {
		t.passed++
		return true
	}
	t.left++
	t.newest, t.next = r.Clone(), next
	return false
}

// tick ends an interval.
func (k *kinds) tick(of kind, t *tally) {
	k.mu.Lock()
	if t.left == 0 {
		if k.tallies[of] == t {
			delete(k.tallies, of)
		}
		k.mu.Unlock()
		return
	}
	tell := t.take()
	t.timer.Reset(Interval)
	k.mu.Unlock()
	tell()
}

// take returns a function that passes the newest record on, with the number of the others, and begins to count anew.
// k.mu is held.
func (t *tally) take() func() {
	r, next, others := t.newest, t.next, t.left-1
	t.newest, t.next, t.left = slog.Record{}, nil, 0
	return func() {
		if others > 0 {
			r.AddAttrs(slog.Int("suppressed", others))
		}
		_ = next.Handle(context.Background(), r) // as slog.Logger does
	}
}

func (k *kinds) flush() {
	k.mu.Lock()
	var tell []func()
	for _, t := range k.tallies {
		t.timer.Stop()
		if t.left > 0 {
			tell = append(tell, t.take())
		}
	}
	clear(k.tallies)
	k.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

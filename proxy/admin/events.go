package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// The page is told of changes by server-sent events:
//
//	live     Live, each second
//	tensors  Tensors that this site sends, every 2 s, or less often where there are very many
//	halves   the peers' Halves, every 5 s
//	shadow   the trials.Report, every 5 s, or null
//
// The events are made once for all readers, and only while there is one. A reader that does not keep up misses events,
// and is disconnected once it has taken nothing for readerPatience; its buffer has room for a few.
const (
	liveEvery    = 1 // seconds
	tensorsEvery = 2
	halvesEvery  = 5
	shadowEvery  = 5

	// maxReaders bounds the readers of events: each takes a connection for as long as its page is open.
	maxReaders = 16
	// readerRoom is how many events may wait for a reader.
	readerRoom = 6
	// readerPatience is how long a reader may take for an event.
	readerPatience = 10 * time.Second
	// halfWait bounds how long a peer may take to show its half.
	halfWait = 4 * time.Second
	// share bounds the part of a core that tensors events take: one in so many.
	share = 200
	// largest is how many tensors are shown one by one.
	largest = 240
)

// A hub makes events and gives them to readers.
type hub struct {
	c *Config

	mu      sync.Mutex
	readers map[*reader]struct{}
	ending  bool
	last    map[string][]byte // the newest event of each kind; of the time when there were readers
	halves  []Half            // the newest; not changed any more
	asking  bool              // the peers are being asked
	stop    context.CancelFunc
}

// A reader is an open page.
type reader struct {
	events chan []byte
	gone   chan struct{} // closed when the proxy ends
}

func newHub(c *Config) *hub {
	return &hub{c: c, readers: map[*reader]struct{}{}, last: map[string][]byte{}}
}

// enter adds a reader; nil: there are too many, or the proxy ends. The reader begins with the newest events.
func (h *hub) enter() *reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ending || len(h.readers) >= maxReaders {
		return nil
	}
	r := &reader{events: make(chan []byte, readerRoom), gone: make(chan struct{})}
	h.readers[r] = struct{}{}
	if len(h.readers) == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		clear(h.last)
		go h.run(ctx)
		return r
	}
	for _, event := range h.last {
		r.events <- event // there is room: the kinds are fewer
	}
	return r
}

func (h *hub) leave(r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, in := h.readers[r]; !in {
		return
	}
	delete(h.readers, r)
	if len(h.readers) == 0 {
		h.stop()
	}
}

// end disconnects all readers.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ending = true
	for r := range h.readers {
		close(r.gone)
	}
}

// run makes events until ctx ends.
func (h *hub) run(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	due := time.Time{} // the next tensors event
	for second := 0; ; second++ {
		if second%liveEvery == 0 {
			h.tell("live", h.c.Live())
		}
		if begin := time.Now(); second%tensorsEvery == 0 && begin.After(due) {
			h.tell("tensors", tensorsOf(h.c.Summary(largest)))
			due = begin.Add(share * time.Since(begin))
		}
		if second%shadowEvery == 0 && h.c.Shadow != nil {
			if r, ok := h.c.Shadow(); ok {
				h.tell("shadow", r)
			} else {
				h.tell("shadow", nil)
			}
		}
		if second%halvesEvery == 0 && h.c.Halves != nil && h.begins() {
			go h.ask(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// begins reports whether nobody is asking the peers, and notes that the caller is about to.
func (h *hub) begins() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	free := !h.asking
	h.asking = true
	return free
}

// ask asks the peers for their halves.
func (h *hub) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, halfWait)
	defer cancel()
	halves := h.c.Halves(ctx)
	h.mu.Lock()
	h.asking, h.halves = false, halves
	h.mu.Unlock()
	h.tell("halves", halves)
}

// half returns the newest view of a peer; nil: there is none.
func (h *hub) half(peer string) *PeerView {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.halves {
		if h.halves[i].Peer == peer {
			return h.halves[i].View
		}
	}
	return nil
}

// tell gives all readers an event.
func (h *hub) tell(kind string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		return // a number that JSON has no form for: the next event will do
	}
	event := fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, text)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last[kind] = event
	for r := range h.readers {
		select {
		case r.events <- event:
		default: // it does not keep up
		}
	}
}

// events sends events until the client leaves.
func (h *hub) events(w http.ResponseWriter, r *http.Request) {
	reader := h.enter()
	if reader == nil {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many pages are open here: close one, or use gradproxy top", http.StatusServiceUnavailable)
		return
	}
	defer h.leave(reader)
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case <-reader.gone:
			return
		case event := <-reader.events:
			_ = out.SetWriteDeadline(time.Now().Add(readerPatience))
			if _, err := w.Write(event); err != nil || out.Flush() != nil {
				return
			}
		}
	}
}

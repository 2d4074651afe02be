package flower

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/http1"
)

// An exchange is the calls of an HTTP/1.1 connection.
type exchange struct {
	conn *connection

	mu         sync.Mutex
	recognized bool
	pending    []pending // requests whose responses have not begun
}

// A pending request waits for its response.
type pending struct {
	head bool  // of the method HEAD
	call *call // nil: nobody looks at the response
}

// maxPending bounds the requests that wait for their responses.
const maxPending = 64

// prefix begins the paths of Flower's calls.
const prefix = "/v1/fleet/"

// An httpStream is one direction of an HTTP/1.1 connection.
type httpStream struct {
	*exchange
	side    parser.Side
	head    http1.Collector
	body    int      // bytes of the body still to come
	message *message // the body; nil: nobody looks at it
	named   *message // of the last segment; nil: it was of none
	method  string   // of the last segment's call
	err     error
	count   struct{ messages, payloads int }
}

// Next implements parser.Parser.
func (s *httpStream) Next(b []byte) (parser.Segment, error) {
	switch {
	case s.err != nil:
		return parser.Segment{}, s.err
	case s.body > 0:
		return s.next(b[:min(len(b), s.body)]), nil
	}
	n, whole, err := s.head.Next(b)
	switch {
	case err != nil:
	case whole == nil:
		err = s.begun(s.head.Begun())
	default:
		if err = s.begun(whole); err == nil {
			err = s.begin(whole)
		}
	}
	if err != nil {
		s.fail(err)
		return parser.Segment{}, s.err
	}
	return parser.Segment{Len: n}, nil
}

// next takes bytes of a body.
func (s *httpStream) next(b []byte) parser.Segment {
	seg := parser.Segment{Len: len(b)}
	s.method, s.named = "", s.message
	if s.message != nil {
		s.method = s.message.call.path
		seg = s.message.Next(b, s.body)
	}
	if s.body -= seg.Len; s.body == 0 {
		s.end()
	}
	return seg
}

// end ends a message.
func (s *httpStream) end() {
	if s.message != nil && s.message.payload {
		s.count.payloads++
	}
	s.message = nil
}

// begun checks the beginning of a head.
func (s *httpStream) begun(head []byte) error {
	want := http.MethodPost + " "
	if s.side == parser.Server {
		want = "HTTP/1."
	}
	if s.Recognized() && s.side == parser.Client {
		return nil // a GET may follow
	}
	if n := min(len(head), len(want)); string(head[:n]) != want[:n] {
		return http1.ErrHead
	}
	return nil
}

// begin begins a message, whose head is whole.
func (s *httpStream) begin(head []byte) error {
	if s.side == parser.Client {
		return s.request(head)
	}
	return s.response(head)
}

// request begins a request.
func (s *httpStream) request(head []byte) error {
	r, err := http1.ParseRequest(head)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodConnect:
		return fmt.Errorf("%w: a tunnel follows", http1.ErrHead)
	case !s.recognized && (r.Method != http.MethodPost || !strings.HasPrefix(r.Path, prefix)):
		return fmt.Errorf("%w of Flower's: %s %.40q", http1.ErrHead, r.Method, r.Path)
	case len(s.pending) >= maxPending:
		return fmt.Errorf("%w: %d requests are not answered", http1.ErrHead, maxPending)
	}
	s.recognized = true
	p := pending{head: r.Method == http.MethodHead}
	if r.Method == http.MethodPost && r.Header.Get("Content-Encoding") == "" {
		p.call = s.conn.open(r.Path)
	}
	s.pending = append(s.pending, p)
	s.start(p.call, r.Body)
	return nil
}

// response begins a response.
func (s *httpStream) response(head []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return fmt.Errorf("%w: a response without a request", http1.ErrHead)
	}
	p := s.pending[0]
	method := http.MethodGet // any other than HEAD
	if p.head {
		method = http.MethodHead
	}
	r, err := http1.ParseResponse(head, method)
	switch {
	case err != nil:
		return err
	case r.Status == http.StatusSwitchingProtocols:
		return fmt.Errorf("%w: another protocol follows", http1.ErrHead)
	case r.Status < 200: // the final response follows
		return nil
	}
	if s.pending = s.pending[1:]; len(s.pending) == 0 {
		s.pending = nil
	}
	if r.Status != http.StatusOK || r.Header.Get("Content-Encoding") != "" {
		p.call = nil
	}
	s.start(p.call, r.Body)
	return nil
}

// start begins the body of a message, of n bytes.
func (s *httpStream) start(c *call, n int) {
	s.count.messages++
	s.message, s.body = c.message(s.side, n), n
	if n == 0 {
		s.end()
	}
}

// fail notes that the stream is not, or no longer, understood.
func (s *httpStream) fail(err error) {
	if s.count.messages == 0 {
		s.err = fmt.Errorf("flower: from the %v: %w: %w", s.side, err, parser.ErrForeign)
		return
	}
	s.err = fmt.Errorf("flower: after %d messages from the %v: %w: the rest travels verbatim", s.count.messages, s.side, err)
}

// Messages implements parser.Counter: it counts requests or responses, and the ones with elements of arrays.
func (s *httpStream) Messages() (all, payloads int) { return s.count.messages, s.count.payloads }

// Recognized implements parser.Counter.
func (s *httpStream) Recognized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recognized
}

// Method implements parser.Dispatched.
func (s *httpStream) Method() string { return s.method }

var (
	_ parser.Counter    = (*httpStream)(nil)
	_ parser.Dispatched = (*httpStream)(nil)
)

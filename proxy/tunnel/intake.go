package tunnel

import (
	"io"
	"runtime"
	"time"

	"github.com/gradproxy/gradproxy/proxy/internal/allowance"
)

// The limit of a peer's records. To take a record costs 80 ns of the processor however short the record is, and a peer
// may send 20 million of two bytes each in a second. Records of TLS may be as short, and each takes a call of the Link.
// So records and calls take from an allowance of the peer. A carrier whose reader finds none is not read for a while:
// its bytes wait in its connection, and then at the peer. No job comes near the limit: an app that is to get a message
// of its own costs this side 2 µs or more.
const (
	recordRate    = 250_000 // a second for each core
	recordBurst   = time.Second
	recordsAtOnce = 256 // at a time
)

// An intake bounds the records of one peer, on all its carriers.
type intake struct {
	mu        innermostLock
	allowance allowance.Allowance
}

// begin makes the allowance whole.
func (i *intake) begin() {
	rate := float64(recordRate * runtime.GOMAXPROCS(0))
	i.allowance = allowance.New(rate, rate*recordBurst.Seconds(), time.Now())
}

// await takes n units, and waits until they have come.
func (i *intake) await(n int) {
	i.mu.Lock()
	late := i.allowance.Take(float64(n), time.Now())
	i.mu.Unlock()
	time.Sleep(late)
}

// A pacedReader reads a Link no faster than the peer's intake allows. One goroutine uses it.
type pacedReader struct {
	link   io.Reader
	intake *intake
	due    int // records and calls that are not paid for
}

// Read implements io.Reader.
func (r *pacedReader) Read(p []byte) (int, error) {
	r.spend()
	return r.link.Read(p)
}

// spend pays for a record, or a call of the Link.
func (r *pacedReader) spend() {
	if r.due++; r.due == recordsAtOnce {
		r.intake.await(r.due)
		r.due = 0
	}
}

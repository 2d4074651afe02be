package send

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
)

// A reader reads from the app, and limits the time that a block waits for its rest.
type reader struct {
	*direction
	classify *classifier
	cut      *cutter
	app      *app.Reader
	armed    bool          // a read deadline is set
	reading  memory.Buffer // the buffer that was read into, unless a block has adopted it
	unsent   unsent
	narrower narrower
}

const (
	// betweenTensors is the number of bytes that are read when a large tensor has ended and another is likely to
	// follow: room for the bytes between the two, and for little of the next tensor, which must be copied to its block.
	betweenTensors = 16 << 10
	// ahead is the number of bytes beyond the end of a block that are worth waiting for if they are sure to come: twice
	// as many as a segment on loopback holds.
	ahead = 128 << 10
)

// run carries the app's bytes until its end (nil: a FIN), path.ErrRest or another error.
func (r *reader) run() error {
	if err := r.resend(); err != nil {
		return err
	}
	r.narrower.begin(r.app, r.rate())
	for {
		if r.conn.Rests() {
			if err := r.cut.fallBack(false); err != nil {
				return err
			}
			return path.ErrRest
		}
		if err := r.deadline(); err != nil {
			return err
		}
		came, err := r.once()
		if came {
			if err == nil && r.cut.group.overdue() {
				err = r.cut.fallBack(true)
			}
			if err != nil {
				return err
			}
			continue
		}
		stalled := errors.Is(err, os.ErrDeadlineExceeded)
		if e := r.cut.fallBack(stalled); e != nil {
			return e
		}
		if !stalled {
			return r.ended(err)
		}
	}
}

// rate returns the rate of the link in bytes per second; 0: not known.
func (r *reader) rate() float64 {
	_, rate := r.conn.Stream.Path()
	return rate
}

// resend hands on the bytes that the Sender before this one has read while it was at rest.
func (r *reader) resend() error {
	defer r.unsent.drop()
	for _, p := range r.unsent.pieces {
		if err := r.classify.take(p.B, nil); err != nil {
			return err
		}
	}
	return nil
}

// ended returns nil if err is a FIN, and an error that wraps path.ErrAppGone if it is a reset. A reset can look like
// the end of the stream if a write has used up its error.
func (r *reader) ended(err error) error {
	if err == io.EOF && !r.conn.WasReset() {
		return nil
	}
	return fmt.Errorf("%w: %w", path.ErrAppGone, err)
}

// deadline limits the time of the next read if a block waits whose rest may not come before the app has an answer.
func (r *reader) deadline() error {
	if !r.cut.group.timed && !r.armed {
		return nil
	}
	var at time.Time
	if r.armed = r.cut.group.timed; r.armed {
		at = time.Now().Add(stallAfter)
	}
	return r.conn.SetReadDeadline(at)
}

// once reads once and hands the bytes on. If none came the error is that of reading.
func (r *reader) once() (came bool, err error) {
	next := &r.cut.direct
	if rest := next.rest(); rest != nil {
		n, spare, err := r.app.Read(app.Request{Into: rest, Room: frame.MaxHeader, Size: frame.MaxHeader + len(rest), Min: r.minBytes(len(rest)), Ahead: r.cut.limit})
		if err != nil {
			return false, err
		}
		r.narrower.came(r.app, n, r.rate())
		return true, r.classify.direct(rest[:n], spare)
	}
	q := app.Request{Room: frame.MaxHeader, Size: readSize, Min: 1}
	if n := next.block(); n > 0 {
		q.Size, q.Min, q.Ahead = frame.MaxHeader+n, r.minBytes(n), r.cut.limit
	} else if next.ended {
		q.Size, next.ended = betweenTensors, false
	}
	var n int
	n, r.reading, err = r.app.Read(q)
	if err != nil {
		return false, err
	}
	r.narrower.came(r.app, n, r.rate())
	err = r.classify.take(r.reading.B, &r.reading)
	r.alloc.Put(r.reading)
	r.reading = memory.Buffer{}
	return true, err
}

// minBytes returns the number of bytes for which a read of n bytes should wait: one, unless the app writes all n
// without waiting for an answer. Then it is n and, unless a block waits under the stall timer, some bytes that surely
// follow.
func (r *reader) minBytes(n int) int {
	switch hold := r.cut.direct.hold; {
	case hold < n:
		return 1
	case r.cut.group.timed:
		return n
	default:
		return min(hold, n+ahead)
	}
}

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
	// betweenTensors is how much is read where a large tensor has ended and another is likely to follow: room for the
	// bytes between them and for little of the next, which has to be copied to its block.
	betweenTensors = 16 << 10
	// ahead is how many bytes more than a block lacks are worth waiting for, where they are sure to come: twice as many
	// as a segment on loopback holds.
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

// resend hands on the bytes that the Sender before has read at rest.
func (r *reader) resend() error {
	defer r.unsent.drop()
	for _, p := range r.unsent.pieces {
		if err := r.classify.take(p.B, nil); err != nil {
			return err
		}
	}
	return nil
}

// ended makes a FIN no error. The end of the stream is no FIN if a write has used up the error of the reset that it is.
func (r *reader) ended(err error) error {
	if err == io.EOF && !r.conn.WasReset() {
		return nil
	}
	return fmt.Errorf("%w: %w", path.ErrAppGone, err)
}

// deadline limits the next read where a block waits that its sender may not be able to complete.
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

// minBytes returns for how many bytes to wait where n are wanted: for all, and for some that follow them, if the app
// writes them without waiting for an answer and nothing that is timed waits besides.
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

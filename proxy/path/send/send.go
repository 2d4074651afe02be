// Package send carries a connection's bytes from the app to the tunnel. Only the sender decides how a tensor travels;
// frames tell the receiver.
//
//	app ─▶ read ─▶ classify ─▶ cut ─▶ choose ─▶ encode ─▶ emit ─▶ tunnel
//
//	read      the app's bytes, by a direct read where they are likely to belong to a block, and how long a block waits for its rest
//	classify  asks the parser whose bytes they are
//	cut       tensors into blocks at fixed offsets; the bytes between blocks that wait form a group with them
//	choose    how a value and each of its blocks travel: policy, content check, residuals, value cache; no other stage imports their packages
//	encode    blocks, on any core, in the turns of their slots
//	emit      frames in stream order, and bytes that travel verbatim
//
// Each stage is a type in a file of its own and calls only the stages after it. direction.go has the state that all
// stages share, block.go, group.go and spare.go the data that goes from stage to stage; narrow.go and unsent.go belong
// to read, direct.go and tensorcut.go to cut, plan.go, past.go and rows.go to choose, slots.go to encode. rowblock.go,
// denseflush.go and contribution.go have the work on residuals before and after the encoding of a block: choose picks
// it, and encode runs it.
package send

import (
	"errors"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Sender is one direction of a connection, from the app to the tunnel: its six stages.
type Sender struct {
	direction direction
	read      reader
	classify  classifier
	cut       cutter
	choose    chooser
	encode    encoder
	emit      emitter
}

// New returns the Sender of a connection's direction f, which it reads from c.App.
func New(c *path.Conn, f policy.Flow) (*Sender, error) {
	s := Detached(c, f, func(error) { c.Abort(frame.ResetByFrames) })
	var err error
	s.read.app, err = app.NewReader(c.App, &s.direction.alloc, s.emit.flush)
	s.emit.tellsIdle = s.read.app.TellsIdle()
	return s, err
}

// Detached returns a Sender that reads from no app. The caller gives it bytes by Opaque and Tensor. The Sender calls
// failed, unless that is nil, with the first error of the stream.
func Detached(c *path.Conn, f policy.Flow, failed func(error)) *Sender {
	s := &Sender{direction: direction{conn: c, flow: f}}
	d := &s.direction
	d.alloc = memory.NewAllocator(c.Env.Buffers, c.Env.Sending, c.SendShare)
	s.emit = emitter{direction: d, pipe: pipe.New(c.Env.Pool, path.Depth, failed)}
	s.encode = encoder{direction: d, emit: &s.emit}
	s.choose = chooser{direction: d, encode: &s.encode, emit: &s.emit, past: past{direction: d}}
	s.choose.rows = rowChooser{direction: d, past: &s.choose.past}
	s.cut = cutter{direction: d, choose: &s.choose, emit: &s.emit}
	s.classify = classifier{direction: d, cut: &s.cut, choose: &s.choose}
	s.read = reader{direction: d, classify: &s.classify, cut: &s.cut}
	return s
}

// Parse sets the parser of the app's bytes; it must be called before Run.
func (s *Sender) Parse(p parser.Parser) { s.classify.parser, s.direction.namer = p, p }

// Recognized names the protocol of the bytes once the parser has seen a tensor.
func (s *Sender) Recognized(protocol string) { s.direction.flow.Protocol = protocol }

// Run carries the app's bytes. It returns nil after the app's FIN, path.ErrAppGone after a reset by the app,
// path.ErrRest when the direction is at rest, and another error when the tunnel ends. All bytes that were read have
// then been submitted, but they may not have left.
func (s *Sender) Run() error {
	err := s.read.run()
	if shadow := s.direction.conn.Shadow; shadow != nil {
		shadow.Close()
	}
	s.choose.rows.drop()
	s.emit.release(&s.cut.group) // the bytes that an error has left waiting
	if !errors.Is(err, path.ErrRest) {
		s.Forget()
	}
	return err
}

// Forget ends the connection's part in its job, and forgets the connection's tensors if its protocol does. It must be
// called for a Sender at rest that no other Sender continues. Else Run does it.
func (s *Sender) Forget() {
	s.choose.past.forget(s.classify.forgets())
	s.choose.past.leave()
	s.read.unsent.drop()
}

// Continue makes s, which must not have run, take over the parser, the protocol and the past of the tensors from old, a
// Sender of the same direction that is at rest. Slots are declared anew.
func (s *Sender) Continue(old *Sender) {
	s.classify.parser, s.classify.ended = old.classify.parser, old.classify.ended
	s.direction.flow, s.direction.namer, s.direction.come = old.direction.flow, old.direction.namer, old.direction.come
	s.choose.lossy = old.choose.lossy
	s.choose.past.job, s.choose.past.dense, s.choose.past.rows = old.choose.past.job, old.choose.past.dense, old.choose.past.rows
	old.choose.past = past{direction: old.choose.past.direction}
	s.read.unsent, old.read.unsent = old.read.unsent, unsent{}
}

// Wait waits until everything that was submitted has left, and returns the first error.
func (s *Sender) Wait() error { return s.emit.pipe.Wait() }

// Opaque sends bytes that belong to no tensor. They begin behind frame.MaxHeader bytes of room in buf.
func (s *Sender) Opaque(buf []byte) error { return s.cut.opaque(buf) }

// Tensor sends bytes of t, which begin behind frame.MaxHeader bytes of room in buf.
func (s *Sender) Tensor(t tensor.Tensor, buf []byte) error { return s.cut.tensor(t, buf, nil) }

// End sends the bytes that wait verbatim, and forgets the connection's tensors if its protocol does. It must not be
// called after Run.
func (s *Sender) End() error {
	err := s.cut.fallBack(false)
	s.choose.past.forget(false)
	s.choose.past.leave()
	return err
}

const (
	// unreadMax is the maximum of memory, in bytes, in which a Sender at rest keeps the app's bytes.
	unreadMax = 64 << 20
	// stuckFor is how long the app must take no byte before a Sender at rest reads from it.
	stuckFor = 20 * time.Millisecond
)

// Unstick reads from the app of a connection at rest, until done is closed, whenever stuck reports that the app takes
// nothing: an app that writes before it reads goes on to read only when somebody reads from it, and the connection
// comes to rest only when the app has read all that was under way. The bytes wait for the Sender that continues this
// one.
func (s *Sender) Unstick(done <-chan struct{}, stuck func() bool) {
	t := time.NewTicker(stuckFor)
	defer t.Stop()
	u := &s.read.unsent
	for u.bytes < unreadMax {
		select {
		case <-done:
			return
		case <-t.C:
		}
		if !stuck() {
			continue
		}
		n, buf := s.read.app.ReadNow(app.Request{Room: frame.MaxHeader, Size: readSize})
		if n == 0 {
			continue
		}
		if n < readSize/2 { // it takes memory for its bytes only
			if small, ok := s.direction.alloc.Copy(buf.B); ok {
				s.direction.alloc.Put(buf)
				buf = small
			}
		}
		u.alloc, u.pieces, u.bytes = &s.direction.alloc, append(u.pieces, buf), u.bytes+buf.Cost
	}
	c := s.direction.conn
	c.Log.Warn("connection reset: its app writes without end before it reads, so it cannot come to rest while a process is replaced", "kept", u.bytes)
	c.Abort(frame.ResetByApp)
}

// Unsent reports whether bytes of Unstick wait: only this process has them.
func (s *Sender) Unsent() bool { return s.read.unsent.bytes > 0 }

package proxy

import (
	"errors"
	"fmt"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	mem "github.com/gradproxy/gradproxy/proxy/memory"
	"io"
	"os"
	"time"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

const (
	// readSize is how much is read from the app at a time, room for a header before it included: with less the system
	// calls cost more than the copy.
	readSize = 256 << 10
	// stallAfter is how long a block waits for more bytes where the sender may be waiting for an answer (flow
	// control), and stallMost how long it waits at most, however the bytes drip.
	stallAfter = 5 * time.Millisecond
	stallMost  = 4 * stallAfter
	// pipeDepth is how many groups of one direction may be under way between the app and the tunnel.
	pipeDepth = 8
)

// A sender is one direction of a connection, from the app to the tunnel.
type sender struct {
	*connection
	lender      mem.Allocator
	parser      parser.Parser // of what the app sends
	flow        policy.Flow
	app         *app.Reader
	pipe        *pipe.Pipe
	slots       sendSlots
	group       group
	most        int // bytes that may wait together
	cuts        map[uint64]*tensorCut
	memories    map[uint64]*residual.Dense // of its tensors, by key
	index       rowIndex
	rows        map[uint64]*rowUse        // of its sparse tensors, by their index's key
	rowMemories map[uint64]*residual.Rows // the same
	lossy       bool                      // loss was used on this direction
	ended       error                     // why the parser gave up; nil: it has not
	armed       bool                      // a read deadline is set
	straight    straight
	reading     mem.Buffer // what was read into, unless a block has adopted it
	held        int        // groups whose frames wait in the tunnel for more
}

// run carries the app's bytes until its FIN (nil), a reset by the app or the tunnel's end (an error). What was read has
// been submitted then; it may not have left.
func (s *sender) run() (err error) {
	defer s.forget()
	defer func() { s.release(&s.group) }() // what an error has left waiting
	defer s.dropIndex()
	for {
		if err := s.deadline(); err != nil {
			return err
		}
		came, err := s.read()
		if came {
			if err == nil && s.overdue() {
				err = s.spoil(true)
			}
			if err != nil {
				return err
			}
			continue
		}
		stalled := errors.Is(err, os.ErrDeadlineExceeded)
		if e := s.spoil(stalled); e != nil {
			return e
		}
		if !stalled {
			return s.appEnded(err)
		}
	}
}

// appEnded makes a FIN no error. The end of the stream is no FIN if a write has used up the error of the reset that it is.
func (s *sender) appEnded(err error) error {
	if err == io.EOF && !s.wasReset() {
		return nil
	}
	return fmt.Errorf("%w: %w", errAppGone, err)
}

// deadline limits the next read where a block waits that its sender may not be able to complete.
func (s *sender) deadline() error {
	if !s.group.timed && !s.armed {
		return nil
	}
	var at time.Time
	if s.armed = s.group.timed; s.armed {
		at = time.Now().Add(stallAfter)
	}
	return s.conn.SetReadDeadline(at)
}

// overdue reports whether a block has waited for longer than it may.
func (s *sender) overdue() bool { return s.group.timed && time.Since(s.group.since) > stallMost }

// take classifies and sends what was read. buf begins with frame.MaxHeader bytes of room.
func (s *sender) take(buf []byte) error {
	if len(buf) == frame.MaxHeader {
		return nil
	}
	seg, err := s.ask(buf[frame.MaxHeader:])
	return s.classified(buf, seg, err)
}

// classified is take, once the parser has been asked for the first time.
func (s *sender) classified(buf []byte, seg parser.Segment, err error) error {
	opaque := frame.MaxHeader // where the opaque bytes begin that have not been sent
	for at := frame.MaxHeader; ; {
		if err != nil {
			if err := s.gaveUp(err); err != nil {
				return err
			}
			break
		}
		end := at + seg.Len
		if seg.Tensor.Size > 0 {
			if err := s.opaque(buf[opaque-frame.MaxHeader : at]); err != nil {
				return err
			}
			if err := s.tensor(seg.Tensor, buf[at-frame.MaxHeader:end]); err != nil {
				return err
			}
			opaque = end
		} else {
			s.straight.other()
		}
		if at = end; at == len(buf) {
			break
		}
		seg, err = s.ask(buf[at:])
	}
	return s.opaque(buf[opaque-frame.MaxHeader:])
}

// ask asks the parser; after its first error everything is opaque.
func (s *sender) ask(b []byte) (parser.Segment, error) {
	if s.ended != nil {
		return parser.Segment{Len: len(b)}, nil
	}
	return s.parser.Next(b)
}

// gaveUp takes note of the parser's error. What it returns ends the connection.
func (s *sender) gaveUp(err error) error {
	s.ended = err
	s.straight = straight{}
	s.shared.Metrics.GaveUp(s.flow.Protocol)
	if errors.Is(err, parser.ErrForget) {
		s.forget()
	}
	if !errors.Is(err, parser.ErrForeign) {
		s.log.Warn("stream is no longer understood and travels verbatim", "direction", s.flow.Direction, "err", err)
	}
	if errors.Is(err, parser.ErrReset) && s.lossy {
		return fmt.Errorf("proxy: loss was used on a false verdict: %w", err)
	}
	return s.spoil(false) // the rest of a block that waits will never be told from other bytes
}

// opaque sends bytes verbatim, at once unless they stand behind a block that waits. buf begins with frame.MaxHeader bytes of
// room, which are overwritten.
func (s *sender) opaque(buf []byte) error {
	b := buf[frame.MaxHeader:]
	if len(b) == 0 {
		return nil
	}
	if s.group.open > 0 {
		if cost := literalCost * len(b); s.lender.Take(cost) {
			s.group.addLiteral(b, cost)
			if s.group.overfull(0, s.most) {
				return s.spoil(true)
			}
			return nil
		}
		if err := s.spoil(true); err != nil {
			return err
		}
	}
	frame := frame.Front(buf, frame.Bytes, 0)
	s.shared.Metrics.Sent(policy.Verbatim, tensor.Unknown, len(b), len(frame))
	write := func() error { return s.write(frame) }
	sent, err := s.pipe.Try(write)
	if sent || err != nil {
		return err
	}
	kept, ok := s.lender.Copy(frame)
	if !ok {
		s.pipe.Wait()
		_, err := s.pipe.Try(write)
		return err
	}
	return s.pipe.Do(pipe.Item{
		Emit: func() error { return s.write(kept.B) },
		Done: func() { s.lender.Put(kept) },
	})
}

// tensor cuts a segment of t, whose bytes begin after frame.MaxHeader bytes of room in buf, into blocks.
func (s *sender) tensor(t tensor.Tensor, buf []byte) error {
	if t.Index() {
		s.indexed(t, buf[frame.MaxHeader:])
	}
	c, err := s.cut(t)
	if err != nil {
		return err
	}
	s.straight.follow(c, t, len(buf)-frame.MaxHeader)
	if c == nil {
		return s.opaque(buf)
	}
	for len(buf) > frame.MaxHeader {
		if c.left == 0 {
			if err := s.startBlock(c, t.Hold-(c.off-t.Off), buf); err != nil {
				return err
			}
		}
		n := min(c.left, len(buf)-frame.MaxHeader)
		if err := s.bytesOf(c, buf[:frame.MaxHeader+n]); err != nil {
			return err
		}
		buf = buf[n:]
		s.advance(c, n)
	}
	return nil
}

// advance notes that a tensor's next n bytes have been dealt with.
func (s *sender) advance(c *tensorCut, n int) {
	c.left -= n
	c.off += n
	if c.off >= c.t.Size {
		delete(s.cuts, c.t.Key)
		s.straight.end(c.t.Size)
	}
}

// bytesOf gives a block its next bytes, or sends them verbatim where there is no block.
func (s *sender) bytesOf(c *tensorCut, buf []byte) error {
	if c.block == nil {
		n := len(buf) - frame.MaxHeader
		c.record.Sent(n, n)
		return s.opaque(buf)
	}
	if to, b := c.block.data[c.block.filled:], buf[frame.MaxHeader:]; &to[0] != &b[0] {
		copy(to, b)
	}
	return s.came(c, len(buf)-frame.MaxHeader)
}

// came notes that a block's next n bytes have come to where they belong.
func (s *sender) came(c *tensorCut, n int) error {
	whole := s.group.fill(c.block, n)
	if c.block.filled == len(c.block.data) {
		c.block = nil
	}
	switch {
	case whole:
		return s.sendGroup()
	case s.payRuns():
		return nil
	}
	return s.spoil(true)
}

// payRuns takes memory for the runs of the group that waits, a number of them at a time.
func (s *sender) payRuns() bool {
	const n = 64
	if len(s.group.runs) < s.group.paidRuns {
		return true
	}
	if !s.lender.Take(n * runCost) {
		return false
	}
	s.group.paid += n * runCost
	s.group.paidRuns += n
	return true
}

// cut returns the state of a tensor whose bytes are under way, or nil if they travel verbatim: the policy says so, or
// its beginning was not seen.
func (s *sender) cut(t tensor.Tensor) (*tensorCut, error) {
	if c := s.cuts[t.Key]; c != nil {
		if c.off == t.Off && c.t.Size == t.Size {
			return c, nil
		}
		delete(s.cuts, t.Key)
		if c.block != nil { // its rest will not come
			if err := s.spoil(false); err != nil {
				return nil, err
			}
		}
	}
	if t.Off != 0 || len(s.cuts) >= maxCuts {
		return nil, nil
	}
	if t.Size%t.DType.Size() != 0 {
		t.DType, t.Why = tensor.NoDType, tensor.DTypeUnknown
	}
	s.most = s.shared.allowance()
	record := s.shared.tensors.Of(s.flow, t)
	c := &tensorCut{record: record, t: t}
	s.decide(c)
	record.Chose(t.Size, c.text, c.choice.Why, t.Why)
	if c.choice.Codec == nil {
		s.shared.Metrics.FellBack(c.choice.Why)
		record.Sent(t.Size, t.Size)
		return nil, nil
	}
	cutter := c.choice.Codec
	if c.shared { // by whatever codec the peer's values of it travel, they are of the same blocks
		cutter = s.shared.lossless
	}
	c.want = min(max(cutter.Block(t.Size), c.unit()), frame.MaxBlock/2, s.most)
	c.want -= c.want % c.unit()
	if s.cuts == nil {
		s.cuts = map[uint64]*tensorCut{}
	}
	s.cuts[t.Key] = c
	return c, nil
}

// startBlock begins the block at c.off, or a run of the same length that travels verbatim: there is no memory, or the
// codec does not take such a block. Its first bytes are in buf, behind frame.MaxHeader bytes of room.
func (s *sender) startBlock(c *tensorCut, hold int, buf []byte) error {
	n, timed := c.next(hold)
	c.left = n
	if n%c.unit() != 0 || c.rows != nil && (c.off%c.unit() != 0 || c.rows.index != s.index.number) {
		return nil
	}
	if s.group.overfull(n, s.most) {
		if err := s.spoil(true); err != nil {
			return err
		}
	}
	decl := declarationOf(c, s.job, n)
	var slot *sendSlot
	if c.shared {
		decl.Job, decl.Key, decl.Off, decl.Base, decl.Keys = s.job, c.t.Base, c.off, c.t.Base, c.t.Keys
	} else {
		var err error
		if slot, err = s.slots.get(decl, c.choice, c.memory, c.odd(n)); err != nil {
			s.shared.Metrics.FellBack(tensor.NoGain)
			return nil
		}
	}
	room := frameRoom(&decl, c.choice.Codec)
	adopts := s.adoptable(buf, n)
	cost := mem.Footprint(room)
	if !adopts {
		cost += mem.Footprint(n)
	}
	if c.rows != nil {
		cost += s.rowBlockCost(c, n/c.rows.bytes)
	}
	if !s.hold(cost) {
		s.shared.Metrics.FellBack(tensor.NoMemory)
		c.record.Refused(tensor.NoMemory)
		return nil
	}
	var pooled []byte
	if adopts {
		pooled = s.reading.B[:frame.MaxHeader+n]
		cost += s.reading.Paid
		s.reading = mem.Buffer{}
	} else {
		pooled = s.shared.buffers.Get(n)
	}
	c.block = &sendBlock{slot: slot, data: pooled[len(pooled)-n:], pooled: pooled, room: room, cost: cost, record: c.record, role: c.t.Role, text: c.text,
		choice: c.choice, decl: decl, odd: c.odd(n), flush: c.flush, watch: c.watch, off: c.off}
	if c.rows != nil {
		c.block.rows = s.rowsOf(c, n)
	}
	s.group.start(c.block, timed)
	return nil
}

// hold takes n bytes. Where there are none it waits until what is under way has left, and has given back its own.
func (s *sender) hold(n int) bool {
	if s.lender.Take(n) {
		return true
	}
	s.pipe.Wait()
	return s.lender.Take(n)
}

// write gives whole frames, at least one, to the tunnel.
func (s *sender) write(frames ...[]byte) error {
	last := len(frames) - 1
	for _, f := range frames[:last] {
		if _, err := s.stream.WriteMore(f); err != nil {
			return err
		}
	}
	_, err := s.stream.Write(frames[last])
	return err
}

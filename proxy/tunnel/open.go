package tunnel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The first bytes of a stream are the opening: its length (2 bytes) and the opener's bytes. The first bytes of
// the other direction are the answer: a Code (4 bytes, 0: accepted), the length of a text (2 bytes) and the
// text. Being bytes of the stream they arrive once, in order and through any loss of carriers.

// open opens a stream and waits for the answer.
func (s *session) open(ctx context.Context, opening []byte) (*Stream, error) {
	if len(opening) > maxOpening {
		return nil, fmt.Errorf("tunnel: opening of %d bytes, more than %d", len(opening), maxOpening)
	}
	st, err := s.create(ctx)
	if err != nil {
		return nil, err
	}
	st.sentBase = 2 + uint64(len(opening))
	stop := context.AfterFunc(ctx, func() { st.Reset(CodeCanceled) })
	err = st.negotiate(opening)
	if errors.Is(err, ErrSessionLost) && st.nothingSent() {
		err = fmt.Errorf("%w: %s", ErrNotSent, s.far.name)
	}
	if !stop() {
		err = fmt.Errorf("tunnel: opening a stream to %s: %w", s.far.name, context.Cause(ctx))
	}
	if err != nil {
		st.Reset(CodeCanceled) // of no effect on a stream that has ended
		return nil, err
	}
	return st, nil
}

// nothingSent reports whether no byte of a stream has been given to a carrier.
func (st *Stream) nothingSent() bool {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.left == 0
}

// create waits until the peer allows another stream, and makes it.
func (s *session) create(ctx context.Context) (*Stream, error) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.openCond.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("tunnel: opening a stream to %s, which has %d: %w", s.far.name, len(s.streams), context.Cause(ctx))
		case s.err != nil:
			if errors.Is(s.err, ErrSessionLost) {
				return nil, fmt.Errorf("%w: %w", ErrNotSent, s.err)
			}
			return nil, s.err
		case s.draining:
			return nil, fmt.Errorf("%w: this side", ErrDraining)
		case s.goneAway:
			return nil, fmt.Errorf("%w: %s", ErrDraining, s.far.name)
		case s.opened < s.openLimit:
			s.opened++
			return &Stream{stream: s.newStream(streamID(s.opened-1, s.even)), session: s}, nil
		}
		s.openCond.Wait()
	}
}

// negotiate sends the opening and takes the answer.
func (st *Stream) negotiate(opening []byte) error {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(opening)), uint16(len(opening)))
	if _, err := st.Write(append(b, opening...)); err != nil {
		return err
	}
	var head [6]byte
	if _, err := io.ReadFull(st, head[:]); err != nil {
		return fmt.Errorf("no answer to the opening: %w", err)
	}
	n := int(binary.BigEndian.Uint16(head[4:]))
	if n > maxText {
		return fmt.Errorf("tunnel: %s answers with a text of %d bytes", st.Peer(), n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(st, text); err != nil {
		return fmt.Errorf("answer to the opening cut short: %w", err)
	}
	st.session.mu.Lock()
	st.recvBase = uint64(len(head) + n)
	st.session.mu.Unlock()
	if code := Code(binary.BigEndian.Uint32(head[:])); code != 0 {
		st.Close()
		return &RefusedError{Peer: st.Peer(), Code: code, Text: oneLine(text)}
	}
	return nil
}

package tunnel

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Errors that a caller may want to tell apart with errors.Is. Every error that wraps one says more: which peer, why.
var (
	// ErrUnknownPeer: no peer of that name is configured.
	ErrUnknownPeer = errors.New("tunnel: unknown peer")
	// ErrPeerDown: there is no session with the peer, and none to wait for.
	ErrPeerDown = errors.New("tunnel: peer is down")
	// ErrNeverUp, which wraps ErrPeerDown: nor has there been one with a peer of this name since the Endpoint was made.
	ErrNeverUp = fmt.Errorf("%w: no session has come up yet", ErrPeerDown)
	// ErrDraining: this side or the peer takes no new streams, since it is about to end.
	ErrDraining = errors.New("tunnel: draining")
	// ErrSessionLost: the session that carried the stream is over (resume time, restart, protocol error), and
	// with it the stream. The bytes that the far application has received are a prefix of the bytes that were written.
	ErrSessionLost = errors.New("tunnel: session lost")
	// ErrNotSent, which wraps ErrSessionLost: and no byte of the stream's opening had left this side, so it may be
	// opened anew.
	ErrNotSent = fmt.Errorf("%w before anything was sent", ErrSessionLost)
	// ErrClosed: the stream's end, or the Endpoint, was closed on this side.
	ErrClosed = errors.New("tunnel: closed")
)

// A Code says why a stream was reset or an opening refused. Codes below 256 are the tunnel's; the others are
// the application's, which the tunnel only carries.
type Code uint32

const (
	CodeCanceled Code = 1 // the opener gave up waiting, or the acceptor returned without an answer
	CodeClosed   Code = 2 // data came after Stream.Close
	CodeDraining Code = 3 // the side takes no new streams
	CodeMemory   Code = 4 // the memory budget of the side is spent
	CodeApp      Code = 256
)

func (c Code) String() string {
	switch c {
	case CodeCanceled:
		return "canceled"
	case CodeClosed:
		return "closed"
	case CodeDraining:
		return "draining"
	case CodeMemory:
		return "out of memory budget"
	}
	return fmt.Sprintf("code %d", uint32(c))
}

// errAgain: the session was replaced while the carrier was on its way to it; the next dial will fit.
var errAgain = errors.New("the peer has another session")

// errBroken: the bytes of a carrier break the protocol, so that nothing can be believed any longer.
var errBroken = errors.New("protocol broken")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errBroken, fmt.Errorf(format, args...))
}

// oneLine returns a text of the peer's as one line that shows as it is: valid UTF-8, and a space for every character
// that is not graphic.
func oneLine(text []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return ' '
	}, string(text)) // Map takes bytes that are not UTF-8 for U+FFFD
}

// A RefusedError is the peer's answer to an opening that it does not take.
type RefusedError struct {
	Peer string
	Code Code
	Text string // one line, at most 1,024 bytes, from the peer: show it, do not parse it
}

func (e *RefusedError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("tunnel: %s refused the stream: %v", e.Peer, e.Code)
	}
	return fmt.Sprintf("tunnel: %s refused the stream: %v: %s", e.Peer, e.Code, e.Text)
}

// A ResetError is how a stream ended that one side has reset.
type ResetError struct {
	Peer   string
	Code   Code
	Remote bool // the peer did it
}

func (e *ResetError) Error() string {
	who := "here"
	if e.Remote {
		who = "by " + e.Peer
	}
	return fmt.Sprintf("tunnel: stream reset %s: %v", who, e.Code)
}

// errEnded ends a carrier on which the peer has given the session up.
var errEnded = errors.New("ended by the peer")

// errRetired ends a carrier that both sides have left.
var errRetired = errors.New("retired")

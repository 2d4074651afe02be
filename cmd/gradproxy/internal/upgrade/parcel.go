// Package upgrade passes the connections of a process to the one that takes its place, over a unix socket:
//
//	new process → request
//	old process → answer: an error, or all that it hands over; then descriptors, then the state of its tensors
//	new process → taken: from here on the connections are its own; or why it does not take over
//	old process → end of the stream, once it has let everything go; or an error, if it has not waited for the message and carries on
//
// Messages are JSON behind their length (4 bytes, big-endian). Descriptors come in messages of one byte, as many as
// perMessage with each (SCM_RIGHTS, unix(7)), and the state in pieces, each behind its length; a piece without bytes is
// the last.
//
// The socket is a trust boundary: it lies in a folder that nobody else can write, and either end refuses a process of
// another user (SO_PEERCRED).
package upgrade

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/gradproxy/gradproxy/proxy"
)

// Protocol is the version of the messages on the socket. A process hands nothing over to one of another version.
const Protocol = 1

// A Request is the new process's wish to take over.
type Request struct {
	Protocol int
	Site     string
	Version  string // of the program, for the log
	PID      int
	Reset    bool `json:",omitempty"` // connections that keep the hand-over waiting are to be reset
}

// An Answer lists all that is handed over, in the order of the descriptors.
type Answer struct {
	Protocol    int
	Error       string `json:",omitempty"` // why nothing is
	Version     string
	PID         int
	Listeners   []string       // addresses that are listened on
	Held        []string       // addresses and files that the old process gives up only at its end
	Connections []proxy.Handed // of apps
}

// taken is the new process's last message.
type taken struct {
	Taken bool
	Error string `json:",omitempty"` // why it does not take over
}

const (
	maxMessage = 64 << 20 // bytes
	maxPiece   = 1 << 20  // bytes of the state at a time
	perMessage = 64       // descriptors; the kernel allows 253
)

// writeMessage writes m.
func writeMessage(w io.Writer, m any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > maxMessage {
		return fmt.Errorf("a message of %d bytes, more than %d", len(b), maxMessage)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// readMessage reads m, of at most limit bytes.
func readMessage(r io.Reader, m any, limit int) error {
	n, err := readLength(r, limit)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(n))) // memory grows with the bytes that come
	if err == nil && len(b) < n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(b, m)
}

// readLength reads a length.
func readLength(r io.Reader, limit int) (int, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if uint64(n) > uint64(limit) {
		return 0, fmt.Errorf("a message of %d bytes, more than %d", n, limit)
	}
	return int(n), nil
}

// A pieceWriter writes a state in pieces.
type pieceWriter struct{ w io.Writer }

func (p pieceWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		m := min(len(b), maxPiece)
		if _, err = p.w.Write(binary.BigEndian.AppendUint32(nil, uint32(m))); err != nil {
			return n, err
		}
		if _, err = p.w.Write(b[:m]); err != nil {
			return n, err
		}
		n, b = n+m, b[m:]
	}
	return n, nil
}

// end writes the last piece.
func (p pieceWriter) end() error {
	_, err := p.w.Write(make([]byte, 4))
	return err
}

// A pieceReader reads a state.
type pieceReader struct {
	r    io.Reader
	left int // bytes of the piece
	over bool
}

func (p *pieceReader) Read(b []byte) (int, error) {
	for p.left == 0 && !p.over {
		n, err := readLength(p.r, maxPiece)
		if err != nil {
			return 0, noEOF(err)
		}
		p.left, p.over = n, n == 0
	}
	if p.over {
		return 0, io.EOF
	}
	n, err := p.r.Read(b[:min(len(b), p.left)])
	p.left -= n
	return n, noEOF(err)
}

// noEOF makes the end of the stream an error where more must come.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

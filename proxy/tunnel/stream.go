package tunnel

import (
	"io"
	"time"
)

// A Stream is one bidirectional stream of bytes to a peer. Each direction ends by itself (CloseWrite); Reset
// ends both. Streams outlive carriers: a lost one is a pause. All methods may be called concurrently; Reads
// and Writes each take turns. A finished Stream must be closed or reset, or it is never released.
type Stream struct{}

// Incoming is an opening that waits for its answer.
type Incoming struct{}

// Accept answers yes.
func (in *Incoming) Accept() *Stream { return nil }

// Refuse answers no. text is one line for the peer's log, cut at 1,024 bytes.
func (in *Incoming) Refuse(code Code, text string) {}

// Done is closed when the opener has withdrawn, or the session is lost: an answer is pointless then.
func (in *Incoming) Done() <-chan struct{} { return nil }

// Peer returns the peer's name.
func (s *Stream) Peer() string { return "" }

// Read returns io.EOF after the peer's CloseWrite, a *ResetError after a reset and an error that wraps
// ErrSessionLost after the session's end; the bytes that came before are delivered first.
func (s *Stream) Read(p []byte) (int, error) { return 0, errNotYet }

// ReadChunk is Read without the copy: it waits for bytes and returns them, up to 256 KiB. The slice is valid,
// and may be modified, until the next Read, ReadChunk, WriteTo, Close or Reset.
func (s *Stream) ReadChunk() ([]byte, error) { return nil, errNotYet }

// WriteTo writes everything up to the peer's CloseWrite to w, without a copy in between.
func (s *Stream) WriteTo(w io.Writer) (int64, error) { return 0, errNotYet }

// Buffered returns how many bytes Read could deliver at once.
func (s *Stream) Buffered() int { return 0 }

// Write queues p, copying it. It waits while the peer gives no credit or too much is queued (512 KiB), and
// fails like Read once the stream is reset or lost.
func (s *Stream) Write(p []byte) (int, error) { return 0, errNotYet }

// Writev is Write of several slices as if they were one: they leave together if they fit together.
func (s *Stream) Writev(p ...[]byte) (int, error) { return 0, errNotYet }

// CloseWrite ends this direction: the peer's Read returns io.EOF after the last byte. The other direction
// goes on, for as long as it likes.
func (s *Stream) CloseWrite() error { return errNotYet }

// Close is CloseWrite for a side that will not read either. If the peer has sent, or sends, bytes that
// nobody will read, the stream is reset with CodeClosed, as TCP does.
func (s *Stream) Close() error { return errNotYet }

// Reset aborts both directions. Bytes that have left this side are still delivered before the peer sees the
// reset, those that have not are dropped. Only the first Reset counts.
func (s *Stream) Reset(code Code) {}

// Done is closed when the stream is dead in both directions: reset by either side, or lost with its session.
// Bytes that came before may remain to be read. It is not closed by an orderly end.
func (s *Stream) Done() <-chan struct{} { return nil }

// Err is nil while the stream is not dead, and then what Write returns.
func (s *Stream) Err() error { return nil }

// Counts returns the bytes written to the stream and read from it so far, openings and answers left out.
func (s *Stream) Counts() (sent, received uint64) { return 0, 0 }

// Path returns what is known of the way to the peer: the smallest RTT of the last PINGs, and the bytes per
// second that the carriers have delivered, the most of the last 10 s. 0: unknown.
func (s *Stream) Path() (rtt time.Duration, rate float64) { return 0, 0 }

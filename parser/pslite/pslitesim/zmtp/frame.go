package zmtp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Flags of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

const (
	maxShort  = 255     // bytes in the longest body of a frame without LONG
	maxBody   = 1 << 28 // bytes in the longest body that is read
	maxFrames = 64      // in a message that is read

	// Bodies of this many bytes and more are written from where they are.
	largeBody = 4 << 10
)

// A frame as it was read.
type frame struct {
	flags byte
	body  []byte
}

// ReadMessage returns the frames of the next message, which belong to the caller, and answers PINGs before it. At the
// end of the stream the error is io.EOF itself; within a message it wraps io.ErrUnexpectedEOF.
func (c *Conn) ReadMessage() ([][]byte, error) {
	var message [][]byte
	for {
		f, err := c.readFrame()
		if err == io.EOF && message == nil {
			return nil, io.EOF
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("zmtp: read frame %d of a message: %w", len(message), err)
		}
		if f.flags&flagCommand != 0 {
			if message != nil {
				return nil, errors.New("zmtp: command within a message")
			}
			if err := c.obey(f); err != nil {
				return nil, err
			}
			continue
		}
		if len(message) == maxFrames {
			return nil, fmt.Errorf("zmtp: message of more than %d frames", maxFrames)
		}
		message = append(message, f.body)
		if f.flags&flagMore == 0 {
			return message, nil
		}
	}
}

// readFrame reads one frame. The error is io.EOF only before its first byte.
func (c *Conn) readFrame() (frame, error) {
	flags, err := c.r.ReadByte()
	if err != nil {
		return frame{}, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return frame{}, fmt.Errorf("flags %#02x", flags)
	}
	var head [8]byte
	length := head[7:]
	if flags&flagLong != 0 {
		length = head[:]
	}
	if err := c.fill(length); err != nil {
		return frame{}, err
	}
	size := binary.BigEndian.Uint64(head[:])
	if size > maxBody {
		return frame{}, fmt.Errorf("body of %d bytes, want at most %d", size, maxBody)
	}
	body := make([]byte, size)
	if err := c.fill(body); err != nil {
		return frame{}, err
	}
	return frame{flags, body}, nil
}

// fill reads len(b) bytes of a frame.
func (c *Conn) fill(b []byte) error {
	_, err := io.ReadFull(c.r, b)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// command returns a command's name and data.
func (f frame) command() (name string, data []byte, err error) {
	if f.flags&flagCommand == 0 || len(f.body) == 0 || len(f.body) < 1+int(f.body[0]) {
		return "", nil, fmt.Errorf("zmtp: frame with flags %#02x and %d bytes is no command", f.flags, len(f.body))
	}
	n := int(f.body[0])
	return string(f.body[1 : 1+n]), f.body[1+n:], nil
}

// obey carries out a command. Like libzmq it ignores commands that it does not know.
func (c *Conn) obey(f frame) error {
	const ttl = 2 // bytes
	name, data, err := f.command()
	switch {
	case err != nil:
		return err
	case name == "ERROR":
		return fmt.Errorf("zmtp: peer reports %q", data)
	case name == "PING" && len(data) >= ttl:
		return c.write(appendCommand(nil, "PONG", data[ttl:]))
	}
	return nil
}

// WriteMessages writes messages, each of at least one frame, in one gathered write. It does not retain them.
func (c *Conn) WriteMessages(messages [][][]byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.small, c.pieces = c.small[:0], c.pieces[:0]
	from := 0 // of c.small, not yet in pieces
	for _, m := range messages {
		for i, body := range m {
			c.small = appendHeader(c.small, moreOf(i, m), len(body))
			if len(body) < largeBody {
				c.small = append(c.small, body...)
				continue
			}
			c.pieces = append(c.pieces, c.small[from:], body)
			from = len(c.small)
		}
	}
	c.pieces = append(c.pieces, c.small[from:])
	out := c.pieces // WriteTo consumes it
	return c.flush(&out)
}

// AppendMessage appends a message of at least one frame, as WriteMessages writes it, for tests of readers.
func AppendMessage(b []byte, frames ...[]byte) []byte {
	for i, body := range frames {
		b = append(appendHeader(b, moreOf(i, frames), len(body)), body...)
	}
	return b
}

// moreOf returns the flag MORE for all frames of a message but the last.
func moreOf(i int, frames [][]byte) byte {
	if i < len(frames)-1 {
		return flagMore
	}
	return 0
}

// write writes b, which is not part of a message.
func (c *Conn) write(b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.flush(&net.Buffers{b})
}

// flush writes b. It is counted before, so that a receiver of an answer finds the request counted.
func (c *Conn) flush(b *net.Buffers) error {
	var size int64
	for _, piece := range *b {
		size += int64(len(piece))
	}
	c.counter.Sent.Add(size)
	n, err := b.WriteTo(c.conn)
	if err != nil {
		c.counter.Sent.Add(n - size)
		return fmt.Errorf("zmtp: write: %w", err)
	}
	return nil
}

// appendHeader appends a frame's flags and length. As libzmq does, it is LONG only if it must be.
func appendHeader(b []byte, flags byte, size int) []byte {
	if size > maxShort {
		return binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(size))
	}
	return append(b, flags, byte(size))
}

// appendCommand appends the frame of a command.
func appendCommand(b []byte, name string, data []byte) []byte {
	b = appendHeader(b, flagCommand, 1+len(name)+len(data))
	b = append(append(b, byte(len(name))), name...)
	return append(b, data...)
}

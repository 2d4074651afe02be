package zmtp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

const (
	greetingLen  = 64
	signatureLen = 10 // bytes that are written before anything is read
	major        = 3  // version
	mechanism    = "NULL"
	mechanismLen = 20
)

// ErrGreeting is wrapped by errors about a peer that does not speak ZMTP 3 with the NULL mechanism.
var ErrGreeting = errors.New("zmtp: not ZMTP 3 with the NULL mechanism")

// Handshake greets the other end of conn, which Conn takes over. After an error, or when ctx is done before it returns,
// conn is closed. The bytes are counted in counter, which may be nil.
func Handshake(ctx context.Context, conn net.Conn, own Socket, counter *Counter) (*Conn, error) {
	if counter == nil {
		counter = new(Counter)
	}
	c := &Conn{conn: conn, counter: counter, r: bufio.NewReaderSize(meter{conn, &counter.Received}, 64<<10)}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err := c.handshake(own)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// handshake writes the greeting in the pieces of libzmq's stream_engine.cpp: the signature, then the major version once
// the peer's signature is there, then the rest once its version is.
func (c *Conn) handshake(own Socket) error {
	var peer [greetingLen]byte
	mine := greeting(own)
	for _, piece := range [][2]int{{0, signatureLen}, {signatureLen, signatureLen + 1}, {signatureLen + 1, greetingLen}} {
		if err := c.write(mine[piece[0]:piece[1]]); err != nil {
			return err
		}
		if _, err := io.ReadFull(c.r, peer[piece[0]:piece[1]]); err != nil {
			return fmt.Errorf("zmtp: read greeting: %w", err)
		}
		if err := check(peer[:piece[1]]); err != nil {
			return err
		}
	}
	c.Peer.Minor = peer[signatureLen+1]
	if err := c.write(readyFrame(own)); err != nil {
		return err
	}
	return c.readReady()
}

// Hello returns all bytes that a peer sends before its first message, for tests of readers: the greeting, and READY.
func Hello(own Socket) []byte { return append(greeting(own), readyFrame(own)...) }

// readyFrame returns the frame of the command READY.
func readyFrame(own Socket) []byte { return appendCommand(nil, "READY", ready(own)) }

// greeting returns the 64 bytes.
func greeting(own Socket) []byte {
	b := binary.BigEndian.AppendUint64([]byte{0xFF}, uint64(len(own.Identity))+1)
	b = append(b, 0x7F, major, own.Minor)
	b = append(b, mechanism...)
	return append(b, make([]byte, greetingLen-len(b))...)
}

// check checks as much of a greeting as is there.
func check(b []byte) error {
	if b[0] != 0xFF || b[signatureLen-1]&1 == 0 {
		return fmt.Errorf("%w: greeting begins with % x", ErrGreeting, b[:signatureLen])
	}
	if len(b) > signatureLen && b[signatureLen] < major {
		return fmt.Errorf("%w: version %d", ErrGreeting, b[signatureLen])
	}
	if len(b) == greetingLen {
		name := bytes.TrimRight(b[signatureLen+2:][:mechanismLen], "\x00")
		if string(name) != mechanism {
			return fmt.Errorf("%w: mechanism %q", ErrGreeting, name)
		}
	}
	return nil
}

// ready is the properties in the command READY.
func ready(own Socket) (b []byte) {
	for _, p := range [][2]string{{"Socket-Type", own.Type}, {"Identity", own.Identity}} {
		b = append(append(b, byte(len(p[0]))), p[0]...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(p[1])))
		b = append(b, p[1]...)
	}
	return b
}

// readReady reads the peer's first frame.
func (c *Conn) readReady() error {
	f, err := c.readFrame()
	if err != nil {
		return fmt.Errorf("zmtp: read READY: %w", err)
	}
	name, properties, err := f.command()
	switch {
	case err != nil:
		return err
	case name != "READY":
		return fmt.Errorf("zmtp: first command is %q, not READY", name)
	}
	for len(properties) > 0 {
		key, value, rest, err := property(properties)
		if err != nil {
			return err
		}
		switch key {
		case "Socket-Type":
			c.Peer.Type = value
		case "Identity":
			c.Peer.Identity = value
		}
		properties = rest
	}
	return nil
}

// property cuts one property off b.
func property(b []byte) (key, value string, rest []byte, err error) {
	n := int(b[0])
	if len(b) < 1+n+4 {
		return "", "", nil, errors.New("zmtp: READY ends within a property")
	}
	key, b = string(b[1:1+n]), b[1+n:]
	size := binary.BigEndian.Uint32(b)
	if b = b[4:]; uint64(size) > uint64(len(b)) {
		return "", "", nil, fmt.Errorf("zmtp: READY has %d bytes left for a value of %d", len(b), size)
	}
	return key, string(b[:size]), b[size:], nil
}

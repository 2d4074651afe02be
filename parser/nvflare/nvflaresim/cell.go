package nvflaresim

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// A cell is one end of a connection. Its two ends speak in turns: a request, and its answer.
type cell struct {
	conn   net.Conn
	r      *bufio.Reader
	sender Sender
	open   map[int]*Stream // streams of the other cell whose last frame has not come
	number int             // of the last request
}

// newCell returns one end of conn, which has not said anything yet.
func newCell(conn net.Conn, name string) *cell {
	return &cell{conn: conn, r: bufio.NewReaderSize(conn, 64<<10), sender: Sender{Origin: name}, open: map[int]*Stream{}}
}

// maxFrame bounds a frame, in bytes.
const maxFrame = 1 << 30

// frame reads a frame.
func (c *cell) frame() (kind byte, header tree, payload []byte, err error) {
	var prefix [prefixLen]byte
	if _, err := io.ReadFull(c.r, prefix[:]); err != nil {
		return 0, header, nil, err
	}
	n, size := int(binary.BigEndian.Uint32(prefix[:])), int(binary.BigEndian.Uint16(prefix[4:]))
	if n < prefixLen+size || n > maxFrame {
		return 0, header, nil, fmt.Errorf("%w: a frame of %d bytes", errMessage, n)
	}
	b := make([]byte, n-prefixLen)
	if _, err := io.ReadFull(c.r, b); err != nil {
		return 0, header, nil, err
	}
	if size > 0 {
		if header.value, _, err = unpack(b[:size]); err != nil {
			return 0, header, nil, err
		}
	}
	return prefix[6], header, b[size:], nil
}

// greeted reads the first frame of the other cell, and returns its name.
func (c *cell) greeted(want byte) (string, error) {
	kind, _, payload, err := c.frame()
	if err != nil {
		return "", err
	}
	v, _, err := unpack(payload)
	if err != nil || kind != want {
		return "", fmt.Errorf("%w: the first frame has type %d, want %d", errMessage, kind, want)
	}
	return tree{v}.at("fqcn").text(), nil
}

// send sends a stream.
func (c *cell) send(s Stream) error {
	for _, b := range c.sender.Frames(s) {
		if _, err := c.conn.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// receive returns the next stream of the other cell, which it acknowledges.
func (c *cell) receive() (Stream, error) {
	for {
		_, h, payload, err := c.frame()
		if err != nil {
			return Stream{}, err
		}
		if h.at("cn__topic").text() != streamData {
			continue
		}
		number, at, size := h.at("sm__id").number(), h.at("sm__os").number(), h.at("sm__sz").number()
		s := c.open[number]
		if s == nil {
			s = &Stream{Channel: h.at("sm__ch").text(), Topic: h.at("sm__tp").text(), Request: h.at("sm__ri").text()}
			c.open[number] = s
		}
		if at != len(s.Content) {
			return Stream{}, fmt.Errorf("%w: offset %d of stream %d comes after %d bytes", errMessage, at, number, len(s.Content))
		}
		if s.Content = append(s.Content, payload...); len(s.Content) < size {
			continue
		}
		delete(c.open, number)
		_, err = c.conn.Write(c.sender.ack(number, size))
		return *s, err
	}
}

// ask sends a request, and returns the content of its answer.
func (c *cell) ask(channel, topic string, content []byte) ([]byte, error) {
	c.number++
	s := Stream{Channel: channel, Topic: topic, Request: fmt.Sprintf("%s-%d", c.sender.Origin, c.number), Content: content}
	if err := c.send(s); err != nil {
		return nil, err
	}
	answer, err := c.receive()
	if err == nil && (answer.Channel != answers || answer.Request != s.Request) {
		err = fmt.Errorf("%w: %s/%s of %s in answer to %s/%s of %s", errMessage, answer.Channel, answer.Topic, answer.Request, channel, topic, s.Request)
	}
	return answer.Content, err
}

// asked receives a request for a topic of a channel.
func (c *cell) asked(channel, topic string) (Stream, error) {
	s, err := c.receive()
	if err == nil && (s.Channel != channel || s.Topic != topic) {
		err = fmt.Errorf("%w: %s/%s, want %s/%s", errMessage, s.Channel, s.Topic, channel, topic)
	}
	return s, err
}

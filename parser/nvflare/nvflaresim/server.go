package nvflaresim

import (
	"context"
	"fmt"
	"net"
)

// A Client is a client as the server sees it. It is not safe for concurrent use.
type Client struct{ cell *cell }

// Accept greets the client at the other end of a connection, which the caller closes.
func Accept(conn net.Conn) (*Client, error) {
	c := newCell(conn, "server.job")
	name, err := c.greeted(TypeHello)
	if err == nil {
		c.sender.Destination = name
		_, err = conn.Write(Greeting(TypeReady, c.sender.Origin))
	}
	if err != nil {
		return nil, fmt.Errorf("nvflaresim: %w", err)
	}
	return &Client{c}, nil
}

// Serve accepts connections of l until ctx is done, and calls joined with each client, one after another. It closes l
// and the connections then, and returns an error if it ends before.
func Serve(ctx context.Context, l net.Listener, joined func(*Client)) error {
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := next(ctx, l)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		joined(c)
	}
}

// next accepts a connection, which is closed when ctx is done, and greets its client.
func next(ctx context.Context, l net.Listener) (*Client, error) {
	conn, err := l.Accept()
	if err != nil {
		return nil, fmt.Errorf("nvflaresim: %w", err)
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return Accept(conn)
}

// Do waits until the client asks for a task, gives it x, and returns the result.
func (c *Client) Do(x Shareable) (Shareable, error) {
	result, err := c.do(x)
	if err != nil {
		return Shareable{}, fmt.Errorf("nvflaresim: task %s: %w", x.Task, err)
	}
	return result, nil
}

func (c *Client) do(x Shareable) (result Shareable, err error) {
	if err := c.give(x); err != nil {
		return result, err
	}
	s, err := c.cell.asked(commands, submit)
	if err != nil {
		return result, err
	}
	a, err := readAnnouncement(s.Content)
	if err != nil {
		return result, err
	}
	if result, err = c.cell.fetch(a); err != nil {
		return result, err
	}
	return result, c.cell.send(s.Answer(Section(MarkerValue, 0, Pack(Map{"status", "ok"}))))
}

// give gives the client a task with its arrays.
func (c *Client) give(x Shareable) error {
	s, err := c.cell.asked(commands, getTask)
	if err != nil {
		return err
	}
	content, ref := c.cell.announce(x)
	if err := c.cell.send(s.Answer(content)); err != nil || len(x.Arrays) == 0 {
		return err
	}
	return c.cell.give(ref, x.Arrays)
}

// End tells the client that the job is over.
func (c *Client) End() error {
	if err := c.give(Shareable{Task: End, Kind: Metrics}); err != nil {
		return fmt.Errorf("nvflaresim: %w", err)
	}
	return nil
}

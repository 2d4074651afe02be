package nvflaresim

import (
	"context"
	"fmt"
	"net"
)

// Join joins the server at the other end of conn as the job process of a site, and answers its tasks by work, until the
// server ends the job, or an error of work. It closes conn.
func Join(ctx context.Context, conn net.Conn, site string, work func(Shareable) (Shareable, error)) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	c := newCell(conn, site+".job")
	if _, err := conn.Write(Greeting(TypeHello, c.sender.Origin)); err != nil {
		return fmt.Errorf("nvflaresim: %w", err)
	}
	name, err := c.greeted(TypeReady)
	if err != nil {
		return fmt.Errorf("nvflaresim: %w", err)
	}
	c.sender.Destination = name
	for {
		task, err := c.task()
		if err != nil {
			return fmt.Errorf("nvflaresim: a task: %w", err)
		}
		if task.Task == End {
			return nil
		}
		result, err := work(task)
		if err != nil {
			return err
		}
		result.Task, result.Round = task.Task, task.Round
		if err := c.submit(result); err != nil {
			return fmt.Errorf("nvflaresim: result of %s: %w", task.Task, err)
		}
	}
}

// task asks for a task, and downloads its arrays.
func (c *cell) task() (Shareable, error) {
	content, err := c.ask(commands, getTask, Section(MarkerValue, 0, Pack(Map{"__fobs_type__", "Shareable"})))
	if err != nil {
		return Shareable{}, err
	}
	a, err := readAnnouncement(content)
	if err != nil {
		return Shareable{}, err
	}
	return c.fetch(a)
}

// submit announces a result, lets the server download it, and waits for the server's answer.
func (c *cell) submit(x Shareable) error {
	content, ref := c.announce(x)
	if err := c.send(Stream{Channel: commands, Topic: submit, Request: "result-" + ref, Content: content}); err != nil {
		return err
	}
	if len(x.Arrays) > 0 {
		if err := c.give(ref, x.Arrays); err != nil {
			return err
		}
	}
	answer, err := c.receive()
	if err == nil && answer.Request != "result-"+ref {
		err = fmt.Errorf("%w: an answer to %s, want result-%s", errMessage, answer.Request, ref)
	}
	return err
}

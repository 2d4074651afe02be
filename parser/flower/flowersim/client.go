package flowersim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"golang.org/x/net/http2"
)

// Join joins the server at the other end of conn and answers its requests by answer, until the server ends the
// training, or an error of answer. It closes conn.
func Join(ctx context.Context, conn net.Conn, answer func(Message) (Message, error)) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	cc, err := new(http2.Transport).NewClientConn(conn)
	if err != nil {
		return fmt.Errorf("flowersim: %w", err)
	}
	defer cc.Close()
	body, answers := io.Pipe()
	defer answers.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+conn.RemoteAddr().String()+path, body)
	if err != nil {
		return fmt.Errorf("flowersim: %w", err)
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	response, err := cc.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("flowersim: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("flowersim: the server answers %s", response.Status)
	}
	for {
		m, err := read(response.Body, true)
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("flowersim: the server left in mid-training: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return err
		case m.Kind == End:
			return nil
		}
		a, err := answer(m)
		if err != nil {
			return err
		}
		a.Kind = m.Kind
		if err := write(answers, &a, false); err != nil {
			return fmt.Errorf("flowersim: %w", err)
		}
	}
}

// Command calltimes tells how long the calls of an unmodified job take, by method: it stands between the job's clients
// and their server, or a proxy's listener, passes all bytes on and notes when each call begins and ends. Run the job
// once with the server as the target, and once with the proxy's listener, and compare:
//
//	go run ./integration/cmd/calltimes --listen 127.0.0.1:9000 --target 10.2.0.5:9092 > direct.txt
//
// A call of gRPC goes from the header fields of its request to the end of its stream. A call of HTTP/1.1 goes from the
// first byte that a client sends after the bytes of a server to the last byte of the server before the client sends
// again; its method is the first line of the request, without a query. Streams that last, such as Flower's Join, are
// one call. The command prints its table when SIGINT or SIGTERM ends it. Calls that have not ended then are left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/parser"
)

func main() {
	var listen, target string
	flag.StringVar(&listen, "listen", "127.0.0.1:9000", "IP:port to which the job's clients connect")
	flag.StringVar(&target, "target", "", "IP:port of the server, or of the proxy's listener")
	flag.Parse()
	program.Main("calltimes", func(ctx context.Context) error {
		ln, err := net.Listen("tcp", listen)
		if err != nil {
			return err
		}
		var times table
		if err := serve(ctx, ln, target, &times); err != nil {
			return err
		}
		fmt.Print(times.markdown())
		return nil
	})
}

// serve passes connections on to target until ctx ends.
func serve(ctx context.Context, ln net.Listener, target string, times *table) error {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for {
		c, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		go relay(c, target, times)
	}
}

// relay carries one connection to the target.
func relay(client net.Conn, target string, times *table) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	w := &watch{now: time.Now, table: times}
	var both sync.WaitGroup
	for side, ends := range [2][2]net.Conn{parser.Client: {client, server}, parser.Server: {server, client}} {
		both.Go(func() {
			err := carry(ends[1], ends[0], func(b []byte) { w.see(parser.Side(side), b) })
			if tcp, ok := ends[1].(*net.TCPConn); ok && err == nil {
				tcp.CloseWrite()
				return
			}
			client.Close()
			server.Close()
		})
	}
	both.Wait()
	w.end()
}

// carry copies bytes until the end, and shows them to see before they are passed on.
func carry(to io.Writer, from io.Reader, see func([]byte)) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			see(buf[:n])
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

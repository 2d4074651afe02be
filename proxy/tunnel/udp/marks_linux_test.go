package udp

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"testing"
	"time"
)

// TestMarks: datagrams arrive with the mark with which they leave, alone or together, by IPv4 and IPv6, and by IPv4 at
// a socket of IPv6.
func TestMarks(t *testing.T) {
	for _, way := range []struct{ listen, dial string }{{"127.0.0.1:0", "127.0.0.1"}, {"[::1]:0", "::1"}, {"[::]:0", "127.0.0.1"}, {"[::]:0", "::1"}} {
		t.Run(way.listen+" by "+way.dial, func(t *testing.T) {
			l, err := Listen(way.listen)
			if err != nil {
				t.Skipf("no such address here: %v", err)
			}
			defer l.Close()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			client, err := Dial(ctx, net.JoinHostPort(way.dial, strconv.Itoa(l.Addr().(*net.UDPAddr).Port)))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			accepted, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			server := accepted.(*Conn)
			defer server.Close()
			for _, ends := range [][2]*Conn{{client, server}, {server, client}} {
				from, to := ends[0], ends[1]
				for _, together := range []bool{false, true} {
					var want []Mark
					var sent [4][][]byte
					for i := range 24 {
						mark := Mark(i / 6) // each of the four
						want = append(want, mark)
						sent[mark] = append(sent[mark], bytes.Repeat([]byte{byte(i)}, 1200))
					}
					for mark, datagrams := range sent {
						leave(t, from, together, Mark(mark), datagrams...)
					}
					to.SetReadDeadline(time.Now().Add(time.Minute))
					for i, mark := range want {
						b, got, _, err := to.Next()
						if err != nil || len(b) != 1200 || b[0] != byte(i) || got != mark {
							t.Fatalf("together %v: datagram %d has %d bytes and mark %d, %v, want mark %d", together, i, len(b), got, err, mark)
						}
					}
				}
			}
		})
	}
}

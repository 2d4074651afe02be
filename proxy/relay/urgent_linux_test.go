package relay

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sendUrgent sends the last byte of b as urgent data.
func sendUrgent(t *testing.T, c *net.TCPConn, b []byte) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	e := raw.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), b, unix.MSG_OOB, nil)
		return err != unix.EAGAIN
	})
	if e != nil || err != nil {
		t.Fatal(e, err)
	}
}

// A read ends before a byte that was sent as urgent, though more bytes wait behind it. They arrive all the same, in
// line, while the sender waits for the answer to them.
func TestUrgentBytesArrive(t *testing.T) {
	client, a := tcpPair(t)
	b, server := tcpPair(t)
	client.Write([]byte("before"))
	sendUrgent(t, client, []byte("U"))
	client.Write([]byte("after"))
	time.Sleep(10 * time.Millisecond) // all of it waits in a
	if err := newRelay(t).Add(a, b, nil); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("beforeUafter"))
	server.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := io.ReadFull(server, got); err != nil || string(got) != "beforeUafter" {
		t.Errorf("%q arrives: %v", got[:n], err)
	}
}

// The kernel splices nothing beyond a byte that was sent as urgent, as if the end had come. Bulk goes on behind it.
func TestUrgentBytesAmidBulk(t *testing.T) {
	client, server, ended := narrow(t, newRelay(t))
	data, rnd := make([]byte, 2<<20), rand.NewChaCha8([32]byte{2})
	rnd.Read(data)
	go func() {
		const piece = 256 << 10
		for at := 0; at < len(data); at += piece {
			client.Write(data[at : at+piece-1])
			sendUrgent(t, client, data[at+piece-1:at+piece])
		}
		client.CloseWrite()
	}()
	if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes of %d arrive, or others: %v", len(got), len(data), err)
	}
	server.Close()
	if e := <-ended; e.Reset || e.Sent[0] != int64(len(data)) {
		t.Errorf("it ends as %+v", e)
	}
}

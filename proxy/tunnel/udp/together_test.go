package udp

import (
	"context"
	"net"
	"testing"
	"time"
)

// TestAnswersComeTogether: a client reads answers that the kernel has joined as it reads single ones: the listener's
// answer to a challenge and its own challenge have one length and leave at once, as do messages that say that a
// connection is not known, one for each record.
func TestAnswersComeTogether(t *testing.T) {
	client, server := movers(t, listen(t))
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	far := way{}
	s, _, err := connected(t.Context(), u.LocalAddr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	far.moveTo(newSocket(u, nil), s.LocalAddr().(*net.UDPAddr).AddrPort(), nil)
	if err := far.write([]byte("onetwo"), 3, 0); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if n, err := s.Read(b); err != nil || string(b[:n]) != "onetwo" {
		s.Read(b)
		t.Logf("this kernel does not join datagrams: %q, %v", b[:n], err)
	}

	go func() { // as a listener does whose messages arrive together
		b := make([]byte, 2000)
		n, err := u.Read(b)
		if err != nil {
			return
		}
		_, text, _, _ := server.prover.read(b[:n])
		both := []byte{}
		for _, m := range []RoutingMessage{RoutingMessage([]byte(text)).answer(), newChallenge()} {
			d, _ := server.prover.Seal(m)
			both = append(both, d...)
		}
		far.write(both, len(both)/2, 0)
	}()
	within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	time.Sleep(goneAfter)
	if err := client.explore(within, s); err != nil {
		t.Errorf("the listener's answer and challenge have come, and the path is not taken: %v", err)
	}

	time.Sleep(goneAfter)
	gone := message{kind: msgGone, id: client.ID()}
	if err := server.WriteBatch(gone.append(gone.append(nil)), len(gone.append(nil)), 0); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); !client.Lost(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("two messages say that the connection is not known, and it is not lost")
		}
	}
}

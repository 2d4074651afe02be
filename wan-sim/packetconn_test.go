package wansim

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// packets runs f with the two ends of a datagram path in a bubble, where time is exact.
func packets(t *testing.T, ab, ba Link, f func(t *testing.T, a, b *PacketConn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b, err := packetPipe(ab, ba, newTimerAlarm)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		defer b.Close()
		f(t, a, b)
	})
}

// Datagrams arrive when the model says, and those arrive that it lets pass.
func TestDatagramsFollowTheModel(t *testing.T) {
	ab := Link{Rate: 128_000, Delay: 20 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.1, Queue: 5000, Seed: 9}
	type arrival struct {
		number uint32
		at     time.Duration
	}
	packets(t, ab, Link{}, func(t *testing.T, a, b *PacketConn) {
		const count, size = 2000, 100 // 128 bytes with headers: a millisecond each
		begin := time.Now()
		var want, got []arrival
		go func() {
			model := NewPath(ab)
			for i := range uint32(count) {
				if at, ok := model.Admit(time.Now(), size+28); ok {
					want = append(want, arrival{i, at.Sub(begin)})
				}
				p := make([]byte, size)
				binary.BigEndian.PutUint32(p, i)
				if n, err := a.WriteTo(p, a.RemoteAddr()); n != size || err != nil {
					t.Errorf("WriteTo: %d, %v", n, err)
				}
				clear(p) // WriteTo must not retain it
				time.Sleep(900 * time.Microsecond)
			}
		}()
		b.SetReadDeadline(begin.Add(10 * time.Second))
		for {
			p := make([]byte, 1500)
			n, from, err := b.ReadFrom(p)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if n != size || err != nil || from.String() != a.LocalAddr().String() {
				t.Fatalf("ReadFrom: %d bytes of %v, %v", n, from, err)
			}
			got = append(got, arrival{binary.BigEndian.Uint32(p), time.Since(begin)})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d datagrams arrive otherwise than the %d of the model", len(got), len(want))
		}
		if s := a.Sent(); s.Lost == 0 || s.Dropped == 0 || len(got)+int(s.Lost+s.Dropped) != count {
			t.Errorf("Sent: %+v, and %d arrive of %d", s, len(got), count)
		}
	})
}

// A datagram over the MTU travels as fragments and is lost with any of them.
func TestLargeDatagramsAreFragments(t *testing.T) {
	packets(t, Link{Loss: 0.2}, Link{}, func(t *testing.T, a, b *PacketConn) {
		model, arrived := NewPath(Link{Loss: 0.2}), 0
		for range 1000 {
			mustWrite(t, a, make([]byte, 4000)) // with UDP's header 1480 + 1480 + 1048
			whole := true
			for range 3 {
				_, ok := model.Admit(begin, 1)
				whole = whole && ok
			}
			if whole {
				arrived++
				if n, err := b.Read(make([]byte, 9000)); n != 4000 || err != nil {
					t.Fatalf("Read: %d, %v", n, err)
				}
			}
		}
		if s := a.Sent(); s.Packets != 3000 || s.Bytes != 1000*(4008+3*20) || arrived < 400 {
			t.Errorf("Sent: %+v, and %d arrive", s, arrived)
		}
		if n, err := a.Write(make([]byte, 65_508)); n != 0 || !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("Write of 65,508 bytes: %d, %v; want EMSGSIZE", n, err)
		}
		other := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 3), Port: 1}
		if n, err := a.WriteTo([]byte{1}, other); n != 0 || !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("WriteTo another address: %d, %v; want ENETUNREACH", n, err)
		}
	})
}

func TestReceiverThatDoesNotReadLosesDatagrams(t *testing.T) {
	packets(t, Link{}, Link{}, func(t *testing.T, a, b *PacketConn) {
		for range 200 {
			mustWrite(t, a, make([]byte, 60_000))
		}
		synctest.Wait()
		b.SetReadDeadline(time.Now().Add(time.Second))
		held := 0
		for {
			n, err := b.Read(make([]byte, 10)) // what does not fit is cut off
			if err != nil {
				break
			}
			if n != 10 {
				t.Fatalf("Read: %d bytes, want 10", n)
			}
			held += 60_000
		}
		if held > 4<<20 || held < 4<<20-60_000 {
			t.Errorf("%d bytes were kept, want nearly 4 MiB", held)
		}
		mustWrite(t, a, []byte{1}) // and once it has read there is room again
		b.SetReadDeadline(time.Time{})
		mustRead(t, b, 1)
	})
}

func TestPacketConnSetLinkMakesABlackHole(t *testing.T) {
	l := Link{Delay: 10 * time.Millisecond}
	packets(t, l, l, func(t *testing.T, a, b *PacketConn) {
		mustWrite(t, a, []byte{1})
		if err := a.SetLink(Link{Loss: 1}); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, a, []byte{2})
		if err := a.SetLink(l); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, a, []byte{3})
		if got := []byte{mustRead(t, b, 1)[0], mustRead(t, b, 1)[0]}; got[0] != 1 || got[1] != 3 {
			t.Errorf("%v arrive, want 1 and 3", got)
		}
		if err := a.SetLink(Link{Loss: 2}); err == nil {
			t.Error("SetLink takes a loss of 2")
		}
	})
}

func TestPacketConnEnds(t *testing.T) {
	packets(t, Link{}, Link{}, func(t *testing.T, a, b *PacketConn) {
		a.SetDeadline(time.Now().Add(time.Second))
		takes(t, "a Read with a deadline", time.Second, func() {
			if _, err := a.Read(make([]byte, 1)); err != os.ErrDeadlineExceeded {
				t.Errorf("Read: %v, want a time-out", err)
			}
		})
		if _, err := a.Write([]byte{1}); err != os.ErrDeadlineExceeded {
			t.Errorf("Write: %v, want a time-out", err)
		}
		go func() {
			time.Sleep(time.Second)
			b.Close()
		}()
		if _, err := b.Read(make([]byte, 1)); err != net.ErrClosed {
			t.Errorf("Read: %v, want net.ErrClosed", err)
		}
		if _, err := b.Write([]byte{1}); err != net.ErrClosed {
			t.Errorf("Write: %v, want net.ErrClosed", err)
		}
		if err := b.Close(); err != net.ErrClosed {
			t.Errorf("second Close: %v, want net.ErrClosed", err)
		}
		a.SetDeadline(time.Time{})
		mustWrite(t, a, []byte{1}) // to nobody, as UDP does
	})
}

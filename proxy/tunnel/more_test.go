package tunnel

import (
	"io"
	"testing"
	"time"
)

// Bytes that WriteMore has queued stay until more follow, until Flush, or until they are many.
func TestWriteMore(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		near, far, _, _ := meet(t, nil, &fabric{delay: time.Millisecond})
		b := noise(1, 1<<20)
		var sent int
		write := func(n int, write func([]byte) (int, error)) {
			t.Helper()
			if _, err := write(b[sent : sent+n]); err != nil {
				t.Fatal(err)
			}
			sent += n
		}
		here := 0
		come := func(why string, want int) {
			t.Helper()
			time.Sleep(time.Minute)
			n := far.Buffered()
			if here+n != want {
				t.Fatalf("%s: %d bytes have come, want %d", why, here+n, want)
			}
			got := make([]byte, n)
			if _, err := io.ReadFull(far, got); err != nil {
				t.Fatal(err)
			}
			same(t, why, got, b[here:here+n])
			here += n
		}
		write(1000, near.WriteMore)
		write(2000, near.WriteMore)
		come("more is to follow", 0)
		near.Flush()
		come("flushed", sent)
		near.Flush()
		write(3000, near.WriteMore)
		come("more is to follow again", 3000)
		write(1, near.Write)
		come("it has followed", sent)
		before := sent
		write(leaveSize-1, near.WriteMore)
		come("nearly much", before)
		write(1, near.WriteMore)
		come("much", sent)
		write(5, near.WriteMore)
		near.CloseWrite()
		come("the end", sent)
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
	})
}

// However little credit there is, a writer of more than that never waits for itself.
func TestWriteMoreWithoutCredit(t *testing.T) {
	bubbles(t, func(t *testing.T) {
		near, far, _, _ := meet(t, nil, &fabric{delay: 10 * time.Millisecond})
		want := noise(2, 4<<20)
		go func() {
			for b := want; len(b) > 0; b = b[min(len(b), 1000):] {
				near.WriteMore(b[:min(len(b), 1000)])
			}
			near.CloseWrite()
		}()
		time.Sleep(time.Minute)
		got, err := io.ReadAll(far)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "after a stall", got, want)
	})
}

//go:build unix

package tunnel

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFilesThatHang: a certificate that cannot be read to its end holds up no state of a Link, and is read once it can.
func TestFilesThatHang(t *testing.T) {
	files := identities(t, "paris", "tokyo")("paris")
	s := &identityStore{files: files, log: slog.New(slog.DiscardHandler)}
	if err := s.load(); err != nil {
		t.Fatal(err)
	}
	before := s.now.Load()
	text, err := os.ReadFile(files.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(files.Cert); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(files.Cert, 0o600); err != nil { // an open of it waits for who writes
		t.Fatal(err)
	}
	asked := make(chan *loaded)
	go func() {
		for range 10 {
			asked <- s.latest()
		}
	}()
	for range 10 {
		select {
		case now := <-asked:
			if now != before {
				t.Fatal("the identity has changed, though its file was not read")
			}
		case <-time.After(time.Minute):
			t.Fatal("the state waits for a file")
		}
	}
	if err := os.WriteFile(files.Cert, text, 0o600); err != nil { // to whoever reads
		t.Fatal(err)
	}
	for begin := time.Now(); s.now.Load() == before; time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("the file is not read once it can be")
		}
	}
}

//go:build unix

package site

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gradproxy/gradproxy/proxy/history"
)

// full is a record for which the disk has no room.
type full struct{}

func (full) Save(io.Writer) error            { return syscall.ENOSPC }
func (full) Load(io.Reader, time.Time) error { return nil }

// A record that cannot be saved is counted each time, and logged once: a restart would begin a budget's day anew.
func TestSavedFileOnAFullDisk(t *testing.T) {
	log, failures := &buffer{}, prometheus.NewCounter(prometheus.CounterOpts{})
	f := newSavedFile(full{}, "the day's use of budgets", privateFolder(t), "paris.budgets", testKey, failures, slog.New(slog.NewTextHandler(log, nil)))
	for range 3 {
		f.save()
	}
	if n := testutil.ToFloat64(failures); n != 3 || strings.Count(log.String(), "make room in state.dir") != 1 {
		t.Errorf("%v failures, log %q", n, log)
	}
}

// The page's history outlives the process. A file that another key wrote, that is damaged, or that is a link, is not
// used.
func TestSavedFile(t *testing.T) {
	dir := privateFolder(t)
	file := filepath.Join(dir, "paris.history")
	open := func(key func() ([]byte, error)) (slots int, said string, h *savedFile) {
		t.Helper()
		log, r := &buffer{}, &history.Recorder{}
		h = newSavedFile(r, "history", dir, "paris.history", key, prometheus.NewCounter(prometheus.CounterOpts{}), slog.New(slog.NewTextHandler(log, nil)))
		for _, s := range r.Table(10, 0).Series {
			for _, raw := range s.Raw {
				if raw > 0 {
					slots++
				}
			}
		}
		return slots, log.String(), h
	}
	slots, said, h := open(testKey)
	if slots != 0 || said != "" {
		t.Fatalf("without a file: %d slots, log %q", slots, said)
	}
	h.of.(*history.Recorder).Add(time.Now(), []history.Sample{{Name: history.Name{Peer: "tokyo", Link: true}, Raw: 7}})
	h.save()
	if slots, said, _ = open(testKey); slots != 1 || said != "" {
		t.Errorf("a second process has %d slots, log %q", slots, said)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	refused := func(name string) {
		t.Helper()
		if slots, said, _ := open(testKey); slots != 0 || strings.Count(said, "\n") != 1 || !strings.Contains(said, "not used") {
			t.Errorf("%s: %d slots, log %q", name, slots, said)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(stateMagic)+3] ^= 1
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a bit of the content")
	h.key = func() ([]byte, error) { return []byte("the key of tokyo"), nil }
	h.save()
	refused("another key")
	h.key = testKey
	h.save()
	if err := os.Rename(file, file+".target"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file+".target", file); err != nil {
		t.Fatal(err)
	}
	refused("a link")
	h.save() // replaces the link and leaves its target alone
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
}

package site

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/proxy/residual"
)

// fakeResiduals stands for a proxy's residuals, as a text.
type fakeResiduals struct {
	mu      sync.Mutex
	text    string
	changes uint64
	saves   int
	err     error // of a save, half way
}

func (o *fakeResiduals) set(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text, o.changes = text, o.changes+1
}

func (o *fakeResiduals) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *fakeResiduals) Changes() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changes
}

func (o *fakeResiduals) Save(w io.Writer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.saves++
	if o.err != nil {
		fmt.Fprint(w, "half of ")
		return o.err
	}
	_, err := fmt.Fprint(w, o.text)
	return err
}

func (o *fakeResiduals) Load(r io.Reader) error {
	b, err := io.ReadAll(r)
	if strings.HasPrefix(string(b), "bad") {
		return fmt.Errorf("%w: it is bad", residual.ErrFile)
	}
	o.text = string(b)
	return err
}

// keep runs test with a residual file in dir, in a bubble whose clock jumps.
func keep(t *testing.T, o *fakeResiduals, dir string, test func(k *residualFile, reg *prometheus.Registry, log *buffer)) {
	synctest.Test(t, func(t *testing.T) {
		log, reg := &buffer{}, prometheus.NewRegistry()
		k, err := newResidualFile(o, dir, "paris", testKey, reg, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- k.run(ctx) }()
		test(k, reg, log)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}

// privateFolder makes a folder whose content only this user may change.
func privateFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// testKey is a key of a site.
func testKey() ([]byte, error) { return []byte("the key of paris"), nil }

// wantState checks the content of a file of state.
func wantState(t *testing.T, file, want string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	key, _ := testKey()
	r, err := authenticate(f, info.Size(), key)
	if err != nil {
		t.Errorf("%s: %v", file, err)
		return
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != want {
		t.Errorf("the file has %q, %v, want %q", b, err, want)
	}
}

// writeState writes a file of state under a key.
func writeState(t *testing.T, file, content string, key []byte) {
	t.Helper()
	if _, err := writeFile(file, authenticated(key, func(w io.Writer) error { _, err := io.WriteString(w, content); return err })); err != nil {
		t.Fatal(err)
	}
}

// overhead is what a file of state has beside its content.
const overhead = len(stateMagic) + 32

// after lets time pass, and waits until all goroutines are idle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantFile(t *testing.T, file, want string) {
	t.Helper()
	if b, err := os.ReadFile(file); err != nil || string(b) != want {
		t.Errorf("the file has %q, %v, want %q", b, err, want)
	}
}

func wantMetric(t *testing.T, reg *prometheus.Registry, name string, want float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		m := f.GetMetric()[0]
		if got := m.GetGauge().GetValue() + m.GetCounter().GetValue(); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
		return
	}
	t.Errorf("there is no %s", name)
}

// Residuals are saved every 30 s if they have changed, and only then.
func TestStateIsSaved(t *testing.T) {
	dir, o := filepath.Join(privateFolder(t), "state"), &fakeResiduals{}
	keep(t, o, dir, func(k *residualFile, reg *prometheus.Registry, log *buffer) {
		after(time.Hour)
		if _, err := os.Stat(k.file); !os.IsNotExist(err) || o.saves != 0 {
			t.Errorf("there were no residuals, and %d files were written (%v)", o.saves, err)
		}
		wantMetric(t, reg, "gradproxy_state_age_seconds", 0)
		o.set("first")
		after(saveEvery - time.Second)
		wantMetric(t, reg, "gradproxy_state_age_seconds", 29)
		after(time.Second)
		wantState(t, k.file, "first")
		wantMetric(t, reg, "gradproxy_state_age_seconds", 0)
		wantMetric(t, reg, "gradproxy_state_bytes", 5+float64(overhead))
		after(time.Hour)
		if o.saves != 1 {
			t.Errorf("%d saves of one change", o.saves)
		}
		o.set("second")
		k.save() // as at the drain
		wantState(t, k.file, "second")
		if info, err := os.Stat(k.file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v: want a file that only its owner reads", info, err)
		}
		if log.String() != "" {
			t.Errorf("log:\n%s", log)
		}
	})
	o = &fakeResiduals{}
	keep(t, o, dir, func(k *residualFile, reg *prometheus.Registry, log *buffer) {
		if o.text != "second" || o.saves != 0 || !strings.Contains(log.String(), "residuals loaded") {
			t.Errorf("loaded %q, log:\n%s", o.text, log)
		}
		wantMetric(t, reg, "gradproxy_state_bytes", 6+float64(overhead))
	})
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 { // with the lock
		t.Errorf("the folder has %v, %v", files, err)
	}
}

// A full disk costs a warning every ten minutes and the growing age; the old file stays whole, and all is well again
// once there is room.
func TestFullDisk(t *testing.T) {
	o := &fakeResiduals{}
	keep(t, o, privateFolder(t), func(k *residualFile, reg *prometheus.Registry, log *buffer) {
		o.set("old")
		after(saveEvery)
		o.set("new")
		o.fail(syscall.ENOSPC)
		after(time.Hour)
		wantState(t, k.file, "old")
		if _, err := os.Stat(k.file + ".new"); !os.IsNotExist(err) {
			t.Errorf("what could not be written stays on the disk: %v", err)
		}
		wantMetric(t, reg, "gradproxy_state_save_failures_total", 120)
		wantMetric(t, reg, "gradproxy_state_age_seconds", 3600)
		if n := strings.Count(log.String(), "residuals are not saved"); n != 6 {
			t.Errorf("%d warnings in an hour, want 6:\n%s", n, log)
		}
		o.fail(nil)
		after(saveEvery)
		wantState(t, k.file, "new")
		wantMetric(t, reg, "gradproxy_state_age_seconds", 0)
		if !strings.Contains(log.String(), "residuals are saved again") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// crowded changes all the time, and notes whether two save it at once.
type crowded struct {
	fakeResiduals
	changes, inside atomic.Uint64
	overlap         atomic.Bool
}

func (c *crowded) Changes() uint64 { return c.changes.Add(1) }

func (c *crowded) Save(w io.Writer) error {
	if c.inside.Add(1) > 1 {
		c.overlap.Store(true)
	}
	defer c.inside.Add(^uint64(0))
	for range 100 {
		runtime.Gosched()
	}
	_, err := fmt.Fprint(w, "whole")
	return err
}

// The save of the drain waits for one that is under way.
func TestOneSaveAtATime(t *testing.T) {
	c, log := &crowded{}, &buffer{}
	k, err := newResidualFile(c, privateFolder(t), "paris", testKey, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var all sync.WaitGroup
	for range 20 {
		all.Go(k.save)
	}
	all.Wait()
	wantState(t, k.file, "whole")
	if c.overlap.Load() || log.String() != "" {
		t.Errorf("saves overlap: %v, log:\n%s", c.overlap.Load(), log)
	}
}

// A folder that cannot be is no reason not to start.
func TestStateFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(privateFolder(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := &fakeResiduals{}
	keep(t, o, filepath.Join(file, "state"), func(k *residualFile, reg *prometheus.Registry, log *buffer) {
		if !strings.Contains(log.String(), "residuals are not saved") {
			t.Errorf("that nothing can be saved is not said at the start:\n%s", log)
		}
		o.set("something")
		k.save()
		wantMetric(t, reg, "gradproxy_state_save_failures_total", 1)
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "not a directory") {
			t.Errorf("log of %d lines, want one of the load and one of all saves:\n%s", n, log)
		}
	})
}

// Another user may put a link in the place of the file that is written. The file that the link points to must not
// change.
func TestStateFollowsNoLink(t *testing.T) {
	dir := privateFolder(t)
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &fakeResiduals{}
	keep(t, o, dir, func(k *residualFile, _ *prometheus.Registry, _ *buffer) {
		if err := os.Symlink(other, k.file+".new"); err != nil {
			t.Fatal(err)
		}
		o.set("ours")
		k.save()
		wantFile(t, other, "theirs")
		wantState(t, k.file, "ours")
	})
}

// A file that cannot be used is one line in the log, is moved aside, and does not keep the proxy from starting.
func TestBadState(t *testing.T) {
	dir := privateFolder(t)
	file := filepath.Join(dir, "paris.residuals")
	key, _ := testKey()
	writeState(t, file, "bad", key)
	o := &fakeResiduals{}
	keep(t, o, dir, func(k *residualFile, reg *prometheus.Registry, log *buffer) {
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "it is bad") {
			t.Errorf("log of %d lines, want one:\n%s", n, log)
		}
		wantState(t, file+".bad", "bad")
		wantMetric(t, reg, "gradproxy_state_refused_total", 1)
		o.set("good")
		after(saveEvery)
		wantState(t, file, "good")
	})
}

// Residuals that are a day old are of a training that is over.
func TestOldState(t *testing.T) {
	dir := privateFolder(t)
	file := filepath.Join(dir, "paris.residuals")
	key, _ := testKey()
	writeState(t, file, "old", key)
	for _, x := range []struct {
		age  time.Duration
		want string
	}{{tooOld + time.Minute, ""}, {tooOld - time.Minute, "old"}} {
		o := &fakeResiduals{}
		synctest.Test(t, func(t *testing.T) {
			if err := os.Chtimes(file, time.Time{}, time.Now().Add(-x.age)); err != nil {
				t.Fatal(err)
			}
			k, err := newResidualFile(o, dir, "paris", testKey, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			k.Close()
		})
		if o.text != x.want {
			t.Errorf("a file of %v ago: residuals %q, want %q", x.age, o.text, x.want)
		}
	}
}

// A site saves at its end, and its successor of the same name loads.
func TestSiteKeepsState(t *testing.T) {
	l := newLab(t)
	dir := filepath.Join(l.dir, "kept")
	file := filepath.Join(dir, "paris.residuals")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("not residuals"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := l.run(l.load(0, "state: {dir: kept, memory: 1MiB}\n"))
	r.until(t, "/metrics", 200, "gradproxy_state_age_seconds 0")
	if !strings.Contains(r.log.String(), "saved residuals are not used") {
		t.Errorf("log:\n%s", r.log)
	}
	wantFile(t, file+".bad", "not residuals")
	o := &fakeResiduals{}
	o.set("residuals of a protocol that connects again")
	r.residuals.of = o
	r.end()
	r.wait(t)
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	key, err := stateKey(r.started)()
	if err != nil {
		t.Fatal(err)
	}
	content, err := authenticate(f, info.Size(), key)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(content); err != nil || string(b) != o.text {
		t.Errorf("the file has %q, %v, want %q", b, err, o.text)
	}
}

package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/proxy/residual"
)

const (
	saveEvery = 30 * time.Second
	warnEvery = 10 * time.Minute // while saving fails
	// tooOld is the age from which on a file counts as one of a training that is over: its residuals would only disturb
	// another training.
	tooOld = 24 * time.Hour
)

// residuals can be saved and loaded; *residual.Store is one.
type residuals interface {
	Changes() uint64
	Save(io.Writer) error
	Load(io.Reader) error
}

// A residualFile saves the residuals of tensors that outlive the process. An error of the file must not cost more than
// these residuals, and never ends the proxy.
type residualFile struct {
	of      residuals
	file    string
	log     *slog.Logger
	failed  prometheus.Counter
	refused prometheus.Counter
	bytes   prometheus.Gauge
	key     func() ([]byte, error) // of the file's HMAC; it may change
	lock    *os.File               // nil: the folder knows no locks, or cannot be had

	behind bool // the file may lack residuals that another process has handed over

	saving  sync.Mutex // one save at a time: the save of the drain may come during another
	mu      sync.Mutex
	saved   uint64    // changes that the file has
	under   []byte    // the key of the file; nil: there is no file
	current time.Time // when the file last had all of them
	warned  time.Time // when a failure was logged last; zero: the last save succeeded
}

// newResidualFile returns the residual file of a site in dir, with its metrics. It loads the file if there is one. A
// folder that others may write to, or whose file another process writes, is an error.
func newResidualFile(of residuals, dir, site string, key func() ([]byte, error), reg prometheus.Registerer, log *slog.Logger) (*residualFile, error) {
	r, err := claimResidualFile(of, dir, site, key, reg, log)
	if err == nil {
		r.load()
	}
	return r, err
}

// inheritResidualFile is newResidualFile where another process has handed over residuals that are newer than the file:
// run writes the file anew.
func inheritResidualFile(of residuals, dir, site string, key func() ([]byte, error), reg prometheus.Registerer, log *slog.Logger) (*residualFile, error) {
	r, err := claimResidualFile(of, dir, site, key, reg, log)
	if err == nil {
		r.behind, r.saved = true, math.MaxUint64
	}
	return r, err
}

// claimResidualFile is newResidualFile, but loads nothing.
func claimResidualFile(of residuals, dir, site string, key func() ([]byte, error), reg prometheus.Registerer, log *slog.Logger) (*residualFile, error) {
	r := &residualFile{of: of, file: filepath.Join(dir, site+".residuals"), key: key, log: log, current: time.Now(),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_state_save_failures_total",
			Help: "Times that a file of state.dir could not be written."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_state_refused_total",
			Help: "Files of residuals that were damaged, or not written by this site, and not used."}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{Name: "gradproxy_state_bytes",
			Help: "Bytes of the file of residuals; 0: there is none."}),
	}
	reg.MustRegister(r.failed, r.refused, r.bytes, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gradproxy_state_age_seconds",
		Help: "Time since the file of residuals was up to date: a crash would lose all later changes."}, func() float64 { return r.age().Seconds() }))
	lock, refused, err := claimState(dir, site)
	if refused != nil {
		return nil, refused
	}
	r.lock = lock
	if err == nil {
		var f *os.File
		if f, err = newFile(r.file); err == nil { // said now, and not when there is something to lose
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}
	if err != nil {
		r.warn(err)
	}
	return r, nil
}

// Close lets another process write the file.
func (r *residualFile) Close() error {
	if r.lock == nil {
		return nil
	}
	return r.lock.Close()
}

func (r *residualFile) age() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of.Changes() == r.saved {
		return 0
	}
	return time.Since(r.current)
}

// load reads the file. A file that cannot be used is moved aside.
func (r *residualFile) load() {
	f, err := openState(r.file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var info fs.FileInfo
	if err == nil {
		defer f.Close()
		info, err = f.Stat()
	}
	if err != nil {
		r.log.Warn("saved residuals cannot be read and are not used", "err", err)
		return
	}
	age := time.Since(info.ModTime())
	if age > tooOld {
		r.log.Info("saved residuals are of a training that is over and are not used", "file", r.file, "age", age.Round(time.Second))
		return
	}
	key, err := r.key()
	if err == nil {
		var content io.Reader
		if content, err = authenticate(f, info.Size(), key); err == nil {
			err = r.of.Load(content)
		}
	}
	if errors.Is(err, residual.ErrFile) {
		r.refused.Inc()
		aside := r.file + ".bad"
		if e := os.Rename(r.file, aside); e != nil {
			err = fmt.Errorf("%w; it stays where it is: %w", err, e)
		}
		r.log.Warn("saved residuals are not used and are lost", "err", err, "moved_to", aside)
		return
	}
	if err != nil {
		r.log.Warn("saved residuals cannot be read and are not used", "file", r.file, "err", err)
		return
	}
	r.under = key
	r.bytes.Set(float64(info.Size()))
	r.log.Info("residuals loaded", "file", r.file, "bytes", info.Size(), "age", age.Round(time.Second))
}

// run saves the residuals every 30 s if they have changed, until ctx ends.
func (r *residualFile) run(ctx context.Context) error {
	if r.behind {
		r.save()
	}
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.save()
		case <-ctx.Done():
			return nil
		}
	}
}

// save writes the file if residuals have changed since the last save. A failure is logged now and then, and the next
// save tries again.
func (r *residualFile) save() {
	r.saving.Lock()
	defer r.saving.Unlock()
	at, changes := time.Now(), r.of.Changes()
	key, err := r.key()
	if err == nil && r.has(changes, at, key) {
		return
	}
	var size int64
	if err == nil {
		size, err = writeFile(r.file, authenticated(key, r.of.Save))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed.Inc()
		r.warn(err)
		return
	}
	if !r.warned.IsZero() {
		r.warned = time.Time{}
		r.log.Info("residuals are saved again", "file", r.file)
	}
	r.saved, r.current, r.under = changes, at, key
	r.bytes.Set(float64(size))
}

// warn logs, now and then, why the file cannot be written. r.mu is held, or nobody else has r yet.
func (r *residualFile) warn(err error) {
	if r.warned.IsZero() || time.Since(r.warned) >= warnEvery {
		r.warned = time.Now()
		r.log.Warn("residuals are not saved, and are tried again; make room in state.dir, or let this user write there", "file", r.file, "err", err)
	}
}

// has reports whether the file has all changes so far, at a time, and is written under a key.
func (r *residualFile) has(changes uint64, at time.Time, key []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if changes != r.saved || r.under != nil && !bytes.Equal(r.under, key) {
		return false
	}
	r.current = at
	return true
}

// newFile creates the file that is to replace name, and its folder if there is none. It follows no link: a file or a
// link that has the new file's name is removed first.
func newFile(name string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(name + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(name+".new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// writeFile replaces a file by the output of write, whole or not at all, and returns its length.
func writeFile(name string, write func(io.Writer) error) (int64, error) {
	f, err := newFile(name)
	if err != nil {
		return 0, err
	}
	size := int64(0)
	if err = write(f); err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it may fill the disk
		return 0, err
	}
	if d, err := os.Open(filepath.Dir(name)); err == nil {
		_ = d.Sync() // not all systems can sync a folder: without it the older file may be back after a crash of the host
		d.Close()
	}
	return size, nil
}

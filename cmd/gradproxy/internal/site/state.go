package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
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
	// tooOld is the age from which a file is taken to be of a training that is over: what it says is owed would only
	// disturb another.
	tooOld = 24 * time.Hour
)

// residuals can be saved and loaded; *residual.Store is one.
type residuals interface {
	Changes() uint64
	Save(io.Writer) error
	Load(io.Reader) error
}

// A keeper keeps in a file what error feedback owes to tensors that outlive the process. Whatever goes wrong with the file
// costs at most that, and never the proxy.
type keeper struct {
	of     residuals
	file   string
	log    *slog.Logger
	failed prometheus.Counter
	bytes  prometheus.Gauge

	saving  sync.Mutex // one save at a time: that of the drain may come during another
	mu      sync.Mutex
	saved   uint64    // changes that the file has
	current time.Time // when the file last had all of them
	warned  time.Time // of a failure; zero: the last save was one
}

// newKeeper returns a keeper of dir, with its metrics. It loads what is there.
func newKeeper(of residuals, dir, site string, reg prometheus.Registerer, log *slog.Logger) *keeper {
	k := &keeper{of: of, file: filepath.Join(dir, site+".residuals"), log: log, current: time.Now(),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "gradproxy_state_save_failures_total",
			Help: "Times that the residuals could not be saved."}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{Name: "gradproxy_state_bytes",
			Help: "Bytes of the file of residuals; 0: there is none."}),
	}
	reg.MustRegister(k.failed, k.bytes, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gradproxy_state_age_seconds",
		Help: "Time since the file of residuals had all that is owed: what a crash would lose."}, func() float64 { return k.age().Seconds() }))
	k.load()
	return k
}

func (k *keeper) age() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of.Changes() == k.saved {
		return 0
	}
	return time.Since(k.current)
}

// load reads the file. One that cannot be used is moved aside.
func (k *keeper) load() {
	f, err := os.Open(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var info fs.FileInfo
	if err == nil {
		defer f.Close()
		info, err = f.Stat()
	}
	if err != nil {
		k.log.Warn("saved residuals cannot be read and are not used", "err", err)
		return
	}
	age := time.Since(info.ModTime())
	if age > tooOld {
		k.log.Info("saved residuals are of a training that is over and are not used", "file", k.file, "age", age.Round(time.Second))
		return
	}
	err = k.of.Load(f)
	if errors.Is(err, residual.ErrFile) {
		aside := k.file + ".bad"
		if e := os.Rename(k.file, aside); e != nil {
			err = fmt.Errorf("%w; it stays where it is: %w", err, e)
		}
		k.log.Warn("saved residuals are not used: what was owed to tensors is lost", "err", err, "moved_to", aside)
		return
	}
	if err != nil {
		k.log.Warn("saved residuals cannot be read and are not used", "file", k.file, "err", err)
		return
	}
	k.bytes.Set(float64(info.Size()))
	k.log.Info("residuals loaded", "file", k.file, "bytes", info.Size(), "age", age.Round(time.Second))
}

// run saves every 30 s what has changed, until ctx ends.
func (k *keeper) run(ctx context.Context) error {
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			k.save()
		case <-ctx.Done():
			return nil
		}
	}
}

// save writes the file if it does not have all that is owed. A failure is logged now and then, and tried again by the next
// save.
func (k *keeper) save() {
	k.saving.Lock()
	defer k.saving.Unlock()
	at, changes := time.Now(), k.of.Changes()
	if k.has(changes, at) {
		return
	}
	bytes, err := writeFile(k.file, k.of.Save)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.failed.Inc()
		if k.warned.IsZero() || time.Since(k.warned) >= warnEvery {
			k.warned = time.Now()
			k.log.Warn("residuals are not saved, and are tried again; make room in state.dir, or let this user write there", "file", k.file, "err", err)
		}
		return
	}
	if !k.warned.IsZero() {
		k.warned = time.Time{}
		k.log.Info("residuals are saved again", "file", k.file)
	}
	k.saved, k.current = changes, at
	k.bytes.Set(float64(bytes))
}

// has reports whether the file has all changes so far, at a time.
func (k *keeper) has(changes uint64, at time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if changes != k.saved {
		return false
	}
	k.current = at
	return true
}

// writeFile puts what write writes in the place of a file, whole or not at all, and returns its length.
func writeFile(name string, write func(io.Writer) error) (int64, error) {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
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
		_ = os.Remove(f.Name()) // it may be what fills the disk
		return 0, err
	}
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync() // where folders can be: without it the older file may be back after a crash of the host
		d.Close()
	}
	return size, nil
}

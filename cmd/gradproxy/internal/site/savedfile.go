package site

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// saveRecordEvery is how often a record is saved: a crash loses so much of it.
const saveRecordEvery = time.Minute

// A record can be saved, and loaded by another process at a time.
type record interface {
	Save(w io.Writer) error
	Load(from io.Reader, now time.Time) error
}

// A savedFile saves a record, such as the page's history, so that it outlives the process. It lies beside the residual
// file, whose lock covers it, and is authenticated like it. An error costs only the record.
type savedFile struct {
	of   record
	what string // the record in words, for the log
	file string
	key  func() ([]byte, error)
	log  *slog.Logger

	failures prometheus.Counter // of saves

	saving sync.Mutex
	failed bool // the last save has failed, and the log has said so
}

// newSavedFile returns the file of a record in dir. It loads the file if there is one. failures counts saves that fail.
func newSavedFile(of record, what, dir, name string, key func() ([]byte, error), failures prometheus.Counter, log *slog.Logger) *savedFile {
	f := &savedFile{of: of, what: what, file: filepath.Join(dir, name), key: key, failures: failures, log: log}
	if err := f.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("saved state is not used, and begins anew", "state", what, "file", f.file, "err", err)
	}
	return f
}

func (s *savedFile) load() error {
	f, err := openState(s.file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	key, err := s.key()
	if err != nil {
		return err
	}
	content, err := authenticate(f, info.Size(), key)
	if err != nil {
		return err
	}
	return s.of.Load(content, time.Now())
}

// run saves the record now and then until ctx ends.
func (s *savedFile) run(ctx context.Context) error {
	t := time.NewTicker(saveRecordEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			s.save()
		}
	}
}

// save writes the file. Each failure is counted, and the first of several is logged.
func (s *savedFile) save() {
	s.saving.Lock()
	defer s.saving.Unlock()
	key, err := s.key()
	if err == nil {
		_, err = writeFile(s.file, authenticated(key, s.of.Save))
	}
	if err != nil {
		s.failures.Inc()
	}
	if err != nil && !s.failed {
		s.log.Warn("state is not saved, and is tried again; make room in state.dir, or let this user write there", "state", s.what, "file", s.file, "err", err)
	}
	s.failed = err != nil
}

// sources is the record of the addresses from which peers have come.
type sources struct{ *tunnel.Endpoint }

func (s sources) Save(w io.Writer) error                   { return s.SaveSources(w) }
func (s sources) Load(from io.Reader, now time.Time) error { return s.LoadSources(from, now) }

// choices is the record of the carriers that were chosen for peers.
type choices struct{ *tunnel.Endpoint }

func (c choices) Save(w io.Writer) error                   { return c.SaveChoices(w) }
func (c choices) Load(from io.Reader, now time.Time) error { return c.LoadChoices(from, now) }

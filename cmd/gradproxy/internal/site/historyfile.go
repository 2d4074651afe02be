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

	"github.com/gradproxy/gradproxy/proxy/history"
)

// saveHistoryEvery is how often the history is saved: a crash loses so much of it.
const saveHistoryEvery = time.Minute

// A historyFile saves the page's history, so that it outlives the process. It lies beside the residual file, whose lock covers it, and is authenticated like
// it. An error costs only history.
type historyFile struct {
	of   *history.Recorder
	file string
	key  func() ([]byte, error)
	log  *slog.Logger

	saving sync.Mutex
	failed bool // the last save has failed, and the log has said so
}

// newHistoryFile returns the history file of a site in dir. It loads the file if there is one.
func newHistoryFile(of *history.Recorder, dir, site string, key func() ([]byte, error), log *slog.Logger) *historyFile {
	h := &historyFile{of: of, file: filepath.Join(dir, site+".history"), key: key, log: log}
	if err := h.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the saved history of the page is not used: the page begins with an empty one", "file", h.file, "err", err)
	}
	return h
}

func (h *historyFile) load() error {
	f, err := openState(h.file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	key, err := h.key()
	if err != nil {
		return err
	}
	content, err := authenticate(f, info.Size(), key)
	if err != nil {
		return err
	}
	return h.of.Load(content, time.Now())
}

// run saves the history now and then until ctx ends.
func (h *historyFile) run(ctx context.Context) error {
	t := time.NewTicker(saveHistoryEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			h.save()
		}
	}
}

// save writes the file. The first of several failures is logged.
func (h *historyFile) save() {
	h.saving.Lock()
	defer h.saving.Unlock()
	key, err := h.key()
	if err == nil {
		_, err = writeFile(h.file, authenticated(key, func(w io.Writer) error { return h.of.Save(w) }))
	}
	if err != nil && !h.failed {
		h.log.Warn("the history of the page is not saved, and is tried again; make room in state.dir, or let this user write there", "file", h.file, "err", err)
	}
	h.failed = err != nil
}

//go:build amd64 || arm64

package apart

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// A logged writes a process's log into this one's: JSON objects with level, msg and more, and other lines, as of the
// runtime, as errors.
type logged struct {
	log  *slog.Logger
	name string // of the process
	says string // message of other lines
	rest string // of a line
}

// maxLine bounds the bytes of a line that are kept.
const maxLine = 4096

func (l *logged) Write(b []byte) (int, error) {
	l.rest += string(b)
	for {
		line, rest, whole := strings.Cut(l.rest, "\n")
		if !whole && len(l.rest) <= maxLine {
			return len(b), nil
		}
		l.rest = rest
		l.line(line)
	}
}

func (l *logged) line(text string) {
	var level slog.Level
	fields := map[string]any{}
	err := json.Unmarshal([]byte(text), &fields)
	message, _ := fields[slog.MessageKey].(string)
	if word, ok := fields[slog.LevelKey].(string); err != nil || !ok || level.UnmarshalText([]byte(word)) != nil {
		l.log.Error(l.says, "line", text)
		return
	}
	for _, key := range []string{slog.TimeKey, slog.LevelKey, slog.MessageKey} {
		delete(fields, key)
	}
	attrs := []any{"process", strings.TrimPrefix(l.name, "gradproxy-")}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		attrs = append(attrs, key, fields[key])
	}
	l.log.Log(context.Background(), level, message, attrs...)
}

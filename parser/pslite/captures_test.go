package pslite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture"
	"github.com/gradproxy/gradproxy/tensor"
)

// A listener gives one connection of a capture to the proxies at both its ends.
type listener struct {
	conn    capture.Conn
	parsers [2][2]parser.Parser // of the proxy beside a side, for a direction
	failed  [2]error
	heard   [2][]tensor.Tensor // by direction: each value as it began
	apart   int                // values that the two proxies see differently
}

func (l *listener) Gap(from parser.Side) { l.failed[from] = fmt.Errorf("gap") }
func (l *listener) Close(bool)           {}

func (l *listener) Data(from parser.Side, b []byte) {
	for len(b) > 0 && l.failed[from] == nil {
		far, _ := l.parsers[1-from][from].Next(b)
		seg, err := l.parsers[from][from].Next(b)
		if l.failed[from] = err; err != nil {
			return
		}
		if t := seg.Tensor; t.Size > 0 && t.Off == 0 {
			l.heard[from] = append(l.heard[from], t)
			if f := far.Tensor; f.Key != t.Key || f.Role != t.Role || f.DType != t.DType {
				l.apart++
			}
		}
		b = b[seg.Len:]
	}
}

// listen plays a capture, less its first connections, through proxies at every end. job is the configured one, or "".
func listen(t *testing.T, path, job string, without int) (all []*listener) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	near := [2]*Protocol{{}, {}}
	err = capture.Read(f, func(c capture.Conn) capture.Sink {
		l := &listener{conn: c}
		if all = append(all, l); len(all) <= without {
			return nil
		}
		for side := range near {
			pc := parser.Conn{Job: job, Client: c.Client, Server: c.Server, Number: c.Number, Own: parser.Side(side)}
			l.parsers[side][0], l.parsers[side][1] = near[side].New(pc)
		}
		return l
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// In recorded jobs both proxies see the same, and the scheduler's table joins all connections as a configuration does.
// Without the first connections of a recording, pushes stay as they are, and an answer's role is the same or not known.
func TestCapturedJobs(t *testing.T) {
	for _, file := range require.Captures(t, "pslite-*.pcap*") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			whole := listen(t, file, "capture", 0)
			keys := map[uint64]tensor.Tensor{}
			for _, l := range whole {
				for side, err := range l.failed {
					if err != nil {
						t.Errorf("%v from the %v: %v", l.conn, parser.Side(side), err)
					}
				}
				if l.apart > 0 {
					t.Errorf("%v: the proxies see %d values differently", l.conn, l.apart)
				}
				for _, values := range l.heard {
					checkKeys(t, keys, values)
				}
			}
			compare(t, "without configuration", whole, listen(t, file, "", 0), false)
			for _, without := range []int{len(whole) / 3, 2 * len(whole) / 3} {
				compare(t, fmt.Sprintf("without %d connections", without), whole, listen(t, file, "capture", without), true)
			}
		})
	}
}

// checkKeys checks that a key stays with its values: one type and direction and, but for the keys of rows, one size. A
// base stays too, once there is one; only gradients have none.
func checkKeys(t *testing.T, keys map[uint64]tensor.Tensor, values []tensor.Tensor) {
	t.Helper()
	for _, v := range values {
		last, ok := keys[v.Key]
		if v.Key == 0 || ok && (last.DType != v.DType || last.Size != v.Size && !v.Index() ||
			last.Size == v.Size && last.Base != v.Base && last.Base != 0 && v.Base != 0) || v.Role == tensor.Gradient && v.Base != 0 {
			t.Errorf("%+v has the key of %+v", v, last)
		}
		keys[v.Key] = v
	}
}

// compare compares the values found in some of a job's connections with the values of all. less: connections are
// missing.
func compare(t *testing.T, what string, whole, part []*listener, less bool) {
	t.Helper()
	for i, l := range part {
		for side, values := range l.heard {
			for k, v := range values {
				w := whole[i].heard[side][k]
				lost := v.Role == tensor.Unknown && (w.Role == tensor.State || w.Role == tensor.Aggregate)
				if v.DType != w.DType || v.Size != w.Size || v.Role != w.Role && !(less && lost) {
					t.Errorf("%s: %v, from the %v, value %d: %+v, else %+v", what, l.conn, parser.Side(side), k, v, w)
				}
			}
		}
	}
}

package gloo

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture"
	"github.com/gradproxy/gradproxy/tensor"
)

// A heard message is a payload with what the proxy beside its sender said of it.
type heard struct {
	from  parser.Side
	op    op
	value tensor.Tensor // at its first byte
	data  []byte
}

// A listener gives one connection of a capture to the proxies of both its ends.
type listener struct {
	conn     capture.Conn
	parsers  [2][2]parser.Parser // of the proxy beside a side, for a direction
	failed   [2]error
	messages []heard
	open     [2]*heard
	complete bool
	err      error
}

func (l *listener) Gap(from parser.Side) { l.failed[from] = fmt.Errorf("gap") }
func (l *listener) Close(complete bool)  { l.complete = complete }

func (l *listener) Data(from parser.Side, b []byte) {
	far := l.parsers[1-from][from]
	for rest := b; len(rest) > 0; { // the proxy beside the receiver only learns
		seg, err := far.Next(rest)
		if err != nil {
			break
		}
		rest = rest[seg.Len:]
	}
	for len(b) > 0 && l.failed[from] == nil {
		p := l.parsers[from][from]
		seg, err := p.Next(b)
		if err != nil {
			l.failed[from] = err
			return
		}
		if t := seg.Tensor; t.Size > 0 {
			if t.Off == 0 {
				l.messages = append(l.messages, heard{from: from, op: p.(*stream).watch.op, value: t})
			}
			m := &l.messages[len(l.messages)-1]
			if t.Off > 0 {
				for i := len(l.messages) - 1; ; i-- {
					if m = &l.messages[i]; m.from == from {
						break
					}
				}
			}
			m.data = append(m.data, b[:seg.Len]...)
		}
		b = b[seg.Len:]
	}
}

// listen plays a capture through proxies at every end, all in one job.
func listen(t testing.TB, path string, sums tensor.Role, ranks int) []*listener {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	near := [2]*Protocol{{}, {}}
	var all []*listener
	err = capture.Read(f, func(c capture.Conn) capture.Sink {
		l := &listener{conn: c}
		for side := range near {
			pc := parser.Conn{Job: "capture", Client: c.Client, Server: c.Server, Number: c.Number, Ranks: ranks, Sums: sums, Own: parser.Side(side)}
			l.parsers[side][0], l.parsers[side][1] = near[side].New(pc)
		}
		all = append(all, l)
		return l
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestDump(t *testing.T) {
	file := os.Getenv("DUMP")
	if file == "" {
		t.Skip()
	}
	for _, l := range listen(t, filepath.Join(file), tensor.Gradient, 0) {
		if len(l.messages) == 0 {
			continue
		}
		fmt.Println(l.conn, l.failed)
		roles := map[tensor.Role]int{}
		for _, m := range l.messages {
			roles[m.value.Role] += m.value.Size
			if m.op.slot.kind() == allReduce {
				fmt.Printf("%v tag %3d %8d %-9v %-8v key %016x %v\n", m.from, m.op.slot.tag(), m.value.Size, m.value.Role, m.value.DType, m.value.Key, m.value.Why)
			}
		}
		fmt.Println(roles)
	}
}

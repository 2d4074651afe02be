package pslite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/parsertest"
)

// The handshakes of node 9 and of the side that accepts, as captured from MXNet.
const (
	readyOfDealer = "\x04\x2c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x03ps9"
	readyOfRouter = "\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER\x08Identity\x00\x00\x00\x00"
)

// This package's tests write the same bytes as libzmq.
func TestHello(t *testing.T) {
	for identity, want := range map[string]string{"ps9": readyOfDealer, "": readyOfRouter} {
		socket := "ROUTER"
		if identity != "" {
			socket = "DEALER"
		}
		if got := hello(1, socket, identity)[64:]; string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestReady(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       ready
		ok         bool
	}{
		{"a worker", readyOfDealer[2:], ready{true, 9}, true},
		{"who accepts", readyOfRouter[2:], ready{false, 0}, true},
		{"names in other letters", "\x05READY\x0bsocket-type\x00\x00\x00\x06DEALER\x08IDENTITY\x00\x00\x00\x04ps10", ready{true, 10}, true},
		{"more properties", "\x05READY\x01X\x00\x00\x00\x00\x0bSocket-Type\x00\x00\x00\x06DEALER", ready{true, 0}, true},
		{"another socket", "\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB", ready{}, false},
		{"no socket", "\x05READY", ready{}, false},
		{"another identity", "\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x03abc", ready{}, false},
		{"a value cut short", "\x05READY\x0bSocket-Type\x00\x00\x00\x07DEALER", ready{}, false},
		{"a length cut short", "\x05READY\x0bSocket-Type\x00\x00\x00", ready{}, false},
		{"a length beyond 2^31", "\x05READY\x0bSocket-Type\xff\xff\xff\xffDEALER", ready{}, false},
	} {
		_, data := commandName([]byte(c.body))
		if got, ok := parseReady(data); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, ok)
		}
	}
}

func TestNodeID(t *testing.T) {
	for name, want := range map[string]int{"ps1": 1, "ps9": 9, "ps2147483647": 1<<31 - 1, "ps2147483648": 0, "ps": 0, "": 0, "ps0": 0,
		"ps-1": 0, "ps+9": 0, "ps9 ": 0, "px9": 0, "ps00000000000000009": 0} {
		if got := nodeID([]byte(name)); got != want {
			t.Errorf("%q is %d, want %d", name, got, want)
		}
	}
}

// A message that every test of framing uses: a push of 40 bytes.
var aPush = say{kind: push, keys: []uint64{6}, vals: 40}

// However frames are written, the payload is found: 40 bytes of one tensor.
func TestFraming(t *testing.T) {
	greet := hello(1, "DEALER", "ps9")
	long := func(flags byte, body []byte) []byte { // LONG with a small size
		return append(binary.BigEndian.AppendUint64([]byte{flags | 2}, uint64(len(body))), body...)
	}
	m := meta{request: true, push: true, types: conventional, frames: 3}.proto()
	key, lens := []byte{6, 0, 0, 0, 0, 0, 0, 0}, []byte{40, 0, 0, 0}
	for name, b := range map[string][]byte{
		"as libzmq":               aPush.bytes(),
		"long sizes":              bytes.Join([][]byte{long(1, m), long(1, key), long(1, make([]byte, 40)), long(0, lens)}, nil),
		"after PING":              append(zframe(4, []byte("\x04PING\x00\x0aabc")), aPush.bytes()...),
		"after PONG":              append(zframe(4, []byte("\x04PONG")), aPush.bytes()...),
		"after an unknown one":    append(zframe(4, make([]byte, 1000)), aPush.bytes()...),
		"after an empty command":  append(zframe(4, nil), aPush.bytes()...),
		"after a second READY":    append([]byte(readyOfRouter), aPush.bytes()...),
		"a meta of over 255":      append(tableOf(false, nodeOf(8), nodeOf(9), nodeOf(10), nodeOf(11), nodeOf(12), nodeOf(13), nodeOf(14), nodeOf(1)), aPush.bytes()...),
		"after an empty pull":     append(say{kind: pull, keys: []uint64{6}}.bytes(), aPush.bytes()...),
		"after a barrier":         append(multipart(meta{head: unset, command: 3, request: true}.proto()), aPush.bytes()...),
		"after an acknowledgment": append(say{kind: ack}.bytes(), aPush.bytes()...),
	} {
		got, err := parsertest.Play(new(Protocol), parser.Conn{}, parsertest.Exchange{{From: parser.Client, Bytes: append(bytes.Clone(greet), b...)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, s := range got.Client {
			if s.Tensor.Size > 0 {
				found += s.Len
			}
		}
		if found != 40 {
			t.Errorf("%s: a payload of %d bytes", name, found)
		}
	}
}

// Incomplete, foreign and broken input have three answers.
func TestAnswers(t *testing.T) {
	greet := hello(0, "DEALER", "ps9")
	with := func(at int, b byte) []byte {
		g := bytes.Clone(greet)
		g[at] = b
		return g
	}
	after := func(b ...[]byte) []byte {
		return append(append(bytes.Clone(greet), aPush.bytes()...), bytes.Join(b, nil)...)
	}
	wrong := aPush
	wrong.lens = []int{41}
	two := aPush
	two.frames = 2
	for _, c := range []struct {
		name    string
		bytes   []byte
		foreign bool
		broken  string // part of the error's text
	}{
		{name: "a greeting cut short", bytes: greet[:63]},
		{name: "a greeting", bytes: greet[:64]},
		{name: "a READY cut short", bytes: greet[:70]},
		{name: "a handshake", bytes: greet},
		{name: "padding", bytes: with(4, 0xaa)},
		{name: "a later version", bytes: with(10, 4)},
		{name: "a filler", bytes: with(50, 1)},
		{name: "ERROR for READY", bytes: append(bytes.Clone(greet[:64]), zframe(4, []byte("\x05ERROR\x03no!"))...)},

		{name: "text", bytes: []byte("GET / HTTP/1.1\r\n"), foreign: true},
		{name: "zeros", bytes: make([]byte, 64), foreign: true},
		{name: "ZMTP 1.0", bytes: append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 4}, 0), foreign: true},
		{name: "ZMTP 2.0", bytes: with(10, 1)[:11], foreign: true},
		{name: "PLAIN", bytes: append(bytes.Clone(greet[:12]), "PLAIN"...), foreign: true},
		{name: "NULLS", bytes: with(16, 'S'), foreign: true},
		{name: "another READY", bytes: hello(0, "SUB", ""), foreign: true},
		{name: "another identity", bytes: hello(0, "DEALER", "worker"), foreign: true},
		{name: "a message for READY", bytes: append(bytes.Clone(greet[:64]), multipart([]byte{8, 0})...), foreign: true},
		{name: "another command for READY", bytes: append(bytes.Clone(greet[:64]), zframe(4, []byte("\x05HELLO"))...), foreign: true},
		{name: "a READY of 2 MiB", bytes: append(bytes.Clone(greet[:64]), 6, 0, 0, 0, 0, 0, 0x20, 0, 0), foreign: true},
		{name: "another's message", bytes: append(bytes.Clone(greet), multipart([]byte("hello"))...), foreign: true},
		{name: "an empty message", bytes: append(bytes.Clone(greet), 0, 0), foreign: true},
		{name: "an answer of nobody", bytes: append(hello(0, "ROUTER", ""), multipart([]byte("hello"), []byte{8, 0})...), foreign: true},

		{name: "an answer of a worker", bytes: append(hello(0, "ROUTER", ""), zframe(1, []byte("ps9"))...), foreign: true},
		{name: "an answer that is a name", bytes: append(hello(0, "ROUTER", ""), zframe(0, []byte("ps8"))...), foreign: true},

		{name: "reserved flags", bytes: after([]byte{0x10, 0}), broken: "flags 0x10"},
		{name: "a frame of 2^31 bytes", bytes: after([]byte{3, 0, 0, 0, 0, 0x80, 0, 0, 0}), broken: "a size of"},
		{name: "a frame of 2^64 bytes", bytes: after([]byte{3, 255, 255, 255, 255, 255, 255, 255, 255}), broken: "a size of"},
		{name: "a command with MORE", bytes: after(zframe(5, nil)), broken: "a command within"},
		{name: "a command within a message", bytes: after(zframe(1, meta{request: true, push: true, types: conventional, frames: 3}.proto()), zframe(4, nil)), broken: "a command within"},
		{name: "no meta", bytes: after(multipart([]byte("hello"))), broken: "a meta of 5 bytes"},
		{name: "a meta of 2 MiB", bytes: after([]byte{3, 0, 0, 0, 0, 0, 0x20, 0, 0}), broken: "a meta of 2097152 bytes"},
		{name: "frames missing", bytes: after(multipart(meta{request: true, push: true, types: conventional, frames: 3}.proto())), broken: "other than 3 frames"},
		{name: "frames too many", bytes: after(multipart(meta{simple: true}.proto(), nil)), broken: "other than 0 frames"},
		{name: "lens missing", bytes: after(multipart(meta{request: true, push: true, types: conventional, frames: 3}.proto(), make([]byte, 8), nil)), broken: "other than 3 frames"},
		{name: "lens too many", bytes: after(multipart(meta{request: true, push: true, types: conventional, frames: 2}.proto(), make([]byte, 8), nil, nil)), broken: "other than 2 frames"},
		{name: "another frame", bytes: after(multipart(meta{request: true, push: true, types: conventional, frames: 3}.proto(), make([]byte, 8), nil, nil, nil)), broken: "other than 3 frames"},
		{name: "lens that differ", bytes: after(wrong.bytes()), broken: "lengths"},
		{name: "one frame of data", bytes: after(multipart(meta{frames: 1}.proto(), nil)), broken: "a meta of"},
		{name: "two frames of data", bytes: after(two.bytes())},
	} {
		for _, step := range []int{1, len(c.bytes)} {
			client, _ := new(Protocol).New(parser.Conn{})
			var err error
			for rest := c.bytes; err == nil && len(rest) > 0; {
				var seg parser.Segment
				seg, err = client.Next(rest[:min(step, len(rest))])
				rest = rest[seg.Len:]
			}
			switch {
			case c.foreign != errors.Is(err, parser.ErrForeign), (err != nil) != (c.foreign || c.broken != ""):
				t.Errorf("%s: %v", c.name, err)
			case c.broken != "" && (!strings.Contains(err.Error(), c.broken) || !errors.Is(err, parser.ErrForget) || !errors.Is(err, errBroken)):
				t.Errorf("%s: %v, want %q, and that tensors are forgotten", c.name, err, c.broken)
			case err != nil && strings.Contains(err.Error(), "\n"):
				t.Errorf("%s: not one line: %v", c.name, err)
			}
		}
	}
}

// Messages, and messages with a payload, are counted from their metas on.
func TestCounts(t *testing.T) {
	n := newNetwork(t, "")
	w := n.connect(9, 8)
	counter := w.parsers[parser.Client].(parser.Counter)
	if all, _ := counter.Messages(); all != 0 {
		t.Errorf("%d messages after the handshake", all)
	}
	if r := w.parsers[parser.Client].(*stream); !r.Recognized() {
		t.Error("a node that says its name is not recognized")
	}
	if r := w.parsers[parser.Server].(*stream); r.Recognized() {
		t.Error("a ROUTER of anybody's is recognized")
	}
	w.say(say{kind: command, head: 3})
	w.say(say{kind: pull, keys: []uint64{6}})
	w.say(aPush)
	w.send(parser.Client, aPush.bytes()[:80])
	if all, payloads := counter.Messages(); all != 4 || payloads != 3 {
		t.Errorf("%d messages, %d payloads; want 4 and 3", all, payloads)
	}
}

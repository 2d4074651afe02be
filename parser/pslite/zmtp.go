package pslite

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

// ZMTP 3.0 and 3.1: https://rfc.zeromq.org/spec/23 and 37.

// greetingLen is the length of the greeting in bytes.
const greetingLen = 64

// mechanism is the name in a greeting from byte 12 on, zero-padded to 20 bytes.
const mechanism = "NULL\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// greets reports whether b begins a greeting of ZMTP 3 or later with the NULL mechanism, as far as b goes. The padding
// and the filler are not to be interpreted.
func greets(b []byte) bool {
	switch {
	case len(b) > 0 && b[0] != 0xff:
		return false
	case len(b) > 9 && b[9]&1 == 0: // ZMTP 1.0 has the flags of its first frame here
		return false
	case len(b) > 10 && b[10] < 3:
		return false
	case len(b) > 12:
		end := min(len(b), 12+len(mechanism))
		return string(b[12:end]) == mechanism[:end-12]
	}
	return true
}

// Flags of a frame.
const (
	flagMore    = 1 << iota // another frame of the message follows
	flagLong                // the size has 8 bytes
	flagCommand             // a command, no part of a message
	flagsKnown  = flagMore | flagLong | flagCommand
)

// headerLen returns the bytes of a frame's flags and size.
func headerLen(flags byte) int {
	if flags&flagLong != 0 {
		return 9
	}
	return 2
}

// maxFrame bounds a frame's body in bytes: ps-lite counts them in signed 32-bit integers.
const maxFrame = math.MaxInt32

// frameSize returns the size in a frame's header, and false if there cannot be such a frame.
func frameSize(header []byte) (int, bool) {
	if header[0]&^flagsKnown != 0 {
		return 0, false
	}
	if header[0]&flagLong == 0 {
		return int(header[1]), true
	}
	n := binary.BigEndian.Uint64(header[1:])
	return int(min(n, maxFrame+1)), n <= maxFrame
}

// A ready holds the facts of READY on its sender.
type ready struct {
	dealer bool // else a ROUTER
	id     int  // of the node; 0: it has none yet, or does not say
}

// commandName splits a command's body.
func commandName(body []byte) (name string, data []byte) {
	if len(body) == 0 || len(body) <= int(body[0]) {
		return "", nil
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:]
}

// parseReady reads READY's properties. It reports false if no socket of ps-lite has such properties.
func parseReady(data []byte) (r ready, ok bool) {
	var socket, identity string
	for len(data) > 0 {
		n := 1 + int(data[0])
		if len(data) < n+4 {
			return ready{}, false
		}
		name, rest := string(data[1:n]), data[n+4:]
		size := binary.BigEndian.Uint32(data[n:])
		if uint64(size) > uint64(len(rest)) {
			return ready{}, false
		}
		switch value := string(rest[:size]); strings.ToLower(name) {
		case "socket-type":
			socket = value
		case "identity":
			identity = value
		}
		data = rest[size:]
	}
	r.dealer = socket == "DEALER"
	if identity != "" {
		if r.id = nodeID([]byte(identity)); r.id == 0 {
			return ready{}, false
		}
	}
	return r, r.dealer || socket == "ROUTER"
}

// maxName is the length of the longest name of a node: "ps" and a positive int32.
const maxName = 12

// nodeID returns the id in a node's name, "ps" and a decimal number, and 0 if it is no such name.
func nodeID(name []byte) int {
	if len(name) < 3 || len(name) > maxName || name[0] != 'p' || name[1] != 's' {
		return 0
	}
	id, err := strconv.ParseUint(string(name[2:]), 10, 31)
	if err != nil {
		return 0
	}
	return int(id)
}

// scheduler is the id of the scheduler.
const scheduler = 1

// worker reports whether id is a worker's; rank 0 is worker 9.
func worker(id int) bool { return id >= 9 && id%2 == 1 }

// rank0 is the id of the worker whose first pushes are MXNet's initial weights.
const rank0 = 9

// server reports whether id is a server's.
func server(id int) bool { return id >= 8 && id%2 == 0 }

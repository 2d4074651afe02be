// Package recorded gives tests the streams of recorded PyTorch jobs: packet captures (NAME.pcap.gz) and the truth about
// them (NAME.truth.json) in the directory that GRADPROXY_CAPTURES names.
package recorded

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser/capture/capturetest"
)

// A Job is a recorded job.
type Job struct {
	World       int // ranks
	Connections []Connection
	Params      []Param // of its model, in order
}

// A Connection is one of the job's Gloo connections, from its first byte to its last.
type Connection struct {
	Initiator, Acceptor netip.AddrPort
	FromInitiator       []byte // without the sequence number
	FromAcceptor        []byte
	Sequence            *uint64 // the sequence number that the initiator sent; nil: none, as before May 2023
}

// A Param is a parameter of the model.
type Param struct {
	Shape []int
	Bytes int
}

// truth is the part of a truth file that is needed here.
type truth struct {
	World int
	Wire  struct {
		Connections []struct {
			Initiator, Acceptor netip.AddrPort
			Sequence            *uint64 `json:"handshake_seq"`
			Directions          [2]struct {
				StreamSHA256 string `json:"stream_sha256"`
			}
		}
	}
	Framework struct {
		Params [][3]json.RawMessage // name, shape, bytes
	}
}

// Open reads a recorded job, and makes sure that no byte is missing. Without GRADPROXY_CAPTURES it skips the test.
func Open(t testing.TB, name string) Job {
	t.Helper()
	file := require.Captures(t, name+".pcap.gz")[0]
	text, err := os.ReadFile(strings.TrimSuffix(file, ".pcap.gz") + ".truth.json")
	if err != nil {
		t.Fatal(err)
	}
	job, err := open(text, capturetest.Read(t, file))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return job
}

// open joins the truth of a job, in JSON, and its connections.
func open(text []byte, connections []*capturetest.Recorded) (job Job, err error) {
	var known truth
	if err := json.Unmarshal(text, &known); err != nil {
		return job, err
	}
	job.World = known.World
	for _, c := range known.Wire.Connections {
		conn := Connection{Initiator: c.Initiator, Acceptor: c.Acceptor, Sequence: c.Sequence}
		for _, r := range connections {
			if r.Client == c.Initiator && r.Server == c.Acceptor {
				conn.FromInitiator, conn.FromAcceptor = r.FromClient, r.FromServer
			}
		}
		for i, stream := range [][]byte{conn.FromInitiator, conn.FromAcceptor} {
			if sum := sha256.Sum256(stream); hex.EncodeToString(sum[:]) != c.Directions[i].StreamSHA256 {
				return job, fmt.Errorf("connection of %v, direction %d: not the bytes that were recorded", c.Initiator, i)
			}
		}
		if c.Sequence != nil {
			if got := binary.LittleEndian.Uint64(conn.FromInitiator); got != *c.Sequence {
				return job, fmt.Errorf("connection of %v: sequence number %d, want %d", c.Initiator, got, *c.Sequence)
			}
			conn.FromInitiator = conn.FromInitiator[8:]
		}
		job.Connections = append(job.Connections, conn)
	}
	for _, p := range known.Framework.Params {
		var param Param
		if err := errors.Join(json.Unmarshal(p[1], &param.Shape), json.Unmarshal(p[2], &param.Bytes)); err != nil {
			return job, err
		}
		job.Params = append(job.Params, param)
	}
	return job, nil
}

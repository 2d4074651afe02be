// Package recorded gives tests the streams of recorded PyTorch jobs: packet captures (NAME.pcap.gz) and what is known of
// them (NAME.truth.json) in the directory that GRADPROXY_CAPTURES names.
package recorded

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
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
	dir := os.Getenv("GRADPROXY_CAPTURES")
	require.Named(t, "captures", dir != "", "set GRADPROXY_CAPTURES to the directory of the recorded jobs")
	job, err := open(filepath.Join(dir, name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return job
}

func open(path string) (job Job, err error) {
	text, err := os.ReadFile(path + ".truth.json")
	if err != nil {
		return job, err
	}
	var known truth
	if err := json.Unmarshal(text, &known); err != nil {
		return job, err
	}
	f, err := os.Open(path + ".pcap.gz")
	if err != nil {
		return job, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return job, err
	}
	streams, err := reassemble(z)
	if err != nil {
		return job, err
	}
	job.World = known.World
	for _, c := range known.Wire.Connections {
		conn := Connection{
			Initiator: c.Initiator, Acceptor: c.Acceptor, Sequence: c.Sequence,
			FromInitiator: streams[ends{c.Initiator, c.Acceptor}],
			FromAcceptor:  streams[ends{c.Acceptor, c.Initiator}],
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

// ends are the source and the destination of a stream.
type ends [2]netip.AddrPort

// reassemble puts together the TCP streams of a classic little-endian pcap file of IPv4 on Ethernet that lacks no segment.
func reassemble(r io.Reader) (map[ends][]byte, error) {
	le, be := binary.LittleEndian, binary.BigEndian
	var file [24]byte
	if _, err := io.ReadFull(r, file[:]); err != nil {
		return nil, err
	}
	if le.Uint32(file[:]) != 0xa1b2c3d4 || le.Uint32(file[20:]) != 1 {
		return nil, fmt.Errorf("not a pcap file of Ethernet frames: %x", file)
	}
	first := make(map[ends]uint32) // sequence number of a stream's first byte
	streams := make(map[ends][]byte)
	for {
		var record [16]byte
		if _, err := io.ReadFull(r, record[:]); err == io.EOF {
			return streams, nil
		} else if err != nil {
			return nil, err
		}
		frame := make([]byte, le.Uint32(record[8:]))
		if _, err := io.ReadFull(r, frame); err != nil {
			return nil, err
		}
		if be.Uint16(frame[12:]) != 0x0800 || frame[23] != 6 {
			continue // not TCP over IPv4
		}
		ip := frame[14:][:be.Uint16(frame[16:])]
		tcp := ip[int(ip[0]&15)*4:]
		e := ends{
			netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:16])), be.Uint16(tcp)),
			netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:20])), be.Uint16(tcp[2:])),
		}
		seq, data := be.Uint32(tcp[4:]), tcp[int(tcp[12]>>4)*4:]
		if syn := tcp[13]&2 != 0; syn {
			first[e] = seq + 1
		} else if len(data) > 0 { // segments may have been recorded out of order
			at, stream := int(seq-first[e]), streams[e]
			if more := at + len(data) - len(stream); more > 0 {
				stream = append(stream, make([]byte, more)...)
			}
			copy(stream[at:], data)
			streams[e] = stream
		}
	}
}

package ring

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// A capture of an unmodified PyTorch job: the streams of its Gloo connections.
type capture struct {
	World int
	Wire  struct {
		Connections []struct {
			Initiator, Acceptor netip.AddrPort
			Sequence            *uint64 `json:"handshake_seq"`
			Directions          []struct {
				Direction    string
				StreamSHA256 string `json:"stream_sha256"`
			}
		}
	}
	Framework struct {
		Params [][3]any // name, shape, bytes
	}
	streams map[[2]netip.AddrPort][]byte // by source and destination
}

// openCapture reads a capture and the truth beside it, and checks that no byte is missing.
func openCapture(t *testing.T, name string) *capture {
	t.Helper()
	dir := os.Getenv("GRADPROXY_CAPTURES")
	require.Named(t, "captures", dir != "", "set GRADPROXY_CAPTURES to the directory of the recorded jobs")
	truth, err := os.ReadFile(filepath.Join(dir, name+".truth.json"))
	if err != nil {
		t.Fatal(err)
	}
	c := new(capture)
	if err := json.Unmarshal(truth, c); err != nil {
		t.Fatal(err)
	}
	packets, err := os.Open(filepath.Join(dir, name+".pcap.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	z, err := gzip.NewReader(packets)
	if err != nil {
		t.Fatal(err)
	}
	if c.streams, err = reassemble(z); err != nil {
		t.Fatal(err)
	}
	for _, conn := range c.Wire.Connections {
		for i, d := range conn.Directions {
			ends := [2]netip.AddrPort{conn.Initiator, conn.Acceptor}
			if i == 1 {
				slices.Reverse(ends[:])
			}
			sum := sha256.Sum256(c.streams[ends])
			if hex.EncodeToString(sum[:]) != d.StreamSHA256 {
				t.Fatalf("%v %s: the stream is not the recorded one", conn.Initiator, d.Direction)
			}
		}
	}
	return c
}

// reassemble puts together the TCP streams of a classic little-endian pcap file of IPv4 on Ethernet, with no segment lost.
func reassemble(r io.Reader) (map[[2]netip.AddrPort][]byte, error) {
	le, be := binary.LittleEndian, binary.BigEndian
	var fileHead [24]byte
	if _, err := io.ReadFull(r, fileHead[:]); err != nil {
		return nil, err
	}
	if le.Uint32(fileHead[:]) != 0xa1b2c3d4 || le.Uint32(fileHead[20:]) != 1 {
		return nil, fmt.Errorf("not a pcap file of Ethernet frames: %x", fileHead)
	}
	first := make(map[[2]netip.AddrPort]uint32) // sequence number of a stream's first byte
	streams := make(map[[2]netip.AddrPort][]byte)
	for {
		var head [16]byte
		if _, err := io.ReadFull(r, head[:]); err == io.EOF {
			return streams, nil
		} else if err != nil {
			return nil, err
		}
		frame := make([]byte, le.Uint32(head[8:]))
		if _, err := io.ReadFull(r, frame); err != nil {
			return nil, err
		}
		if be.Uint16(frame[12:]) != 0x0800 || frame[23] != 6 {
			continue
		}
		ip := frame[14:][:be.Uint16(frame[16:])]
		tcp := ip[int(ip[0]&15)*4:]
		end := func(addr []byte, port []byte) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(addr)), be.Uint16(port))
		}
		ends := [2]netip.AddrPort{end(ip[12:16], tcp), end(ip[16:20], tcp[2:])}
		seq, data := be.Uint32(tcp[4:]), tcp[int(tcp[12]>>4)*4:]
		if syn := tcp[13]&2 != 0; syn {
			first[ends] = seq + 1
			continue
		}
		if len(data) > 0 { // segments may have been recorded out of order
			at := int(seq - first[ends])
			stream := streams[ends]
			if more := at + len(data) - len(stream); more > 0 {
				stream = append(stream, make([]byte, more)...)
			}
			copy(stream[at:], data)
			streams[ends] = stream
		}
	}
}

// An opSequence is a direction's ops by slot and opcode, their lengths in order: all that Gloo's own threads do not shuffle
// from run to run.
type opSequence map[string][]uint64

func sequence(t *testing.T, stream []byte) opSequence {
	t.Helper()
	ops, err := parseOps(stream)
	if err != nil {
		t.Fatal(err)
	}
	s := make(opSequence)
	for _, op := range ops {
		key := fmt.Sprintf("%v, opcode %d", op.slot, op.op)
		s[key] = append(s[key], op.length)
	}
	return s
}

// diff says where s is not as want.
func (s opSequence) diff(want opSequence) (lines []string) {
	for key := range want {
		if !slices.Equal(s[key], want[key]) {
			lines = append(lines, fmt.Sprintf("%s: lengths %v, PyTorch has %v", key, s[key], want[key]))
		}
	}
	for key := range s {
		if want[key] == nil {
			lines = append(lines, fmt.Sprintf("%s: lengths %v, PyTorch has none", key, s[key]))
		}
	}
	return lines
}

// The collectives of gen_gloo_ddp.py: DDP's start, then for each step the buffers (a BatchNorm's 768 bytes of float32 and
// 8 of int64) and the gradients, and a barrier at the end. Everything that this package writes in their course, op by op,
// is what PyTorch wrote.
func TestSameOpsAsPyTorch(t *testing.T) {
	const floatBuffers, intBuffers = 768, 8
	for _, c := range []struct {
		name       string
		noSequence bool
		steps      int
		unused     bool // find_unused_parameters: buckets are not rebuilt, and a map of used parameters is reduced
	}{
		{"gloo-ddp-2rank", true, 5, false},
		{"gloo-ddp-2rank-hs", false, 3, false},
		{"gloo-ddp-3rank", true, 4, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			recorded := openCapture(t, c.name)
			var shapes, all, last int
			for i, p := range recorded.Framework.Params {
				shapes += 2 * 8 * len(p[1].([]any))
				all += int(p[2].(float64))
				if i < 2 {
					last += int(p[2].(float64)) // the first layer's gradients come last: 1 MiB is full before them
				}
			}
			params := len(recorded.Framework.Params)
			m := newMesh(t, recorded.World, meshOptions{noSequence: c.noSequence, tapped: true})
			m.each(t, func(g *Group) error {
				var works []*Work
				cast := func(size int) { works = append(works, g.Broadcast(make([]byte, size), 0)) }
				reduce := func(size int) { works = append(works, g.AllReduce(make([]byte, size))) }
				works = append(works, g.AllGather(make([]byte, 8*g.Size())))
				cast(shapes)
				cast(all + floatBuffers)
				cast(intBuffers)
				for step := range c.steps {
					if step == 1 && !c.unused {
						cast(4 * (params + 1))
						cast(4 * 2)
					}
					cast(floatBuffers)
					cast(intBuffers)
					switch {
					case c.unused:
						reduce(all)
						reduce(4 * params)
					case step == 0:
						reduce(all)
					default:
						reduce(all - last)
						reduce(last)
					}
				}
				works = append(works, g.Barrier())
				for _, w := range works {
					if err := w.Wait(); err != nil {
						return err
					}
				}
				return nil
			})

			// Which ranks' connection it is, a capture does not tell: the two whose ops are most like it.
			type link struct{ a, b int }
			seen := make(map[link]bool)
			for _, conn := range recorded.Wire.Connections {
				there := recorded.streams[[2]netip.AddrPort{conn.Initiator, conn.Acceptor}]
				back := recorded.streams[[2]netip.AddrPort{conn.Acceptor, conn.Initiator}]
				if !c.noSequence {
					if seq := binary.LittleEndian.Uint64(there); conn.Sequence == nil || seq != *conn.Sequence {
						t.Errorf("sequence number %d, the truth has %v", seq, conn.Sequence)
					}
					there = there[sequenceLen:]
				}
				var best []string
				var at link
				for l := range m.links() {
					lines := append(sequence(t, m.ops(l[0], l[1])).diff(sequence(t, there)), sequence(t, m.ops(l[1], l[0])).diff(sequence(t, back))...)
					if at == (link{}) || len(lines) < len(best) {
						best, at = lines, link{l[0], l[1]}
					}
				}
				for _, line := range best {
					t.Errorf("connection of %v, ranks %d and %d: %s", conn.Initiator, at.a, at.b, line)
				}
				seen[link{min(at.a, at.b), max(at.a, at.b)}] = true
			}
			if len(seen) != len(recorded.Wire.Connections) {
				t.Errorf("%d pairs of ranks match %d connections", len(seen), len(recorded.Wire.Connections))
			}
		})
	}
}

package capture

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
)

// A tally sums up one connection.
type tally struct {
	conn     Conn
	bytes    [2]int
	hash     [2]hash.Hash
	gaps     int
	complete bool
	closed   int
}

func (s *tally) Data(from parser.Side, b []byte) { s.bytes[from] += len(b); s.hash[from].Write(b) }
func (s *tally) Gap(parser.Side)                 { s.gaps++ }
func (s *tally) Close(complete bool)             { s.complete = complete; s.closed++ }

// readAll reads a file into tallies.
func readAll(t testing.TB, path string) []*tally {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []*tally
	err = Read(f, func(c Conn) Sink {
		s := &tally{conn: c, hash: [2]hash.Hash{sha256.New(), sha256.New()}}
		all = append(all, s)
		return s
	})
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return all
}

// The streams of real captures equal the streams that were recorded with them, and every connection is whole.
func TestCapturesEqualTheirTruth(t *testing.T) {
	for _, file := range require.Captures(t, "gloo-*.pcap*") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			var truth struct {
				Wire struct {
					Connections []struct {
						Initiator, Acceptor string
						Directions          []struct {
							StreamBytes  int    `json:"stream_bytes"`
							StreamSHA256 string `json:"stream_sha256"`
						}
					}
				}
			}
			name := file[:len(file)-len(filepath.Ext(file))]
			name = name[:len(name)-len(filepath.Ext(name))] + ".truth.json"
			text, err := os.ReadFile(name)
			if err == nil {
				err = json.Unmarshal(text, &truth)
			}
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]*tally{}
			for _, s := range readAll(t, file) {
				found[s.conn.Client.String()+s.conn.Server.String()] = s
				if !s.complete || s.closed != 1 || s.gaps != 0 {
					t.Errorf("%v to %v: complete %v, closed %d times, %d gaps", s.conn.Client, s.conn.Server, s.complete, s.closed, s.gaps)
				}
			}
			for _, c := range truth.Wire.Connections {
				s := found[c.Initiator+c.Acceptor]
				if s == nil {
					t.Errorf("no connection %s to %s", c.Initiator, c.Acceptor)
					continue
				}
				for i, d := range c.Directions {
					if got := fmt.Sprintf("%x", s.hash[i].Sum(nil)); s.bytes[i] != d.StreamBytes || got != d.StreamSHA256 {
						t.Errorf("%s, direction %d: %d bytes with hash %s, want %d with %s", c.Initiator, i, s.bytes[i], got, d.StreamBytes, d.StreamSHA256)
					}
				}
			}
		})
	}
}

// A streamTruth is the bytes of a direction, as programs of their own read them from a capture.
type streamTruth struct {
	bytes int
	hash  string
}

// So are the streams of gRPC and HTTP frameworks, whose truths write them down in two other forms.
func TestStreamsEqualTheirTruth(t *testing.T) {
	for _, pattern := range []string{"tf-*.pcap*", "flower-*.pcap*", "nvflare-*.pcap*"} {
		for _, file := range require.Captures(t, pattern) {
			t.Run(filepath.Base(file), func(t *testing.T) {
				found := map[string]*tally{}
				for _, s := range readAll(t, file) {
					found[s.conn.Client.String()+" "+s.conn.Server.String()] = s
				}
				compared := 0
				for ends, want := range streamsOf(t, file) {
					s := found[ends]
					for i, w := range want {
						if w.bytes == 0 && (s == nil || s.bytes[i] == 0) { // refused
							continue
						}
						if s == nil {
							t.Errorf("no connection %s", ends)
							break
						}
						if got := fmt.Sprintf("%x", s.hash[i].Sum(nil)); s.bytes[i] != w.bytes || got != w.hash {
							t.Errorf("%s, direction %d: %d bytes with hash %s, want %d with %s", ends, i, s.bytes[i], got, w.bytes, w.hash)
						}
						compared += w.bytes
					}
				}
				if compared < 100<<10 {
					t.Errorf("%d bytes were compared", compared)
				}
			})
		}
	}
}

// streamsOf returns the streams that are recorded beside a capture, by the client's and the server's address.
func streamsOf(t *testing.T, file string) map[string][2]streamTruth {
	t.Helper()
	var truth struct {
		Connections []struct {
			Client, Server string
			Bytes          []int    // of a connection that was not read
			SHA256         []string `json:"sha256"`
			Directions     []struct {
				Bytes        int
				SHA256       string `json:"sha256"`
				StreamBytes  int    `json:"stream_bytes"`
				StreamSHA256 string `json:"stream_sha256"`
			}
		}
	}
	name, _, _ := strings.Cut(file, ".pcap")
	text, err := os.ReadFile(name + ".truth.json")
	if err == nil {
		err = json.Unmarshal(text, &truth)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][2]streamTruth{}
	for _, c := range truth.Connections {
		var s [2]streamTruth
		for i, hash := range c.SHA256 {
			s[i] = streamTruth{c.Bytes[i], hash}
		}
		for i, d := range c.Directions {
			s[i] = streamTruth{cmp.Or(d.Bytes, d.StreamBytes), cmp.Or(d.SHA256, d.StreamSHA256)}
		}
		all[c.Client+" "+c.Server] = s
	}
	return all
}

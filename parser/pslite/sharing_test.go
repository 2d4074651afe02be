package pslite

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture"
	"github.com/gradproxy/gradproxy/tensor"
)

// A spectator sees one connection of a capture as the proxies beside its senders do.
type spectator struct {
	*audience
	conn    capture.Conn
	parsers [2]parser.Parser
	values  [2][]byte // that are under way
	hashes  [2]map[tensor.Role]hash.Hash
}

// An audience sees all connections of a job, and the bytes that a peer would hold already if it kept the last value of
// each base.
type audience struct {
	protocol *Protocol
	all      []*spectator
	held     map[slot][]byte
	reuse    map[kindOf]*reuse
}

type slot struct {
	base uint64
	size int
}

// A kindOf is the purpose of a tensor: a payload by its role, or an index.
type kindOf struct {
	role  tensor.Role
	index bool
}

// A reuse counts the bytes of tensors, and how many of them were held already.
type reuse struct{ bytes, held int }

func (s *spectator) Gap(parser.Side) {}
func (s *spectator) Close(bool)      {}

func (s *spectator) Data(from parser.Side, b []byte) {
	for len(b) > 0 {
		seg, err := s.parsers[from].Next(b)
		if err != nil {
			return
		}
		if t := seg.Tensor; t.Size > 0 {
			if s.values[from] = append(s.values[from], b[:seg.Len]...); t.Off+seg.Len == t.Size {
				s.value(from, t)
				s.values[from] = s.values[from][:0]
			}
		}
		b = b[seg.Len:]
	}
}

// value takes a whole value of t.
func (s *spectator) value(from parser.Side, t tensor.Tensor) {
	v := s.values[from]
	k := kindOf{t.Role, t.Index()}
	if s.reuse[k] == nil {
		s.reuse[k] = new(reuse)
	}
	s.reuse[k].bytes += len(v)
	if at := (slot{t.Base, t.Size}); t.Base != 0 {
		if bytes.Equal(s.held[at], v) {
			s.reuse[k].held += len(v)
		}
		s.held[at] = bytes.Clone(v)
	}
	if k.index {
		return
	}
	if s.hashes[from] == nil {
		s.hashes[from] = map[tensor.Role]hash.Hash{}
	}
	h := s.hashes[from][t.Role]
	if h == nil {
		h = sha256.New()
		s.hashes[from][t.Role] = h
	}
	h.Write(v)
}

func watch(t *testing.T, path string) *audience {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a := &audience{protocol: new(Protocol), held: map[slot][]byte{}, reuse: map[kindOf]*reuse{}}
	err = capture.Read(f, func(c capture.Conn) capture.Sink {
		s := &spectator{audience: a, conn: c}
		s.parsers[0], s.parsers[1] = a.protocol.New(parser.Conn{Client: c.Client, Server: c.Server, Number: c.Number})
		a.all = append(a.all, s)
		return s
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A truth holds the facts that were recorded of a job of MXNet beside its capture.
type truth struct {
	Servers, Workers int
	Identical        any `json:"answers_identical_for_all_workers"` // "N of M ..."
	Conns            []trueConn
}

type trueConn struct {
	Src, Dst string
	Fwd, Rev struct {
		Roles map[string]trueRole
	}
}

type trueRole struct {
	Bytes  int    `json:"vals_bytes"`
	SHA256 string `json:"vals_sha256"`
}

// roleNames are truths' names for roles. Only the framework tells weights before the first step from weights after it,
// and their role depends on whether it has given an optimizer.
var roleNames = map[string][]tensor.Role{
	"initial_weights": {tensor.Exact}, "gradient": {tensor.Gradient}, "gradient_2bit": {tensor.Exact}, "weights": {tensor.State},
	"gradient_sum": {tensor.Aggregate}, "initial_weights_answer": {tensor.State, tensor.Aggregate},
}

// check compares a direction's values, by role, with the values to which the framework gave that meaning.
func check(t *testing.T, what string, got map[tensor.Role]hash.Hash, want map[string]trueRole) {
	t.Helper()
	for name, w := range want {
		roles, ok := roleNames[name]
		if !ok && w.Bytes > 0 {
			t.Errorf("%s: the truth has a role %q", what, name)
		}
		alone := true // no other name has the same role in this direction
		for other, roles2 := range roleNames {
			if _, ok := want[other]; ok && other != name && slices.ContainsFunc(roles2, func(r tensor.Role) bool { return slices.Contains(roles, r) }) {
				alone = false
			}
		}
		if !alone || w.Bytes == 0 {
			continue
		}
		if !slices.ContainsFunc(roles, func(r tensor.Role) bool { return got[r] != nil && hex.EncodeToString(got[r].Sum(nil)) == w.SHA256 }) {
			t.Errorf("%s: the %d bytes of %s are not those of %v", what, w.Bytes, name, roles)
		}
	}
}

// In recorded jobs of MXNet the values of each role are, to the bit, the values to which the framework gave that
// meaning. Values for the second of two workers were held already if all are sent the same, and so were most keys that
// come again.
func TestCapturedRoles(t *testing.T) {
	for _, file := range require.Captures(t, "pslite-*.pcap*") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			name, _, _ := strings.Cut(file, ".pcap")
			text, err := os.ReadFile(name + ".truth.json")
			if err != nil {
				t.Fatal(err)
			}
			var want truth
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			a := watch(t, file)
			for _, c := range want.Conns {
				i := slices.IndexFunc(a.all, func(s *spectator) bool { return s.conn.Client.String() == c.Src && s.conn.Server.String() == c.Dst })
				if i < 0 {
					if len(c.Fwd.Roles)+len(c.Rev.Roles) > 0 {
						t.Errorf("%s to %s is missing", c.Src, c.Dst)
					}
					continue
				}
				check(t, c.Src+" to "+c.Dst, a.all[i].hashes[parser.Client], c.Fwd.Roles)
				check(t, c.Dst+" to "+c.Src, a.all[i].hashes[parser.Server], c.Rev.Roles)
			}
			a.checkHeld(t, want)
		})
	}
}

// checkHeld checks how much a peer that holds values would have held already.
func (a *audience) checkHeld(t *testing.T, want truth) {
	t.Helper()
	sent := reuse{}
	for k, r := range a.reuse {
		t.Logf("%v, index %v: %d bytes, of which %d were held", k.role, k.index, r.bytes, r.held)
		if k.role == tensor.State || k.role == tensor.Aggregate {
			sent.bytes += r.bytes
			sent.held += r.held
		}
		if k.role == tensor.Gradient && r.held > 0 {
			t.Error("gradients are shared")
		}
		if k.index && r.bytes > 64<<10 && 2*r.held < r.bytes {
			t.Errorf("of %d bytes of keys and lengths %d were held", r.bytes, r.held)
		}
	}
	text, _ := want.Identical.(string)
	var n, of int
	if _, err := fmt.Sscanf(text, "%d of %d", &n, &of); err == nil && n == of && sent.held < sent.bytes*(want.Workers-1)/want.Workers {
		t.Errorf("of %d bytes that %d workers were sent alike %d were held", sent.bytes, want.Workers, sent.held)
	}
}

package inspect

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture/capturetest"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

func read(t *testing.T, file string, c Config) *Report {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := Read(f, c)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return r
}

// A truth is the record of a job beside its capture.
type truth struct {
	conns []trueConn
	steps int // Gloo: of the job
}

// A trueConn is one connection of a truth.
type trueConn struct {
	client, server string
	bytes          [2]int // of the streams; -1: not recorded
	directions     [2]trueDirection
}

// A trueDirection is the record of one side's bytes.
type trueDirection struct {
	Messages, PayloadMessages, PayloadBytes int
	PayloadSHA256                           string
	reduced                                 int       // Gloo: payload bytes of all-reduces
	roles                                   RoleBytes // ps-lite, where the framework's are known
	rolesKnown                              bool
}

// truthText returns the record beside a capture.
func truthText(t *testing.T, file string) []byte {
	t.Helper()
	name, _, _ := strings.Cut(filepath.Base(file), ".pcap")
	text, err := os.ReadFile(filepath.Join(filepath.Dir(file), name+".truth.json"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func unmarshal(t *testing.T, text []byte, x any) {
	t.Helper()
	if err := json.Unmarshal(text, x); err != nil {
		t.Fatal(err)
	}
}

func glooTruth(t *testing.T, text []byte) truth {
	t.Helper()
	var x struct {
		Wire struct {
			Connections []struct {
				Initiator, Acceptor string
				Directions          [2]struct {
					StreamBytes     int `json:"stream_bytes"`
					Ops             map[string]int
					PayloadMessages map[string]int `json:"payload_messages"`
					PayloadBytes    map[string]int `json:"payload_bytes"`
					PayloadSHA256   string         `json:"payload_sha256"`
				}
			}
		}
		Framework struct {
			Steps []json.RawMessage
		}
	}
	unmarshal(t, text, &x)
	all := truth{steps: len(x.Framework.Steps)}
	for _, c := range x.Wire.Connections {
		conn := trueConn{client: c.Initiator, server: c.Acceptor}
		for i, d := range c.Directions {
			conn.bytes[i] = d.StreamBytes
			conn.directions[i] = trueDirection{Messages: sum(d.Ops), PayloadMessages: sum(d.PayloadMessages),
				PayloadBytes: sum(d.PayloadBytes), PayloadSHA256: d.PayloadSHA256, reduced: d.PayloadBytes["allreduce"]}
		}
		all.conns = append(all.conns, conn)
	}
	return all
}

// psliteTruth reads the truth of a ps-lite job. Its names for roles are the names of MXNet's stages.
func psliteTruth(t *testing.T, text []byte) truth {
	t.Helper()
	type direction struct {
		Messages   int
		Kinds      map[string]int
		ValsBytes  int    `json:"vals_bytes"`
		ValsSHA256 string `json:"vals_sha256"`
		Roles      map[string]struct {
			ValsBytes int `json:"vals_bytes"`
		}
	}
	var x struct {
		Title     string
		Optimizer bool `json:"optimizer_on_servers"`
		Conns     []struct {
			Src, Dst string
			Refused  bool
			Bytes    [2]int
			Fwd, Rev direction
		}
	}
	unmarshal(t, text, &x)
	answers := tensor.Aggregate
	if x.Optimizer {
		answers = tensor.State
	}
	names := map[string]tensor.Role{"initial_weights": tensor.Exact, "gradient": tensor.Gradient, "gradient_2bit": tensor.Exact,
		"weights": tensor.State, "gradient_sum": tensor.Aggregate, "initial_weights_answer": answers, "pull_request": tensor.Unknown}
	var all truth
	for _, c := range x.Conns {
		if c.Refused {
			continue
		}
		conn := trueConn{client: c.Src, server: c.Dst, bytes: c.Bytes}
		for i, d := range [2]direction{c.Fwd, c.Rev} {
			w := trueDirection{Messages: d.Messages, PayloadBytes: d.ValsBytes, PayloadSHA256: d.ValsSHA256, rolesKnown: strings.HasPrefix(x.Title, "MXNet ")}
			for kind, n := range d.Kinds {
				switch kind { // messages with a frame of values
				case "PUSH_req", "PUSHPULL_req", "PULL_req", "PULL_resp", "PUSHPULL_resp":
					w.PayloadMessages += n
				}
			}
			if w.PayloadSHA256 == "" {
				w.PayloadSHA256 = noPayload
			}
			for name, r := range d.Roles {
				role, ok := names[name]
				if !ok {
					t.Fatalf("the truth has a role %q", name)
				}
				w.roles.add(role, r.ValsBytes)
			}
			conn.directions[i] = w
		}
		all.conns = append(all.conns, conn)
	}
	return all
}

func sum(m map[string]int) (n int) {
	for _, x := range m {
		n += x
	}
	return n
}

// compareConns holds a report against a truth: protocol, streams, messages and payloads. check sees each direction.
func compareConns(t *testing.T, r *Report, protocol string, want truth, check func(got Direction, want trueDirection)) {
	t.Helper()
	found := map[string]Connection{}
	for _, c := range r.Connections {
		found[c.Client+" "+c.Server] = c
		if !c.Complete {
			t.Errorf("%s to %s is not complete", c.Client, c.Server)
		}
	}
	if len(want.conns) == 0 {
		t.Error("the truth has no connections")
	}
	for _, w := range want.conns {
		c := found[w.client+" "+w.server]
		if c.Protocol != protocol {
			t.Errorf("%s to %s: protocol %q", w.client, w.server, c.Protocol)
		}
		for i, got := range []Direction{c.FromClient, c.FromServer} {
			d := w.directions[i]
			if got.Bytes != w.bytes[i] || got.Messages != d.Messages || got.PayloadMessages != d.PayloadMessages ||
				got.PayloadBytes != d.PayloadBytes || got.PayloadSHA256 != d.PayloadSHA256 {
				t.Errorf("%s, direction %d: %+v, want %d bytes and %+v", w.client, i, got, w.bytes[i], d)
			}
			check(got, d)
		}
	}
}

// Streams, messages and payloads of recorded Gloo jobs are as recorded. With sums: gradients nothing but
// phase 1 of all-reduces can be gradient: of a dense ring half of their bytes.
func TestGlooCapturesEqualTheirTruth(t *testing.T) {
	for _, file := range require.Captures(t, "gloo-*.pcap*") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want := glooTruth(t, truthText(t, file))
			for _, sums := range []parser.Sums{parser.SumsProved, parser.SumsGradients} {
				compareConns(t, read(t, file, Config{Sums: sums}), "gloo", want, func(got Direction, d trueDirection) {
					checkRoles(t, got, sums, d.reduced, want.steps)
				})
			}
		})
	}
}

// The same of recorded ps-lite jobs. Their roles are on the wire: MXNet's are exactly the roles that the framework gave
// its arrays; of other programs the truth calls nothing a gradient, but they may keep MXNet's or BytePS's conventions.
func TestPSLiteCapturesEqualTheirTruth(t *testing.T) {
	for _, file := range require.Captures(t, "pslite-*.pcap*") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			compareConns(t, read(t, file, Config{}), "pslite", psliteTruth(t, truthText(t, file)), func(got Direction, d trueDirection) {
				if d.rolesKnown && got.RoleBytes != d.roles {
					t.Errorf("roles %+v, want %+v", got.RoleBytes, d.roles)
				}
				if b := got.RoleBytes; b.Gradient+b.Aggregate+b.State+b.Exact+b.Unknown != got.PayloadBytes {
					t.Errorf("%+v are not %d bytes", b, got.PayloadBytes)
				}
			})
		})
	}
}

// checkRoles checks the roles of a direction with that many bytes of all-reduces in so many steps.
func checkRoles(t *testing.T, d Direction, sums parser.Sums, reduced, steps int) {
	t.Helper()
	b := d.RoleBytes
	if b.Gradient+b.Aggregate+b.State+b.Exact+b.Unknown != d.PayloadBytes {
		t.Errorf("%+v are not %d bytes", b, d.PayloadBytes)
	}
	if sums != parser.SumsGradients && b.Gradient+b.Aggregate+b.State > 0 {
		t.Errorf("roles without proof: %+v", b)
	}
	if sums == parser.SumsGradients {
		phase1 := reduced / 2 * (steps - 2) / steps // of the third step and on
		if b.Gradient > reduced/2 || 10*b.Gradient < 8*phase1 {
			t.Errorf("%d bytes are gradient; want at least 80 %% of %d, and at most %d", b.Gradient, phase1, reduced/2)
		}
	}
}

// No parser takes the captures of other protocols for its own. An application's pushes of many keys are gradients on
// the user's word, but for the first of rank 0 to each of two servers, which may be initial weights. Here each push has
// the same values as the one before, which refutes that word. The role of the answers is not known.
func TestListsOfACapture(t *testing.T) {
	for _, file := range require.Captures(t, "pslite-kvapp.pcap*") {
		for sums, want := range map[parser.Sums]RoleBytes{
			parser.SumsProved:    {Unknown: 992000},
			parser.SumsGradients: {Exact: 16000, Unknown: 976000},
		} {
			var got RoleBytes
			for _, c := range read(t, file, Config{Sums: sums}).Connections {
				for _, d := range []Direction{c.FromClient, c.FromServer} {
					got.Gradient += d.RoleBytes.Gradient
					got.Exact += d.RoleBytes.Exact
					got.Unknown += d.RoleBytes.Unknown
				}
			}
			if got != want {
				t.Errorf("%s, sums %v: %+v, want %+v", filepath.Base(file), sums, got, want)
			}
		}
	}
}

func TestForeignCaptures(t *testing.T) {
	for _, pattern := range []string{"tf-*", "flower-*"} {
		for _, file := range require.Captures(t, pattern+".pcap*") {
			for _, c := range read(t, file, Config{Sums: parser.SumsGradients}).Connections {
				if c.Protocol == "gloo" || c.Protocol == "pslite" || c.FromClient.RoleBytes.Gradient+c.FromServer.RoleBytes.Gradient > 0 && c.Protocol == unknown {
					t.Errorf("%s: %s to %s is %s", filepath.Base(file), c.Client, c.Server, c.Protocol)
				}
			}
		}
	}
}

// twoRanks is a capture of a small data parallel job.
func twoRanks() []byte { return captureOf(twoRanksTrace()) }

func twoRanksTrace() *gloosim.Trace {
	return gloosim.Run(gloosim.Job{Ranks: 2, Tags: true, FirstID: true, Seed: 1, Calls: gloosim.DDP{
		Shapes: [][]int64{{100, 64}, {100}, {10, 100}, {10}}, DType: tensor.Float32, Steps: 9, Buckets: [][]int{{3, 2, 1, 0}}, Buffers: 64,
	}.Calls()})
}

func captureOf(trace *gloosim.Trace) []byte {
	var conns []capturetest.Conn
	for _, c := range trace.Conns {
		conns = append(conns, capturetest.Conn{Client: c.ClientAddr, Server: c.ServerAddr})
	}
	var chunks []capturetest.Chunk
	for _, e := range trace.Events {
		chunks = append(chunks, capturetest.Chunk{Conn: e.Conn, From: e.From, Bytes: e.Bytes})
	}
	return capturetest.Write(conns, chunks)
}

// The job has 9 steps of 7510 floats, and half of the bytes that each rank sends are of phase 1. The parser learns the
// buckets in the first two steps, so 7 have roles. Each bucket earns trust in its first four values, from the second
// step on, so a proxy codes the last 4 by role.
func TestRolesOfASimulatedJob(t *testing.T) {
	const step = 4 * 7510
	r, err := Read(bytes.NewReader(twoRanks()), Config{Sums: parser.SumsGradients, Policies: []string{Lossless, "int8+int8"}})
	if err != nil || len(r.Connections) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	// Of random values lossless coding leaves 84 %, int8 a quarter.
	exact, lossy := r.Policies[0].Roles, r.Policies[1].Roles
	saved := exact.Gradient.Bytes + exact.Aggregate.Bytes - lossy.Gradient.Bytes - lossy.Aggregate.Bytes
	if want := 2 * 4 * step * (84 - 25) / 100; saved < want*9/10 || saved > want*11/10 {
		t.Errorf("int8 saves %d bytes of gradients and aggregates, want about %d", saved, want)
	}
	c := r.Connections[0]
	if c.Protocol != "gloo" || !c.Complete {
		t.Errorf("%+v", c)
	}
	for _, d := range []Direction{c.FromClient, c.FromServer} {
		// The ring's segments of 7512 bytes are cut so that the last is shorter.
		if b := d.RoleBytes; b.Gradient+b.Aggregate != 7*step || b.Unknown != 2*step || abs(b.Gradient-b.Aggregate) > 4*16 {
			t.Errorf("%+v, want %d bytes of gradient and of aggregate, and %d unknown", b, 7*step, 2*step)
		}
		if d.Lossless >= d.Bytes || d.Lossless < d.Bytes/2 {
			t.Errorf("losslessly %d of %d bytes", d.Lossless, d.Bytes)
		}
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "gradient 210.28 kB") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func abs(x int) int { return max(x, -x) }

// Without memory for last values nothing can be compared, so nothing has a role that allows loss.
func TestWithoutMemory(t *testing.T) {
	r, err := Read(bytes.NewReader(twoRanks()), Config{Sums: parser.SumsGradients, MaxCopies: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if b := r.Connections[0].FromClient.RoleBytes; b.Gradient+b.Aggregate > 0 {
		t.Errorf("%+v", b)
	}
}

// A capture that is cut short says so, and its part up to there is reported.
func TestCutCapture(t *testing.T) {
	whole := twoRanks()
	r, err := Read(bytes.NewReader(whole[:len(whole)/2]), Config{})
	if err == nil || !strings.Contains(err.Error(), "cut short") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line that says that it was cut short", err)
	}
	if len(r.Connections) != 1 || r.Connections[0].Complete || r.Connections[0].Protocol != "gloo" {
		t.Errorf("%+v", r.Connections)
	}
	if _, err := Read(strings.NewReader("this is no capture, but a line of text"), Config{}); err == nil {
		t.Error("a text is a capture")
	}
}

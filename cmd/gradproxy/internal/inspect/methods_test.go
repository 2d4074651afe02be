package inspect

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture/capturetest"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
)

// anyGRPC is a capture of a parameter server that nobody knows: in each step a client pushes an array and gets another
// one.
func anyGRPC(t *testing.T, steps int) []byte {
	t.Helper()
	w := grpctest.New(t)
	r := rand.New(rand.NewPCG(1, 2))
	const n = 5_000
	weights := make([]float32, n)
	array := func(change float64) (b []byte) {
		for i := range weights {
			weights[i] += float32(r.NormFloat64() * change)
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(weights[i]))
		}
		return b
	}
	array(0.05)
	for range steps {
		w.Unary("/lab.Store/Push", within(array(1), 1), nil, 1<<14)
		w.Unary("/lab.Store/Pull", nil, within(array(1e-6), 1), 1<<14)
	}
	var chunks []capturetest.Chunk
	for _, p := range w.Exchange() {
		chunks = append(chunks, capturetest.Chunk{From: p.From, Bytes: p.Bytes})
	}
	conn := capturetest.Conn{Client: netip.MustParseAddrPort("10.0.0.1:40000"), Server: netip.MustParseAddrPort("10.0.1.1:50051")}
	return capturetest.Write([]capturetest.Conn{conn}, chunks)
}

// Each method of gRPC is told, with the bytes of its tensors on either side, and under each policy.
func TestMethods(t *testing.T) {
	const steps, size = 5, 20_000
	r, err := Read(bytes.NewReader(anyGRPC(t, steps)), Config{Policies: []string{"int4"}})
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Connections[0]; c.Protocol != "grpc" || c.FromClient.RoleBytes.Unknown != steps*size {
		t.Errorf("%+v", c)
	}
	var names []string
	for _, m := range r.Methods {
		names = append(names, m.Protocol+" "+m.Method)
	}
	if want := []string{"grpc /lab.Store/Pull", "grpc /lab.Store/Push"}; !slices.Equal(names, want) && !slices.Equal(names, []string{want[1], want[0]}) {
		t.Fatalf("methods %q, want %q", names, want)
	}
	total := 0
	for _, m := range r.Methods {
		sides := [2]MethodSide{m.FromClient, m.FromServer}
		sender := parser.Client
		if m.Method == "/lab.Store/Pull" {
			sender = parser.Server
		}
		s := sides[sender]
		if s.TensorBytes != steps*size || sides[1-sender].TensorBytes != 0 || s.Policies[Lossless] == 0 || s.Policies[Lossless] >= s.TensorBytes || s.Policies["int4"] == 0 {
			t.Errorf("%+v", m)
		}
		total += s.Policies[Lossless]
	}
	if roles := r.Policies[0].Roles; total != roles.Unknown.Bytes {
		t.Errorf("%d bytes of all methods, want the %d of their role", total, roles.Unknown.Bytes)
	}
	var text, js bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "grpc /lab.Store/Push") {
		t.Errorf("no method in\n%s", &text)
	}
	if err := json.NewEncoder(&js).Encode(r); err != nil {
		t.Fatal(err)
	}
	var told struct {
		Methods []struct {
			Protocol, Method string
			FromServer       struct {
				TensorBytes *int            `json:"tensor_bytes"`
				Policies    map[string]*int `json:"policies"`
			} `json:"from_server"`
		}
	}
	if err := json.Unmarshal(js.Bytes(), &told); err != nil || len(told.Methods) != 2 || told.Methods[0].FromServer.TensorBytes == nil || told.Methods[0].Protocol != "grpc" {
		t.Errorf("%v in %s", err, &js)
	}
}

// The path of a call is anybody's text: a terminal obeys none of it.
func TestMethodsAreText(t *testing.T) {
	r := Report{Connections: make([]Connection, 1), Methods: []Method{{Protocol: "grpc", Method: "/a\x1b[2J\u009b1m/b\r\n", FromClient: MethodSide{TensorBytes: 5}}}}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, "grpc /a?[2J?1m/b?? ") || strings.ContainsAny(got, "\x1b\u009b\r") {
		t.Errorf("%q", got)
	}
}

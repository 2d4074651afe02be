package flower

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	sim "github.com/gradproxy/gradproxy/parser/flower/flowersim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// job is a round of one node over HTTP: a model of three arrays (one takes three chunks), and the result.
func job(seed uint64) (down, up sim.Object, files [2][][]byte) {
	for side := range files {
		files[side] = [][]byte{npyOf("<f4", 4, 700, seed+uint64(side)), npyOf("<i8", 8, 3, seed), npyOf("<f2", 2, 50, seed+uint64(side))}
	}
	of := func(files [][]byte) (arrays []sim.Object) {
		for _, f := range files {
			arrays = append(arrays, sim.ArrayObject(f, 1024))
		}
		return arrays
	}
	return sim.ModelObject("train", of(files[0])...), sim.ModelObject("reply", of(files[1])...), files
}

// elements returns the bytes after the header in each chunk of each file.
func elements(files [][]byte) (chunks [][]byte) {
	for _, f := range files {
		for at := 0; at < len(f); at += 1024 {
			chunk := f[at:min(len(f), at+1024)]
			if at == 0 {
				chunk = chunk[sim.NPYHeader:]
			}
			chunks = append(chunks, chunk)
		}
	}
	return chunks
}

func TestHTTPConforms(t *testing.T) {
	down, up, _ := job(1)
	x := append(pull(down), push(5, up)...)
	get := parsertest.Exchange{{From: parser.Client, Bytes: []byte("GET /v1/fleet/x HTTP/1.1\r\nHost: a\r\n\r\n")}, {From: parser.Server, Bytes: sim.OK([]byte("plain"))}}
	small := httpCall("push-object", sim.Field(nil, 4, []byte("ArrayChunk  1\x00a")), nil)
	parsertest.Run(t, fresh, conn(1), x, append(small[:2:2], get...), get, parsertest.Exchange{{From: parser.Server, Bytes: sim.OK(nil)}},
		parsertest.Exchange{{From: parser.Client, Bytes: []byte("POST /v1/control/list HTTP/1.1\r\n\r\n")}},
		append(small[:2:2], parsertest.Piece{From: parser.Client, Bytes: []byte("not HTTP at all\r\n\r\nxyz")}, parsertest.Piece{From: parser.Server, Bytes: []byte("HTTP/2.0 200 OK\r\n\r\n")}))
}

// Every chunk's elements are a tensor of the array's type that no policy may change.
func TestObjectsAreExact(t *testing.T) {
	down, up, files := job(1)
	all := parsertest.Find(t, fresh(), conn(1), append(pull(down), push(5, up)...))
	for side, of := range [2][][]byte{files[1], files[0]} {
		want := elements(of)
		types := []tensor.DType{tensor.Float32, tensor.Float32, tensor.Float32, tensor.Int64, tensor.Float16}
		if len(all[side]) != len(want) {
			t.Fatalf("side %d: %d tensors, want %d", side, len(all[side]), len(want))
		}
		bases := map[uint64]bool{}
		for i, v := range all[side] {
			if !bytes.Equal(v.Data, want[i]) || v.DType != types[i] || v.Role != tensor.Exact || v.Base == 0 || v.Key == 0 || bases[v.Base] {
				t.Errorf("side %d: %+v has %d bytes, want %d of %v", side, v.Tensor, len(v.Data), len(want[i]), types[i])
			}
			bases[v.Base] = true
		}
	}
}

// Without the tree, an object with an .npy header is a tensor by its id; another part of an array is none.
func TestObjectsWithoutTree(t *testing.T) {
	down, _, files := job(1)
	var x parsertest.Exchange
	down.LeavesFirst(func(o sim.Object) { x = append(x, pushOf(5, o)...) })
	all := parsertest.Find(t, fresh(), conn(1), x)[parser.Client]
	if len(all) != 3 || !bytes.Equal(all[0].Data, files[0][0][sim.NPYHeader:1024]) || all[0].Role != tensor.Exact {
		t.Errorf("%d tensors", len(all))
	}
}

// Each round has the bases of the round before, and other nodes of the job are sent the same; arrays from a node have
// bases of that node, and as their Model the base of the array that it was sent. An object's id names the content: its
// elements have the same ID wherever they are.
func TestBasesStay(t *testing.T) {
	p := fresh()
	names := map[uint64][]byte{} // content by ID
	bases := func(c parser.Conn, node, seed uint64) (b [2][]uint64) {
		down, up, _ := job(seed)
		var models []uint64
		for side, list := range parsertest.Find(t, p, c, append(pull(down), push(node, up)...)) {
			for _, v := range list {
				b[side] = append(b[side], v.Base)
				if parser.Side(side) == parser.Client {
					models = append(models, v.Model)
				}
				if before, ok := names[v.ID]; v.ID == 0 || ok && !bytes.Equal(before, v.Data) {
					t.Errorf("side %d: %d bytes have the ID %d, and so have %d others", side, len(v.Data), v.ID, len(before))
				}
				names[v.ID] = v.Data
			}
		}
		if !slices.Equal(models, b[parser.Server]) {
			t.Errorf("results answer %x, and the model is %x", models, b[parser.Server])
		}
		return b
	}
	same := func(x, y []uint64) bool {
		for i := range x {
			if x[i] != y[i] {
				return false
			}
		}
		return len(x) == len(y) && len(x) > 0
	}
	first, second, other := bases(conn(1), 5, 1), bases(conn(1), 5, 2), bases(conn(2), 6, 1)
	if !same(first[0], second[0]) || !same(first[1], second[1]) || !same(first[1], other[1]) || same(first[0], other[0]) {
		t.Errorf("%x, then %x, of another node %x", first, second, other)
	}
	elsewhere := conn(1)
	elsewhere.Job = "another"
	if b := bases(elsewhere, 5, 1); same(b[1], first[1]) {
		t.Error("another job has the same bases")
	}
	var both [2][2][]uint64
	for i, peer := range []string{"paris", "tokyo"} {
		end := conn(1)
		end.Job, end.Peer = "", peer
		both[i] = bases(end, 5, 1)
	}
	if !same(both[0][0], both[1][0]) || !same(both[0][1], both[1][1]) {
		t.Error("the proxies at both ends have other bases")
	}
	elsewhere.Job = ""
	if b := bases(elsewhere, 5, 1); same(b[1], first[1]) {
		t.Error("a job without configuration has the same bases")
	}
}

// A chunk whose head lies about its length, or whose call fails, is opaque.
func TestBrokenObjectsAreOpaque(t *testing.T) {
	good := sim.ArrayObject(npyOf("<f4", 4, 100, 1), 1<<20).Children[0]
	if n := len(parsertest.Find(t, fresh(), conn(1), pushOf(5, good))[0]); n != 1 {
		t.Fatalf("%d tensors in a push", n)
	}
	for name, content := range map[string][]byte{
		"a length too large": bytes.Replace(good.Content, []byte("  528"), []byte("  529"), 1),
		"a length too small": bytes.Replace(good.Content, []byte("  528"), []byte("  527"), 1),
		"no length":          bytes.Replace(good.Content, []byte("  528"), []byte("  abc"), 1),
		"another class":      bytes.Replace(good.Content, []byte("ArrayChunk "), []byte("ConfigThing"), 1),
		"children":           bytes.Replace(good.Content, []byte("ArrayChunk  "), []byte("ArrayChunk a "), 1),
		"a shape that lies":  bytes.Replace(good.Content, []byte("(100,)"), []byte("(10,) "), 1),
	} {
		bad := good
		bad.Content = content
		if all := parsertest.Find(t, fresh(), conn(1), pushOf(5, bad)); len(all[0]) > 0 {
			t.Errorf("%s: %+v", name, all[0][0].Tensor)
		}
	}
	pulled := pull(good)
	for i, piece := range pulled {
		if piece.From == parser.Server {
			pulled[i].Bytes = bytes.Replace(piece.Bytes, []byte("200 OK"), []byte("500 No"), 1)
		}
	}
	if all := parsertest.Find(t, fresh(), conn(1), pulled); len(all[1]) > 0 {
		t.Errorf("a failed call: %+v", all[1][0].Tensor)
	}
}

// Without configuration, the trees that one peer's connections tell do not help another's.
func TestFactsStayWithTheirPeer(t *testing.T) {
	_, up, _ := job(1)
	for peer, want := range map[string]int{"paris": 5, "tokyo": 3} { // of the chunks, three have a header
		p := fresh()
		c := conn(1)
		c.Job, c.Peer = "", "paris"
		parsertest.Find(t, p, c, push(5, up)[:2])
		c.Peer = peer
		var x parsertest.Exchange
		up.LeavesFirst(func(o sim.Object) { x = append(x, pushOf(5, o)...) })
		if n := len(parsertest.Find(t, p, c, x)[parser.Client]); n != want {
			t.Errorf("%s: %d tensors, want %d", peer, n, want)
		}
	}
}

// Streams of other protocols are foreign at once; a stream that is no longer understood is not.
func TestForeignStreams(t *testing.T) {
	for _, s := range []string{"PRI * HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\x00\x00\x10", "POST /v1/control/run HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"} {
		client, server := fresh().New(conn(1))
		if _, err := client.Next([]byte(s)); !errors.Is(err, parser.ErrForeign) {
			t.Errorf("%q: %v", s, err)
		}
		if _, err := server.Next([]byte("220 mail.example ESMTP\r\n")); !errors.Is(err, parser.ErrForeign) {
			t.Errorf("a server's bytes: %v", err)
		}
	}
	client, server := fresh().New(conn(1))
	if _, err := client.Next(sim.Post("get-run", nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Next([]byte("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")); err == nil || !strings.Contains(err.Error(), "length") {
		t.Errorf("a body without a length: %v", err)
	}
	for i := range 2 * maxPending {
		if _, err := client.Next(sim.Post("get-run", nil)); err != nil {
			if i < maxPending-1 || errors.Is(err, parser.ErrForeign) {
				t.Errorf("after %d requests: %v", i, err)
			}
			return
		}
	}
	t.Error("requests without end are remembered")
}

// Whatever nodes send, few places and types are kept, and a connection holds little.
func TestMemoryIsBounded(t *testing.T) {
	p := new(Protocol)
	client, _ := p.New(conn(1))
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range 40 {
		chunks := make([]sim.Object, 2000)
		for k := range chunks {
			chunks[k] = sim.NewObject("ArrayChunk", []byte{byte(i), byte(k), byte(k >> 8)})
		}
		b := sim.Post("push-messages", sim.Field(nil, 3, sim.ModelObject("m", sim.NewObject("Array", nil, chunks...)).Tree()))
		for len(b) > 0 {
			seg, err := client.Next(b)
			if err != nil {
				t.Fatal(err)
			}
			b = b[seg.Len:]
		}
		_, server := p.New(conn(1))
		_ = server
		client, _ = p.New(conn(1)) // nobody answers
	}
	if n := p.facts.places.Len(); n != maxPlaces {
		t.Errorf("%d places, want %d", n, maxPlaces)
	}
	if grown := heap() - before; grown > 16<<20 {
		t.Errorf("%d bytes are held", grown)
	}
	if _, err := client.Next(sim.Post("push-object", make([]byte, 0))); err != nil {
		t.Fatal(err)
	}
	head := []byte("POST /v1/fleet/push-object HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n")
	if _, err := client.Next(head); err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte{0x1a, 0x02, 'a', 'b'}, 100_000)
	for len(body) > 0 {
		seg, err := client.Next(body)
		if err != nil {
			t.Fatal(err)
		}
		body = body[seg.Len:]
	}
	if n := parser.Held(client); n > 8<<10 {
		t.Errorf("a connection holds %d bytes", n)
	}
}

// Requests that wait for their responses keep nothing of their heads in memory, however long these are.
func TestHeadsAreNotKept(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	requests := []byte("POST /v1/fleet/push-object HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
	for range maxPending/2 - 1 {
		requests = append(requests, "POST /v1/fleet/push-object?"+long+" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"...)
		requests = append(requests, long+" /v1/fleet/push-object HTTP/1.1\r\nHost: a\r\n\r\n"...)
	}
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	client, server := fresh().New(conn(1))
	before := heap()
	for b := requests; len(b) > 0; {
		seg, err := client.Next(b)
		if err != nil {
			t.Fatal(err)
		}
		b = b[seg.Len:]
	}
	if takes := heap() - before; takes > parser.Held(client)+50<<10 {
		t.Errorf("%d bytes are told, and %d taken", parser.Held(client), takes)
	}
	runtime.KeepAlive(server)
	runtime.KeepAlive(requests)
}

// A response without a body, and one that precedes the final response, leave the next ones where they are. Coded bodies
// are opaque, and bytes of another protocol follow neither CONNECT nor 101.
func TestOtherMessages(t *testing.T) {
	good := sim.ArrayObject(npyOf("<f4", 4, 100, 1), 1<<20).Children[0]
	begin := httpCall("get-run", nil, nil)
	request := func(s string) parsertest.Piece { return parsertest.Piece{From: parser.Client, Bytes: []byte(s)} }
	response := func(s string) parsertest.Piece { return parsertest.Piece{From: parser.Server, Bytes: []byte(s)} }
	const post = "POST /v1/fleet/get-run HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
	for name, x := range map[string]parsertest.Exchange{
		"HEAD": {request("HEAD /v1/fleet/x HTTP/1.1\r\nHost: a\r\n\r\n"), response("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")},
		"100":  {request(post), response("HTTP/1.1 100 Continue\r\n\r\n"), response("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")},
	} {
		if n := len(parsertest.Find(t, fresh(), conn(1), slices.Concat(begin, x, pull(good)))[parser.Server]); n != 1 {
			t.Errorf("%s: %d tensors, want 1", name, n)
		}
	}
	for name, x := range map[string]parsertest.Exchange{
		"101":                  {request(post), response("HTTP/1.1 101 Switching Protocols\r\n\r\n")},
		"CONNECT":              {request("CONNECT b:80 HTTP/1.1\r\nHost: b:80\r\n\r\n")},
		"an answer to nothing": {response("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")},
	} {
		client, server := fresh().New(conn(1))
		var err error
		for _, p := range slices.Concat(begin, x) {
			for b := p.Bytes; len(b) > 0 && err == nil; {
				var seg parser.Segment
				seg, err = []parser.Parser{client, server}[p.From].Next(b)
				b = b[seg.Len:]
			}
		}
		if err == nil || errors.Is(err, parser.ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for from, x := range []parsertest.Exchange{pushOf(5, good), pull(good)} {
		for i, p := range x {
			if p.From == parser.Side(from) {
				x[i].Bytes = bytes.Replace(p.Bytes, []byte("\r\n"), []byte("\r\nContent-Encoding: x\r\n"), 1)
			}
		}
		if n := len(parsertest.Find(t, fresh(), conn(1), x)[from]); n != 0 {
			t.Errorf("%d tensors of the %v in coded bodies", n, parser.Side(from))
		}
	}
}

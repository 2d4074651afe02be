package nvflare

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	sim "github.com/gradproxy/gradproxy/parser/nvflare/nvflaresim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// oneRound is a job of one round.
func oneRound(kind string, torch bool, chunk int, meta ...any) *job {
	j := newJob("site-1.job", chunk)
	down, _ := model(torch, 1)
	up, _ := model(torch, 2)
	j.round(kind, torch, down, up, meta...)
	return j
}

func TestConforms(t *testing.T) {
	numpy, torch := oneRound("WEIGHTS", false, 1<<20), oneRound("WEIGHT_DIFF", true, 1000)
	repeated := oneRound("WEIGHT_DIFF", true, 700)
	last := repeated.frames[len(repeated.frames)-4:]
	repeated.frames = append(slices.Insert(repeated.frames, len(repeated.frames)-2, last...), last...)
	slices.Reverse(repeated.frames[len(repeated.frames)-10:])
	parsertest.Run(t, fresh, conn(1), numpy.tcp(), torch.tcp(), repeated.tcp(), numpy.grpc(t, 333), torch.grpc(t, 1<<14), numpy.webSocket(), torch.webSocket(),
		append(numpy.tcp(), parsertest.Piece{From: parser.Client, Bytes: bytes.Repeat([]byte("no frame "), 9)}),
		parsertest.Exchange{{From: parser.Client, Bytes: sim.Frame(sim.TypeHello, nil, bytes.Repeat([]byte{0x81}, 99))}})
}

// roles returns the roles of tensors in their order.
func roles(list []parsertest.Found) (r []tensor.Role) {
	for _, v := range list {
		r = append(r, v.Role)
	}
	return r
}

// Over every driver each array is found, also where a client masks it; and its role is that of its announcement, kind
// and container. No content check may refuse announced differences: hospitals have unlike data, and their updates may
// change little from round to round.
func TestRoles(t *testing.T) {
	const exact, state, gradient = tensor.Exact, tensor.State, tensor.Gradient
	for _, c := range []struct {
		name     string
		job      *job
		down, up []tensor.Role
	}{
		{"ZIP files", oneRound("WEIGHTS", false, 1<<20), []tensor.Role{state, state, exact}, []tensor.Role{state, state, exact}},
		{"differences in ZIP files", oneRound("WEIGHT_DIFF", false, 1<<20), []tensor.Role{state, state, exact}, []tensor.Role{gradient, gradient, exact}},
		{"safetensors", oneRound("WEIGHTS", true, 1<<20), []tensor.Role{state, state, exact}, []tensor.Role{state, state, exact}},
		{"differences in safetensors", oneRound("WEIGHT_DIFF", true, 1<<20), []tensor.Role{state, state, exact}, []tensor.Role{gradient, gradient, exact}},
		{"another kind", oneRound("ANALYTIC", true, 1<<20), []tensor.Role{state, state, exact}, []tensor.Role{exact, exact, exact}},
		{"filtered", oneRound("WEIGHT_DIFF", true, 1<<20, "PROCESSED_ALGORITHM", "privacy"), []tensor.Role{state, state, exact}, []tensor.Role{exact, exact, exact}},
	} {
		torch := c.name != "ZIP files" && c.name != "differences in ZIP files"
		_, down := model(torch, 1)
		_, up := model(torch, 2)
		for driver, x := range map[string]parsertest.Exchange{"tcp": c.job.tcp(), "grpc": c.job.grpc(t, 500), "http": c.job.webSocket()} {
			all := parsertest.Find(t, fresh(), conn(1), x)
			want := [2][]tensor.Role{c.up, c.down}
			for side, list := range all {
				if !slices.Equal(roles(list), want[side]) {
					t.Errorf("%s over %s, side %d: %v, want %v", c.name, driver, side, roles(list), want[side])
				}
				for i, v := range list {
					if data := [2][][]byte{up, down}[side][i]; !bytes.Equal(v.Data, data) || v.Key == 0 || v.Base == 0 || !v.Repeats || v.CRC32 == torch || (v.Mask != tensor.Mask{}) != (driver == "http" && parser.Side(side) == parser.Client) ||
						v.Role != tensor.Exact && v.Proof.NeedsContent() != (v.Role == tensor.State) {
						t.Errorf("%s over %s, side %d: %+v has %d bytes, want %d", c.name, driver, side, v.Tensor, len(v.Data), len(data))
					}
				}
			}
		}
	}
}

// Weights in ZIP files are told as weights in safetensors are, but that a CRC-32 covers them: with the same bases, also
// where frames cut them, so that they cross once and as differences as well.
func TestContainersAreAlike(t *testing.T) {
	for _, chunk := range []int{1 << 20, 1200} {
		var found [2][2][]parsertest.Found
		for i, torch := range []bool{false, true} {
			found[i] = parsertest.Find(t, fresh(), conn(1), oneRound("WEIGHTS", torch, chunk).tcp())
		}
		for side, zipped := range found[0] {
			plain := found[1][side]
			for i, v := range zipped {
				if chunk < 1<<20 { // headers differ in length, and so do the cuts
					if v.Base == 0 || !v.Repeats || v.Role == tensor.State && !v.CRC32 {
						t.Errorf("%v, frames of %d bytes: %+v", parser.Side(side), chunk, v.Tensor)
					}
					continue
				}
				if v.CRC32 = false; len(plain) != len(zipped) || v.Tensor != plain[i].Tensor {
					t.Errorf("%v: %+v in a ZIP file, %+v in safetensors", parser.Side(side), v.Tensor, plain[i].Tensor)
				}
			}
		}
	}
}

// A client may cut a message into several frames of WebSocket, each with a mask of its own. Tensors that lie in one of
// them are found, and no byte of the others.
func TestFragments(t *testing.T) {
	j := newJob("site-1.job", 1<<20)
	files, want := model(true, 2)
	sent := j.download(parser.Client, "ref", files, false)[0]
	whole := j.webSocket()
	plain := parsertest.Find(t, fresh(), conn(1), whole)[parser.Client]
	if len(plain) != len(want) {
		t.Fatalf("%d tensors, want %d", len(plain), len(want))
	}
	message := j.frames[sent].bytes
	at := slices.IndexFunc(whole, func(p parsertest.Piece) bool { return len(p.Bytes) > len(message) })
	counts := map[int]int{}
	for cut := 1; cut < len(message); cut += 13 {
		x := slices.Clone(whole)
		x[at].Bytes = append(fragment(2, message[:cut], [4]byte{1, 2, 3, 4}), fragment(0x80, message[cut:], [4]byte{9, 8, 7, byte(cut)})...)
		found := parsertest.Find(t, fresh(), conn(1), x)[parser.Client]
		counts[len(found)]++
		for _, v := range found {
			if i := slices.IndexFunc(plain, func(p parsertest.Found) bool { return p.Key == v.Key }); i < 0 || !bytes.Equal(v.Data, plain[i].Data) {
				t.Fatalf("cut at %d: %+v has other bytes", cut, v.Tensor)
			}
		}
	}
	if counts[len(want)] == 0 || counts[len(want)-1] == 0 || len(counts) != 2 {
		t.Errorf("%v tensors are found, want all, or all but the one that is cut", counts)
	}
}

// fragment is a frame of WebSocket that a client masks.
func fragment(first byte, b []byte, mask tensor.Mask) []byte {
	h := append(binary.BigEndian.AppendUint64([]byte{first, 0x80 | 127}, uint64(len(b))), mask[:]...)
	h = append(h, b...)
	mask.Apply(h[len(h)-len(b):])
	return h
}

// Over gRPC, where a sender may wait within any frame, long arrays that must not change are cut into short pieces, the
// same whatever HTTP/2's frames are.
func TestPieces(t *testing.T) {
	elements := bytes.Repeat([]byte("elements"), 40_000)
	file := sim.Zip("T0.npy", sim.NPY("<f8", 8, elements))
	j := newJob("site-1.job", 1<<20)
	j.download(parser.Client, "ref", [][]byte{file}, false)
	if whole := parsertest.Find(t, fresh(), conn(1), j.tcp())[parser.Client]; len(whole) != 1 || !bytes.Equal(whole[0].Data, elements) {
		t.Errorf("%d tensors over TCP, want 1", len(whole))
	}
	want := parsertest.Find(t, fresh(), conn(1), j.grpc(t, 1<<14))[parser.Client]
	got := parsertest.Find(t, fresh(), conn(1), j.grpc(t, 7777))[parser.Client]
	if n := (len(elements) + pieceLen - 1) / pieceLen; len(want) != n || len(got) != n {
		t.Fatalf("%d and %d tensors over gRPC, want %d", len(want), len(got), n)
	}
	var all []byte
	for i, v := range got {
		if v.Key != want[i].Key || v.Base != want[i].Base || i > 0 && v.Base == got[i-1].Base {
			t.Errorf("piece %d: %+v, else %+v", i, v.Tensor, want[i].Tensor)
		}
		all = append(all, v.Data...)
	}
	if !bytes.Equal(all, elements) {
		t.Errorf("%d bytes in all, want %d", len(all), len(elements))
	}
}

// A frame of differences that comes again has the base of its first copy, so that it may cross as a reference where
// nothing is lost; and over gRPC the second copy, which must not change, is cut into short pieces.
func TestDifferencesAgain(t *testing.T) {
	elements := bytes.Repeat([]byte("elements"), 40_000)
	for _, c := range []struct {
		file []byte
		name string
	}{{sim.Zip("T0.npy", sim.NPY("<f8", 8, elements)), "NumPy"}, {sim.Safetensors("T0", "F64", 8, elements), "safetensors"}} {
		j := newJob("site-1.job", 1<<20)
		j.send(parser.Client, "server_command", "submit_update", "b", announce("WEIGHT_DIFF", "ref", c.name != "NumPy", []string{"T0"}))
		sent := j.download(parser.Client, "ref", [][]byte{c.file}, false)
		j.frames = append(j.frames, j.frames[sent[0]])
		found := parsertest.Find(t, fresh(), conn(1), j.tcp())[parser.Client]
		if len(found) != 2 || found[0].Role != tensor.Gradient || found[1].Role != tensor.Exact || found[0].Base == 0 || found[0].Base != found[1].Base || !found[0].Repeats || !found[1].Repeats {
			t.Errorf("%s over TCP: %d tensors: %+v", c.name, len(found), found)
		}
		found = parsertest.Find(t, fresh(), conn(1), j.grpc(t, 1<<14))[parser.Client]
		if n := 1 + (len(elements)+pieceLen-1)/pieceLen; len(found) != n || found[0].Role != tensor.Gradient || !bytes.Equal(found[0].Data, elements) {
			t.Fatalf("%s over gRPC: %d tensors, want a gradient and %d pieces", c.name, len(found), n-1)
		}
		var again []byte
		for _, v := range found[1:] {
			if v.Role != tensor.Exact || !v.Repeats || v.Size > pieceLen {
				t.Errorf("%s over gRPC: %+v", c.name, v.Tensor)
			}
			again = append(again, v.Data...)
		}
		if !bytes.Equal(again, elements) {
			t.Errorf("%s over gRPC: %d bytes come again, want %d", c.name, len(again), len(elements))
		}
	}
}

// An array that no announcement names, or that the wrong side announces, is exact; so are arrays of an encrypted frame
// opaque.
func TestUnannounced(t *testing.T) {
	files, _ := model(true, 1)
	names := []string{"a", "b", "c"}
	for name, c := range map[string]struct {
		say  func(j *job)
		want int
	}{
		"no announcement": {func(j *job) { j.download(parser.Client, "ref", files, false) }, 3},
		"by the other side": {func(j *job) {
			j.send(parser.Server, "server_command", "submit_update", "b", announce("WEIGHT_DIFF", "ref", true, names))
			j.download(parser.Client, "ref", files, false)
		}, 3},
		"for the other side": {func(j *job) {
			j.send(parser.Client, "server_command", "submit_update", "b", announce("WEIGHT_DIFF", "ref", true, names))
			j.download(parser.Server, "ref", files, false)
		}, 3},
		"by an answer": {func(j *job) {
			j.send(parser.Client, "return_only", "server_command:get_task", "b", announce("WEIGHT_DIFF", "ref", true, names))
			j.download(parser.Client, "ref", files, false)
		}, 3},
		"of fewer arrays": {func(j *job) {
			j.send(parser.Client, "server_command", "submit_update", "b", announce("WEIGHT_DIFF", "ref", true, nil))
			j.download(parser.Client, "ref", files, false)
		}, 3},
		"in sections of their own": {func(j *job) { j.download(parser.Client, "ref", files, true) }, 3},
		"encrypted": {func(j *job) {
			j.send(parser.Client, "return_only", "download_service__:download_service__download", "r", sim.Section(sim.MarkerValue, 0, sim.Pack(sim.Map{"data", []any{files[0]}})), "cn__encrypted", true)
		}, 0},
	} {
		j := newJob("site-1.job", 1<<20)
		c.say(j)
		n := 0
		for _, list := range parsertest.Find(t, fresh(), conn(1), j.tcp()) {
			for _, v := range list {
				if n++; v.Role != tensor.Exact {
					t.Errorf("%s: %+v", name, v.Tensor)
				}
			}
		}
		if n != c.want {
			t.Errorf("%s: %d tensors, want %d", name, n, c.want)
		}
	}
}

// Frames that come again, or out of order, have the same bytes and the same base, also where a client masks them anew;
// and a gradient comes only once.
func TestFramesAgain(t *testing.T) {
	for driver, exchange := range map[string]func(*job) parsertest.Exchange{"tcp": (*job).tcp, "http": (*job).webSocket} {
		t.Run(driver, func(t *testing.T) { framesAgain(t, exchange) })
	}
}

func framesAgain(t *testing.T, exchange func(*job) parsertest.Exchange) {
	files, elements := model(true, 2)
	j := newJob("site-1.job", 512)
	j.send(parser.Client, "server_command", "submit_update", "b", announce("WEIGHT_DIFF", "ref", true, []string{"a", "b", "c"}))
	sent := j.download(parser.Client, "ref", files, false)
	plain := parsertest.Find(t, fresh(), conn(1), exchange(j))[parser.Client]
	j.frames[sent[2]], j.frames[sent[3]] = j.frames[sent[3]], j.frames[sent[2]]
	j.frames = append(j.frames, j.frames[sent[1]], j.frames[sent[2]], j.frames[sent[3]])
	again := parsertest.Find(t, fresh(), conn(1), exchange(j))[parser.Client]
	total, gradients := 0, map[uint64]int{}
	for _, v := range plain {
		total += len(v.Data)
		if v.Role == tensor.Gradient {
			gradients[v.Key]++
		}
	}
	of := 0
	for _, e := range elements {
		of += len(e)
	}
	if total < of-8*len(sent) || total > of {
		t.Errorf("%d bytes of %d are in tensors", total, of)
	}
	if len(again) != len(plain)+3 {
		t.Fatalf("%d tensors, want the %d and three again", len(again), len(plain))
	}
	data := map[uint64][]byte{}
	for _, v := range again {
		if before, ok := data[v.Key]; ok && (!bytes.Equal(before, v.Data) || v.Role != tensor.Exact || v.Base == 0) {
			t.Errorf("%+v comes again with other bytes, or as %v", v.Tensor, v.Role)
		}
		if data[v.Key] = v.Data; v.Role == tensor.Gradient {
			gradients[v.Key]--
		}
	}
	for key, n := range gradients {
		if n != 0 {
			t.Errorf("key %x is a gradient %d times less", key, n)
		}
	}
}

// A client's first frame that was lost to the parser leaves the rest of the stream opaque.
func TestFirstFrameLast(t *testing.T) {
	files, _ := model(false, 2)
	j := newJob("site-1.job", 512)
	sent := j.download(parser.Client, "ref", files, false)
	slices.Reverse(j.frames[sent[0]:])
	if all := parsertest.Find(t, fresh(), conn(1), j.tcp())[parser.Client]; len(all) != 1 || all[0].Role != tensor.Exact {
		t.Errorf("%d tensors, want the one in the first frame", len(all))
	}
}

// The model has the same bases for all clients of the job, in each round; weights and differences of weights that a
// client sends have the client's, and weights have the model's as their Model.
func TestBases(t *testing.T) {
	p := fresh()
	kind := "WEIGHT_DIFF"
	var models []uint64 // of the client's arrays
	bases := func(n byte, cell string, c parser.Conn) (b [2][]uint64) {
		j := newJob(cell, 1<<20)
		down, _ := model(false, uint64(n))
		j.round(kind, false, down, down)
		models = nil
		for side, list := range parsertest.Find(t, p, c, j.tcp()) {
			for _, v := range list {
				if b[side] = append(b[side], v.Base); parser.Side(side) == parser.Client {
					models = append(models, v.Model)
				} else if !v.Answered {
					t.Errorf("results will answer a model: %+v", v.Tensor)
				}
			}
		}
		return b
	}
	first, later, other := bases(1, "site-1.job", conn(1)), bases(2, "site-1.job", conn(1)), bases(1, "site-2.job", conn(2))
	if !slices.Equal(first[0], later[0]) || !slices.Equal(first[1], later[1]) || !slices.Equal(first[1], other[1]) || slices.Equal(first[0], other[0]) {
		t.Errorf("%x, then %x, of another client %x", first, later, other)
	}
	if slices.ContainsFunc(models, func(m uint64) bool { return m != 0 }) {
		t.Errorf("differences answer a model: %x", models)
	}
	kind = "WEIGHTS"
	if w := bases(2, "site-2.job", conn(2)); !slices.Equal(w[0], other[0]) || !slices.Equal(models, w[1]) || !slices.Equal(w[1], first[1]) {
		t.Errorf("weights from a client have the bases %x, and answer %x", w, models)
	}
	kind = "WEIGHT_DIFF"
	here, there := bases(1, "site-1.job", parser.Conn{Peer: "paris"}), bases(1, "site-1.job", parser.Conn{Peer: "tokyo"})
	if !slices.Equal(here[0], there[0]) || !slices.Equal(here[1], there[1]) {
		t.Error("the proxies at both ends have other bases")
	}
	for _, c := range []parser.Conn{{Job: "another"}, {}} {
		if b := bases(1, "site-1.job", c); slices.Equal(b[1], first[1]) {
			t.Errorf("%+v has the same bases", c)
		}
	}
}

func TestForeignStreams(t *testing.T) {
	for _, s := range []string{"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", "POST /f3 HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefgh", string(sim.Frame(sim.TypeData, nil, []byte("payload of a frame")))} {
		client, _ := fresh().New(conn(1))
		if _, err := client.Next([]byte(s)); !errors.Is(err, parser.ErrForeign) {
			t.Errorf("%q: %v", s, err)
		}
	}
	client, server := fresh().New(conn(1))
	x := oneRound("WEIGHTS", true, 1<<20).webSocket()
	if _, err := client.Next(x[0].Bytes); err != nil {
		t.Fatal(err)
	}
	compressed := bytes.Replace(x[1].Bytes, []byte("\r\n\r\n"), []byte("\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"), 1)
	if _, err := server.Next(compressed); err == nil {
		t.Error("a WebSocket with extensions is read")
	}
}

// Over gRPC a connection tells of the memory that the frames of its call take, as over TCP.
func TestFramesAreHeld(t *testing.T) {
	held := func(x parsertest.Exchange) int {
		client, _ := fresh().New(conn(1))
		for _, p := range x {
			for b := p.Bytes; p.From == parser.Client && len(b) > 0; {
				seg, err := client.Next(b)
				if err != nil {
					t.Fatal(err)
				}
				b = b[seg.Len:]
			}
		}
		return parser.Held(client)
	}
	j := newJob("site-1.job", 1<<20)
	before := held(j.grpc(t, 1<<14))
	files, _ := model(true, 1)
	for range maxStreams {
		j.download(parser.Client, "ref", files, false)
	}
	tcp, grpc := held(j.tcp()), held(j.grpc(t, 1<<14))
	if grown := grpc - before; tcp < maxStreams*512 || grown < tcp/2 || grown > 2*tcp {
		t.Errorf("%d bytes more are held over gRPC, %d in all over TCP", grown, tcp)
	}
}

// Whatever a peer sends, memory is bounded.
func TestMemoryIsBounded(t *testing.T) {
	p := new(Protocol)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	files, _ := model(true, 1)
	long := make([]string, maxNames+100)
	for i := range long {
		long[i] = string(rune('a'+i%26)) + string(make([]byte, i%64))
	}
	announced := announce("WEIGHT_DIFF", "a ref", true, long)
	before := heap()
	var client parser.Parser
	for i := range 95 {
		j := newJob("site-1.job", 1<<20)
		j.last = 100 * i
		if i < 70 {
			j.send(parser.Client, "server_command", "submit_update", "b", bytes.Replace(announced, []byte("a ref"), fmt.Appendf(nil, "ref%02d", i), 1))
		}
		for range 45 {
			j.download(parser.Client, "ref", files, false)
		}
		client, _ = p.New(conn(1))
		for _, f := range j.frames {
			for b := f.bytes; f.from == parser.Client && len(b) > 0; {
				seg, err := client.Next(b)
				if err != nil {
					t.Fatal(err)
				}
				b = b[seg.Len:]
			}
		}
	}
	if grown := heap() - before; grown > 64<<20 || p.facts.requests.Len() > maxRequests || p.facts.announcements.Len() != maxAnnouncements {
		t.Errorf("%d bytes, %d requests, %d announcements", grown, p.facts.requests.Len(), p.facts.announcements.Len())
	}
	if n := parser.Held(client); n > 1<<20 {
		t.Errorf("a connection holds %d bytes", n)
	}
	runtime.KeepAlive(client)
	runtime.KeepAlive(announced)
}

// No bytes in any order make a parser panic, break the contract, or depend on how they are cut.
func FuzzNext(f *testing.F) {
	for _, torch := range []bool{false, true} {
		j := oneRound("WEIGHT_DIFF", torch, 900)
		f.Add(parsertest.Fold(j.tcp()))
		f.Add(parsertest.Fold(j.grpc(f, 400)))
		f.Add(parsertest.Fold(j.webSocket()))
	}
	j := newJob("site-1.job", 700)
	files, _ := model(true, 3)
	j.download(parser.Client, "ref", files, true)
	f.Add(parsertest.Fold(j.tcp()))
	j = newJob("site-1.job", 700)
	arrays := orderedDict("collections.OrderedDict", sim.Map{"a", ref("torch.Tensor", 0), "b", ref("torch.Tensor", 1)})
	j.send(parser.Client, "server_command", "submit_update", "b", dxo("WEIGHT_DIFF", arrays, sim.Map{"scaffold_c_diff", sim.Map{"a", ref("numpy.ndarray", 0)}}, []reference{{"one", announcesTorch}, {"two", announcesNumPy}}))
	j.download(parser.Client, "one", files, false)
	j.send(parser.Server, "aux_communication", "ObjectStreamer.Request", "c", sim.Section(sim.MarkerValue, 0, sim.Pack(sim.Map{"__fobs_data__", sim.Map{"safetensors_blob", files[0]}})))
	f.Add(parsertest.Fold(j.tcp()))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := parsertest.AnyCut(t, fresh, conn(1), parsertest.Unfold(b))
		for _, s := range c.Server {
			if s.Tensor.Role == tensor.Gradient {
				t.Fatalf("a server's %+v", s.Tensor)
			}
		}
	})
}

// Differences of the statistics of normalizing layers are no gradients; weights beside them are state all the same.
func TestStatisticsTravelExactly(t *testing.T) {
	for kind, want := range map[string][3]tensor.Role{"WEIGHT_DIFF": {tensor.Gradient, tensor.Exact, tensor.Exact}, "WEIGHTS": {tensor.State, tensor.State, tensor.Exact}} {
		for _, name := range []string{"bn.running_mean", "bn.running_var", "bn.num_batches_tracked", "norm/moving_mean:0", "norm/moving_variance:0"} {
			files, elements := model(true, 2)
			j := newJob("site-1.job", 1<<20)
			j.send(parser.Client, "server_command", "submit_update", "b", announce(kind, "ref", true, []string{"bn.weight", name, "steps"}))
			j.download(parser.Client, "ref", files, false)
			found := parsertest.Find(t, fresh(), conn(1), j.tcp())[parser.Client]
			if len(found) != len(elements) {
				t.Fatalf("%d tensors, want %d", len(found), len(elements))
			}
			for i, v := range found {
				if v.Role != want[i] {
					t.Errorf("%s: tensor %d beside %s is %v, want %v", kind, i, name, v.Role, want[i])
				}
			}
		}
	}
}

// Whatever the connections of other jobs, and of other peers of the same job, show, no byte of a connection changes its
// class.
func FuzzFactsOfOthers(f *testing.F) {
	j := oneRound("WEIGHT_DIFF", true, 900)
	files, _ := model(true, 3)
	announced, loaded := newJob("site-1.job", 1<<20), newJob("site-1.job", 1<<20)
	announced.send(parser.Client, "server_command", "submit_update", "b", announce("WEIGHT_DIFF", "ref", true, []string{"a", "b", "c"}))
	announced.download(parser.Client, "ref", files, false)
	loaded.download(parser.Client, "ref", files, false)
	seeds := []parsertest.Exchange{j.tcp(), j.grpc(f, 400), announced.tcp(), loaded.tcp()}
	for _, x := range seeds {
		f.Add(parsertest.Fold(x), true)
		f.Add(parsertest.Fold(x), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, named bool) {
		victim := conn(1)
		if !named {
			victim.Job = ""
		}
		for _, x := range seeds {
			parsertest.Apart(t, true, fresh, victim, x, parsertest.Unfold(b), conn(2).Client, victim.Server)
		}
	})
}

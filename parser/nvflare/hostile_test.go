package nvflare

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	sim "github.com/gradproxy/gradproxy/parser/nvflare/nvflaresim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// dataFrame is a frame of a download's answer, of a client: size bytes in all; b stand at offset at.
func dataFrame(id, at, size int, b []byte) []byte {
	return sim.Frame(sim.TypeData, sim.Pack(sim.Map{"sm__pe", "fobs", "sm__ch", "return_only", "sm__tp", "download_service__:download_service__download",
		"sm__id", id, "sm__os", at, "sm__sz", size}), b)
}

// feed gives bytes to a client's parser, and returns how many of them are elements.
func feed(p parser.Parser, b []byte) (elements int, err error) {
	for len(b) > 0 {
		seg, err := p.Next(b)
		if err != nil {
			return elements, err
		}
		if seg.Tensor.Size > 0 {
			elements += seg.Len
		}
		b = b[seg.Len:]
	}
	return elements, nil
}

// open returns a client's parser that has read the first frame.
func open(t *testing.T) parser.Parser {
	t.Helper()
	client, _ := fresh().New(conn(1))
	if _, err := feed(client, sim.Greeting(sim.TypeHello, "site-1.job")); err != nil {
		t.Fatal(err)
	}
	return client
}

// Where lengths lie, bytes are opaque, or the direction ends; frames that follow are read as if nothing were.
func TestLengthsThatLie(t *testing.T) {
	elements := bytes.Repeat([]byte("elements"), 1000)
	file := sim.Safetensors("T0", "F64", 8, elements)
	answer := func(file []byte) []byte { return sim.Section(sim.MarkerBytes, 5, append(make([]byte, idLen), file...)) }
	good := answer(file)
	changed := func(at int, with ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], with)
		return b
	}
	whole := func(b []byte) []byte { return dataFrame(7, 0, len(b), b) }
	largest := bytes.Repeat([]byte{0xff}, 8)
	zipped := sim.Zip("T0.npy", sim.NPY("<f8", 8, elements))
	sizes := bytes.Clone(zipped)
	binary.LittleEndian.PutUint64(sizes[30+6+4:], 1<<60)
	binary.LittleEndian.PutUint64(sizes[30+6+12:], 1<<60)
	for name, c := range map[string]struct {
		bytes []byte
		want  int  // bytes of elements
		ends  bool // the direction
	}{
		"no lie":                                  {whole(good), len(elements), false},
		"a section of 2^64 bytes":                 {whole(changed(2, largest...)), 0, false},
		"a section that is longer than the rest":  {whole(changed(9, good[9]+1)), 0, false},
		"a file whose header is 2^64 bytes long":  {whole(changed(sectionHead+idLen, largest...)), 0, false},
		"a file whose array is larger than it":    {whole(answer(bytes.Replace(file, []byte("8000]}"), []byte("9000]}"), 1))), 0, false},
		"a ZIP file whose member is 2^60 bytes":   {whole(answer(sizes)), 0, false},
		"a ZIP file":                              {whole(answer(zipped)), len(elements), false},
		"a stream that is shorter than its frame": {dataFrame(7, 0, len(good)-1, good), 0, false},
		"an offset behind the end":                {dataFrame(7, len(good), len(good), good), 0, false},
		"an offset below 0":                       {dataFrame(7, -1, len(good), good), 0, false},
		"a stream of 2^62 bytes":                  {dataFrame(7, 0, 1<<62, good), 0, false},
		"a frame that is shorter than its header": {append([]byte{0, 0, 0, 20, 0, 9, sim.TypeData}, make([]byte, 50)...), 0, true},
		"a frame shorter than a prefix":           {append([]byte{0, 0, 0, 15, 0, 0, sim.TypeData}, make([]byte, 50)...), 0, true},
	} {
		p := open(t)
		n, err := feed(p, c.bytes)
		if n != c.want || (err != nil) != c.ends || errors.Is(err, parser.ErrForeign) {
			t.Errorf("%s: %d bytes of elements, want %d; %v", name, n, c.want, err)
		}
		if n, err := feed(p, dataFrame(8, 0, len(good), good)); !c.ends && (n != len(elements) || err != nil) {
			t.Errorf("%s: %d bytes of elements in the next stream; %v", name, n, err)
		}
		if n := parser.Held(p); n > 256<<10 {
			t.Errorf("%s: %d bytes are held", name, n)
		}
	}
}

// beginning is the content of a download's answer up to the elements of an array, of size bytes.
func beginning(size int) []byte {
	text := fmt.Sprintf(`{"T0":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}`, size/4, size)
	b := binary.BigEndian.AppendUint64([]byte{sim.MarkerBytes, 5}, uint64(idLen+8+len(text)+size))
	b = binary.LittleEndian.AppendUint64(append(b, make([]byte, idLen)...), uint64(len(text)))
	return append(b, text...)
}

// A stream whose frames leave gaps everywhere takes no more memory for each of them, or time.
func TestGapsAreBounded(t *testing.T) {
	const size = 1 << 30
	head := beginning(size)
	total := len(head) + size
	p := open(t)
	if _, err := feed(p, dataFrame(7, 0, total, head)); err != nil {
		t.Fatal(err)
	}
	if n, err := feed(p, dataFrame(7, size/2, total, make([]byte, 64))); err != nil || n == 0 {
		t.Fatalf("%d bytes of elements in a frame behind a gap; %v", n, err)
	}
	before := parser.Held(p)
	found := 0
	for i := range 20 * maxGaps {
		n, err := feed(p, dataFrame(7, 4096+i*128, total, make([]byte, 64)))
		if err != nil {
			t.Fatal(err)
		}
		found += n
	}
	if n := parser.Held(p) - before; n > 2*16*maxGaps || found < 20*maxGaps*40 {
		t.Errorf("%d bytes more are held for %d gaps; %d bytes of elements", n, 20*maxGaps, found)
	}
}

// The same holds where each frame leaves a gap behind the one before.
func TestGapsInOrderAreBounded(t *testing.T) {
	const size = 1 << 30
	head := beginning(size)
	total := len(head) + size
	p := open(t)
	if _, err := feed(p, dataFrame(7, 0, total, head)); err != nil {
		t.Fatal(err)
	}
	before := parser.Held(p)
	for i := range 20 * maxGaps {
		if _, err := feed(p, dataFrame(7, 4096+i*128, total, make([]byte, 64))); err != nil {
			t.Fatal(err)
		}
	}
	if n := parser.Held(p) - before; n > 2*16*maxGaps {
		t.Errorf("%d bytes more are held for %d gaps", n, 20*maxGaps)
	}
}

// A frame that has come before the bytes which tell its content comes again after these, and the receiver drops it: so
// it must not count for error feedback.
func TestSkippedFramesAgain(t *testing.T) {
	files, _ := model(true, 2)
	for name, c := range map[string]struct {
		order            []int
		apart, gradients bool
	}{
		"in order":                {[]int{0, 1, 2, 3}, false, true},
		"again":                   {[]int{0, 2, 1, 2, 3}, false, false},
		"the next one late":       {[]int{0, 2, 3, 1, 2}, false, false},
		"sections in order":       {[]int{0, 1, 2, 3, 4}, true, true},
		"a section's frame again": {[]int{0, 1, 3, 2, 3, 4}, true, false},
	} {
		j := newJob("site-1.job", 80)
		j.send(parser.Client, "server_command", "submit_update", "b", announce("WEIGHT_DIFF", "ref", true, []string{"a", "b", "c"}))
		sent := j.download(parser.Client, "ref", files, c.apart)
		frames := j.frames[sent[0]:]
		j.frames = j.frames[:sent[0]:sent[0]]
		for _, i := range c.order {
			j.frames = append(j.frames, frames[i])
		}
		found := parsertest.Find(t, fresh(), conn(1), j.tcp())[parser.Client]
		if got := slices.ContainsFunc(found, func(f parsertest.Found) bool { return f.Role == tensor.Gradient }); got != c.gradients || len(found) < 2 {
			t.Errorf("%s: %d tensors, gradients: %v", name, len(found), got)
		}
	}
}

// An array of 2 GiB is found in the frames that it takes, over TCP and over a WebSocket, and costs no memory.
func TestLongArray(t *testing.T) {
	const size, chunk = 1 << 31, 1 << 22
	head := beginning(size)
	p := open(t)
	total := len(head) + size
	n, err := feed(p, dataFrame(7, 0, total, head))
	if err != nil || n != 0 {
		t.Fatal(n, err)
	}
	piece := make([]byte, chunk)
	for at := len(head); at < total; at += chunk {
		whole := dataFrame(7, at, total, nil) // its length is put right
		binary.BigEndian.PutUint32(whole, uint32(len(whole)+chunk))
		for _, b := range [][]byte{whole, piece} {
			m, err := feed(p, b)
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
	}
	if n != size {
		t.Errorf("%d bytes of elements, want %d", n, size)
	}
	if n := parser.Held(p); n > 128<<10 {
		t.Errorf("%d bytes are held", n)
	}
}

// Streams whose frames interleave are told apart, whatever their numbers and lengths are, and only as many are known as
// may be.
func TestStreamsInterleave(t *testing.T) {
	elements := make([]byte, 3000)
	content := sim.Section(sim.MarkerBytes, 5, append(make([]byte, idLen), sim.Safetensors("T0", "F32", 4, elements)...))
	for _, c := range []struct{ streams, want int }{{maxStreams, maxStreams * 3000}, {3 * maxStreams, 0}} {
		p := open(t)
		n := 0
		for at := 0; at < len(content); at += 500 {
			for id := range c.streams {
				m, err := feed(p, dataFrame(id, at, len(content), content[at:min(len(content), at+500)]))
				if err != nil {
					t.Fatal(err)
				}
				n += m
			}
		}
		if c.want > 0 && n < c.want-c.streams*4*8 || n > c.streams*len(elements) {
			t.Errorf("%d streams: %d bytes of elements, want about %d", c.streams, n, c.want)
		}
	}
}

// A WebSocket whose frames say more than they have, or that they have none, is read on, and one that says what nobody
// may say ends.
func TestWebSocketLengths(t *testing.T) {
	j := newJob("site-1.job", 1<<20)
	files, want := model(true, 2)
	j.download(parser.Client, "ref", files, false)
	all := j.webSocket()
	for name, c := range map[string]struct {
		bytes []byte
		ends  bool
	}{
		"empty frames":                  {bytes.Repeat([]byte{0x00, 0x80, 1, 2, 3, 4}, 2000), false},
		"a long control frame":          {append([]byte{0x89, 0xfe, 1, 0, 1, 2, 3, 4}, make([]byte, 256)...), false},
		"a frame of 2^63 bytes":         {[]byte{0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, true},
		"a frame with an extension bit": {[]byte{0xc2, 0x80, 1, 2, 3, 4}, true},
		"a frame of an unknown kind":    {[]byte{0x83, 0x80, 1, 2, 3, 4}, true},
	} {
		client, server := fresh().New(conn(1))
		var failed error
		n := 0
		for i, p := range all {
			of := client
			if p.From == parser.Server {
				of = server
			}
			b := p.Bytes
			if i == 3 {
				m, err := feed(client, c.bytes)
				n, failed = n+m, err
			}
			if p.From == parser.Client && failed != nil {
				continue
			}
			m, err := feed(of, b)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			n += m
		}
		elements := len(slices.Concat(want...))
		if (failed != nil) != c.ends || errors.Is(failed, parser.ErrForeign) || !c.ends && n != elements || c.ends && n != 0 {
			t.Errorf("%s: %d bytes of elements of %d; %v", name, n, elements, failed)
		}
		if n := parser.Held(client); n > 128<<10 {
			t.Errorf("%s: %d bytes are held", name, n)
		}
	}
}

// FuzzStreams has the fuzzer write the header and the payload of a frame, and cut it: the frames around it are right,
// over each driver. No bytes make a parser panic, break the contract, or depend on how they are cut; and only what a
// client has announced is a gradient.
func FuzzStreams(f *testing.F) {
	files, _ := model(false, 1)
	header := sim.Pack(sim.Map{"sm__pe", "fobs", "sm__ch", "server_command", "sm__tp", "submit_update", "sm__id", 7, "sm__os", 0, "sm__sz", 500})
	f.Add(uint8(0), header, announce("WEIGHT_DIFF", "ref", false, []string{"a"}), uint16(99))
	header = sim.Pack(sim.Map{"sm__pe", "fobs", "sm__ch", "return_only", "sm__tp", "download_service__:download_service__download", "sm__id", 7, "sm__os", 0, "sm__sz", 2})
	f.Add(uint8(1), header, sim.Section(sim.MarkerValue, 0, sim.Pack(sim.Map{"data", []any{files[1]}})), uint16(17))
	f.Add(uint8(2), header, sim.Section(sim.MarkerBytes, 5, append(make([]byte, idLen), files[1]...)), uint16(300))
	f.Fuzz(func(t *testing.T, driver uint8, header, payload []byte, cut uint16) {
		if len(header) > 4<<10 || len(payload) > 8<<10 {
			return
		}
		j := newJob("site-1.job", 1<<20)
		small := sim.Safetensors("T0", "F32", 4, make([]byte, 400))
		j.send(parser.Client, "server_command", "submit_update", "b", announce("WEIGHT_DIFF", "ref", true, []string{"a"}))
		for range 2 {
			for _, side := range []parser.Side{parser.Client, parser.Server} {
				j.frames = append(j.frames, simFrame{side, sim.Frame(sim.TypeData, header, payload)})
			}
			j.download(parser.Client, "ref", [][]byte{small}, false)
		}
		var x parsertest.Exchange
		switch driver % 3 {
		case 0:
			x = j.tcp()
		case 1:
			x = j.grpc(t, 16+int(cut)%4096)
		default:
			x = j.webSocket()
		}
		c := parsertest.AnyCut(t, fresh, conn(1), x)
		for _, s := range c.Server {
			if s.Tensor.Role == tensor.Gradient {
				t.Fatalf("a server's %+v", s.Tensor)
			}
		}
	})
}

// FuzzWebSocket has the fuzzer write the frames of a WebSocket of both sides, after the right beginning.
func FuzzWebSocket(f *testing.F) {
	j := oneRound("WEIGHT_DIFF", true, 900)
	x := j.webSocket()
	f.Add(parsertest.Fold(x[2:]))
	f.Add(parsertest.Fold(parsertest.Exchange{{From: parser.Client, Bytes: fragment(2, sim.Greeting(sim.TypeHello, "site-1.job")[:20], tensor.Mask{1, 2, 3, 4})},
		{From: parser.Client, Bytes: fragment(0x80, sim.Greeting(sim.TypeHello, "site-1.job")[20:], tensor.Mask{4, 3, 2, 1})}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		parsertest.AnyCut(t, fresh, conn(1), append(slices.Clone(x[:2]), parsertest.Unfold(b)...))
	})
}

// A cell that begins anew numbers its streams anew. A stream that has the number and the length of one that was not
// whole is another stream, if it answers another request or has another topic: its arrays are not the announced ones.
func TestStreamNumbersComeAgain(t *testing.T) {
	gradients := func(j *job) (n int) {
		for _, v := range parsertest.Find(t, fresh(), conn(1), j.tcp())[parser.Client] {
			if v.Role == tensor.Gradient {
				n += len(v.Data)
			}
		}
		return n
	}
	files, _ := model(true, 2)
	others, _ := model(true, 3)
	for name, stream := range map[string]func(j *job){
		"another request": func(j *job) {
			j.send(parser.Client, "return_only", "download_service__:download_service__download", "other", sim.Items(others, 0, false))
		},
		"another topic": func(j *job) {
			j.send(parser.Client, "aux_communication", "ObjectStreamer.Request", "request-2", sim.Items(others, 0, false))
		},
	} {
		j := newJob("site-1.job", 512)
		j.send(parser.Client, "server_command", "submit_update", "b", announce("WEIGHT_DIFF", "ref", true, []string{"a", "b", "c"}))
		j.send(parser.Server, "download_service__", "download_service__download", "other", sim.Request("unknown", 0))
		sent := j.download(parser.Client, "ref", files, false)
		j.frames = j.frames[:sent[2]]
		before := gradients(j)
		j.last--
		stream(j)
		if after := gradients(j); before == 0 || after != before {
			t.Errorf("%s: %d bytes of gradients, and %d with the other stream", name, before, after)
		}
	}
}

// A request that names no array list, or several, tells nothing of its answer; nor does a request without a name of its
// own, which any other answer without one would seem to answer.
func TestUnclearRequests(t *testing.T) {
	files, _ := model(true, 2)
	for name, c := range map[string]struct {
		request   string
		content   sim.Map
		gradients bool
	}{
		"one list":  {"r", sim.Map{"ref_id", "ref"}, true},
		"two lists": {"r", sim.Map{"ref_id", "ref", "ref_id", "other"}, false},
		"no list":   {"r", sim.Map{"state", "ref"}, false},
		"no name":   {"", sim.Map{"ref_id", "ref"}, false},
	} {
		j := newJob("site-1.job", 1<<20)
		j.send(parser.Client, "server_command", "submit_update", "b", announce("WEIGHT_DIFF", "ref", true, []string{"a", "b", "c"}))
		j.send(parser.Server, "download_service__", "download_service__download", c.request, sim.Section(sim.MarkerValue, 0, sim.Pack(c.content)))
		j.send(parser.Client, "return_only", "download_service__:download_service__download", c.request, sim.Items(files, 0, false))
		found := parsertest.Find(t, fresh(), conn(1), j.tcp())[parser.Client]
		if got := slices.Contains(roles(found), tensor.Gradient); got != c.gradients || len(found) != len(files) {
			t.Errorf("%s: roles %v", name, roles(found))
		}
	}
}

// Of an array with several names it counts whether any of them is a statistic's, or stands elsewhere in the message.
// Items with long names, and more than may be, are not remembered.
func TestItemsWithSeveralNames(t *testing.T) {
	var c content
	for _, name := range []string{"", "fc1.weight", "bn1.running_var", "fc2.weight"} {
		c.refer([]byte("T0"), []byte(name))
	}
	if n := c.items[item{name: "T0"}]; !n.elsewhere || !n.statistic {
		t.Errorf("the array is %+v", n)
	}
	c.refer(bytes.Repeat([]byte("x"), maxItemName+1), []byte("long"))
	for i := range maxNames + 9 {
		c.refer(fmt.Append(nil, "T", i), []byte("a"))
	}
	if n := len(c.items); n != maxNames {
		t.Errorf("%d items are remembered, want %d", n, maxNames)
	}
	if _, ok := c.items[item{name: fmt.Sprint("T", maxNames-1)}]; !ok {
		t.Error("an item with a long name is remembered")
	}
}

// A response without a request begins no WebSocket of NVFlare's.
func TestResponseWithoutRequest(t *testing.T) {
	_, server := fresh().New(conn(1))
	if _, err := server.Next([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")); !errors.Is(err, parser.ErrForeign) {
		t.Error(err)
	}
}

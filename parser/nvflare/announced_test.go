package nvflare

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	sim "github.com/gradproxy/gradproxy/parser/nvflare/nvflaresim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
	"github.com/gradproxy/gradproxy/tensor"
)

// ref is an array in a message: an item of a class.
func ref(class string, i int) sim.Map {
	return sim.Map{"__fobs_type__", class, "__fobs_data__", sim.Map{"type", "ref", "data", fmt.Sprintf("T%d", i)}}
}

// orderedDict is a dictionary as PyTorch's state_dict has it, which NVFlare writes as a list of pairs.
func orderedDict(class string, pairs sim.Map) sim.Map {
	var list []any
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, sim.Map{"__fobs_type__", "tuple", "__fobs_data__", []any{pairs[i], pairs[i+1]}})
	}
	return sim.Map{"__fobs_type__", class, "__fobs_data__", list}
}

// dxo is the content of a stream with a DXO, and with the ref_ids by which its arrays may be downloaded.
func dxo(kind string, data, meta any, refs []reference) []byte {
	b := sim.Section(sim.MarkerValue, 0, sim.Pack(sim.Map{"__fobs_type__", "Shareable", "__fobs_data__", sim.Map{
		"DXO", sim.Map{"kind", sim.Map{"__fobs_type__", "DataKind", "__fobs_data__", kind}, "data", data, "meta", meta},
	}}))
	for _, r := range refs {
		b = append(b, sim.Section(sim.MarkerText, r.class, append(make([]byte, idLen), fmt.Sprintf(`{"fqcn": "x", "ref_id": %q}`, r.id)...))...)
	}
	return b
}

// A message may have arrays beside the weights, such as SCAFFOLD's control variates in the DXO's meta: of PyTorch's
// tensors and NumPy's arrays each class counts its own from T0 on, and has its own ref_id. Only the arrays in the DXO's
// data are what its kind says; one that the message has elsewhere as well is not. The data may be an OrderedDict.
func TestAnnouncedBesideOthers(t *testing.T) {
	const torch, numpy, ordered = "torch.Tensor", "numpy.ndarray", "collections.OrderedDict"
	const exact, gradient = tensor.Exact, tensor.Gradient
	var (
		one  = []reference{{"one", announcesTorch}}
		both = append(slices.Clip(one), reference{"two", announcesNumPy})
		same = append(slices.Clip(one), reference{"two", announcesTorch})
		many = append(slices.Clip(both), reference{"3", announcesNumPy}, reference{"4", announcesNumPy}, reference{"5", announcesNumPy})
	)
	plain := sim.Map{"a", ref(torch, 0), "b", ref(torch, 1), "c", ref(torch, 2)}
	for _, c := range []struct {
		name       string
		data, meta any
		refs       []reference
		want       []tensor.Role // of the arrays of the first ref_id, and of the second one
	}{
		{"weights alone", plain, sim.Map{}, one, []tensor.Role{gradient, gradient, exact}},
		{"control variates of NumPy", plain, sim.Map{"scaffold_c_diff", sim.Map{"a", ref(numpy, 0), "b", ref(numpy, 1)}}, both,
			[]tensor.Role{gradient, gradient, exact, exact, exact, exact}},
		{"weights of both classes", sim.Map{"a", ref(torch, 0), "b", ref(numpy, 1)}, sim.Map{}, both, []tensor.Role{gradient, exact, exact, exact, gradient, exact}},
		{"control variates of PyTorch", sim.Map{"a", ref(torch, 0)}, sim.Map{"scaffold_c_diff", sim.Map{"a", ref(torch, 1)}}, one, []tensor.Role{gradient, exact, exact}},
		{"an array that is both", plain, sim.Map{"scaffold_c_diff", orderedDict(ordered, sim.Map{"b", ref(torch, 1)})}, one, []tensor.Role{gradient, exact, exact}},
		{"an array that is also passed on", plain, sim.Map{"scaffold_c_diff", sim.Map{"b", ref("LazyDownloadRef", 1)}}, one, []tensor.Role{gradient, exact, exact}},
		{"a statistic under a second name", sim.Map{"a.running_mean", ref(torch, 0), "b", ref(torch, 0), "c", ref(torch, 1)}, sim.Map{}, one,
			[]tensor.Role{exact, gradient, exact}},
		{"an OrderedDict", orderedDict(ordered, plain), sim.Map{}, one, []tensor.Role{gradient, gradient, exact}},
		{"an OrderedDict in the meta", sim.Map{"a", ref(torch, 0)}, sim.Map{"scaffold_c_diff", orderedDict(ordered, sim.Map{"a", ref(torch, 1)})}, one,
			[]tensor.Role{gradient, exact, exact}},
		{"another list of pairs", orderedDict("app.Pairs", plain), sim.Map{}, one, []tensor.Role{exact, exact, exact}},
		{"an OrderedDict without a name", orderedDict(ordered, sim.Map{"a", ref(torch, 0), true, ref(torch, 1)}), sim.Map{}, one, []tensor.Role{gradient, exact, exact}},
		{"two ref_ids of a class", plain, sim.Map{}, same, []tensor.Role{exact, exact, exact, exact, exact, exact}},
		{"more ref_ids than are read", plain, sim.Map{}, many, []tensor.Role{exact, exact, exact, exact, exact, exact}},
		{"a class that passes a reference on", sim.Map{"a", ref("LazyDownloadRef", 0)}, sim.Map{}, one, []tensor.Role{gradient, exact, exact}},
		{"one that passes two on", sim.Map{"a", ref("LazyDownloadRef", 0)}, sim.Map{}, both, []tensor.Role{exact, exact, exact, exact, exact, exact}},
	} {
		j := newJob("site-1.job", 1<<20)
		j.send(parser.Client, "server_command", "submit_update", "b", dxo("WEIGHT_DIFF", c.data, c.meta, c.refs))
		var data [][]byte
		for i, r := range c.refs[:len(c.want)/3] {
			files, elements := model(r.class == announcesTorch, uint64(i))
			data = append(data, elements...)
			j.download(parser.Client, r.id, files, false)
		}
		found := parsertest.Find(t, fresh(), conn(1), j.tcp())[parser.Client]
		if !slices.Equal(roles(found), c.want) {
			t.Errorf("%s: %v, want %v", c.name, roles(found), c.want)
			continue
		}
		for i, v := range found {
			if !bytes.Equal(v.Data, data[i]) {
				t.Errorf("%s: tensor %d has %d other bytes", c.name, i, len(v.Data))
			}
		}
	}
}

// Differences of weights are gradients only where a client sends them: an update that the server passes on must arrive
// alike at all clients.
func TestDifferencesOfTheServer(t *testing.T) {
	files, elements := model(true, 1)
	j := newJob("site-1.job", 1<<20)
	j.send(parser.Server, "return_only", "server_command:get_task", "a", announce("WEIGHT_DIFF", "ref", true, []string{"a", "b", "c"}))
	j.download(parser.Server, "ref", files, false)
	found := parsertest.Find(t, fresh(), conn(1), j.tcp())[parser.Server]
	if got := roles(found); !slices.Equal(got, slices.Repeat([]tensor.Role{tensor.Exact}, len(elements))) {
		t.Errorf("roles %v, want all of %d exact", got, len(elements))
	}
}

// NVFlare's TensorServerStreamer and TensorClientStreamer send safetensors unasked, without a word of what they are:
// their arrays are exact, with bases as other arrays have them, so that a model crosses once for several clients.
func TestStreamed(t *testing.T) {
	files, elements := model(true, 1)
	for _, c := range []struct {
		topic, key string
		apart      bool
		want       int
	}{{"ObjectStreamer.Request", "safetensors_blob", false, 3}, {"ObjectStreamer.Request", "safetensors_blob", true, 3}, {"ObjectStreamer.Request", "log", false, 0}, {"other", "safetensors_blob", false, 0}} {
		var bases [2][2][]uint64
		p := fresh()
		for client := range 2 {
			j := newJob(fmt.Sprintf("site-%d.job", client), 900)
			for _, side := range []parser.Side{parser.Client, parser.Server} {
				for i, f := range files {
					var blob any = f
					var rest []byte
					if c.apart {
						blob, rest = sim.Map{"datum_id", "x"}, sim.Section(sim.MarkerBytes, 5, append(make([]byte, idLen), f...))
					}
					value := sim.Pack(sim.Map{"__fobs_type__", "Shareable", "__fobs_data__", sim.Map{c.key, blob, "tensor_keys", []any{"a"}, "task_id", "1"}})
					j.send(side, "aux_communication", c.topic, fmt.Sprint(side, i), append(sim.Section(sim.MarkerValue, 0, value), rest...))
				}
			}
			for side, list := range parsertest.Find(t, p, conn(byte(client+1)), j.tcp()) {
				var got []byte
				for _, v := range list {
					got = append(got, v.Data...)
					bases[client][side] = append(bases[client][side], v.Base)
					if v.Role != tensor.Exact || !v.Repeats || v.CRC32 || v.DType == tensor.NoDType {
						t.Errorf("%s of %s, side %d: %+v", c.key, c.topic, side, v.Tensor)
					}
				}
				if want := len(slices.Concat(elements...)); c.want == 0 && len(got) > 0 || c.want > 0 && (len(got) < want-8*len(list) || len(got) > want) {
					t.Errorf("%s of %s, side %d: %d bytes in %d tensors, want %d of %d", c.key, c.topic, side, len(got), len(list), want, c.want)
				}
			}
		}
		down, up := [2][]uint64{bases[0][parser.Server], bases[1][parser.Server]}, [2][]uint64{bases[0][parser.Client], bases[1][parser.Client]}
		if !slices.Equal(down[0], down[1]) || c.want > 0 && slices.Equal(up[0], up[1]) {
			t.Errorf("%s of %s: the clients are sent bases %x, and send %x", c.key, c.topic, down, up)
		}
	}
}

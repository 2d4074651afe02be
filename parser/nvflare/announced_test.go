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

// A message may have arrays beside the weights, such as SCAFFOLD's control variates in the DXO's meta: of PyTorch's tensors and NumPy's arrays each class counts its own from T0 on, and has its
// own ref_id. Only the arrays in the DXO's data are what its kind says; one that the message has elsewhere as well is not. The data may be an OrderedDict.
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

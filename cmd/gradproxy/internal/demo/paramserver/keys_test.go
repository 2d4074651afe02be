package paramserver

import (
	"encoding/hex"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
)

// Small arrays are whole at one server; large ones are cut, each part under the key in its server's range.
func TestSplit(t *testing.T) {
	for _, c := range []struct {
		key, n, servers, bigArray int
		want                      []part
	}{
		{3, 999_999, 2, 0, []part{{1, 0x8000000000000002, 0, 999_999}}},
		{4, 999_999, 2, 0, []part{{0, 4, 0, 999_999}}},
		{3, 1_000_000, 2, 0, []part{{0, 3, 0, 500_000}, {1, 0x8000000000000002, 500_000, 1_000_000}}},
		{5, 10, 3, 10, []part{{0, 5, 0, 3}, {1, 0x555555555555555a, 3, 7}, {2, 0xaaaaaaaaaaaaaaaf, 7, 10}}},
		{7, 10, 1, 10, []part{{0, 7, 0, 10}}},
	} {
		if got := split(c.key, c.n, c.servers, c.bigArray); !slices.Equal(got, c.want) {
			t.Errorf("key %d of %d elements on %d servers: %+v, want %+v", c.key, c.n, c.servers, got, c.want)
		}
	}
}

// MXNet numbers parameters in the order of their names.
func TestKeysFollowNames(t *testing.T) {
	model := train.New(1, 4, 3, 3, 2) // weight and bias of three layers
	if got, want := keys(model.Params()), []int{1, 0, 3, 2, 5, 4}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A message that is not one key with its values is refused.
func TestOpenRefuses(t *testing.T) {
	key, four := make([]byte, 8), []byte{4, 0, 0, 0}
	for name, m := range map[string]pslitesim.Message{
		"no data":             {},
		"two frames":          {Data: [][]byte{key, four}},
		"two keys":            {Data: [][]byte{make([]byte, 16), four, four}},
		"another length":      {Data: [][]byte{key, make([]byte, 8), four}},
		"length of two":       {Data: [][]byte{key, four, make([]byte, 8)}},
		"no whole float32":    {Data: [][]byte{key, make([]byte, 3), {3, 0, 0, 0}}},
		"float16":             {Meta: pslitesim.Meta{Head: 5}, Data: [][]byte{key, four, four}},
		"2-bit or row-sparse": {Meta: pslitesim.Meta{Head: 3}, Data: [][]byte{key, four, four}},
	} {
		if _, _, err := open(&m, 3); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if got, vals, err := open(&pslitesim.Message{Data: [][]byte{{7, 0, 0, 0, 0, 0, 0, 128}, {0, 0, 128, 63}, four}}, 3); got != 1<<63+7 || hex.EncodeToString(vals) != "0000803f" || err != nil {
		t.Errorf("got %#x, %x, %v", got, vals, err)
	}
}

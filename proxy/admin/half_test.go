package admin

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/proxy"
)

// A view of many tensors fits the bounds of an answer, and its numbers arrive.
func TestViewOfManyTensorsFits(t *testing.T) {
	v := PeerView{Site: "tokyo", Raw: 5, Sent: 3}
	for i := range 1000 {
		v.Tensors.Largest = append(v.Tensors.Largest, proxy.TensorInfo{ID: uint64(i), Name: strings.Repeat("é", 60), Job: "resnet", RawBytes: 7})
		v.Jobs = append(v.Jobs, proxy.Traffic{Job: fmt.Sprint(i)})
	}
	v.Tensors.Count = 1000
	text := v.Encode()
	if len(text) > proxy.MaxView {
		t.Fatalf("%d bytes", len(text))
	}
	got, err := DecodeView(text)
	if err != nil || got.Site != "tokyo" || got.Raw != 5 || got.Sent != 3 || got.Tensors.Count != 1000 || len(got.Tensors.Largest) < 32 || len(got.Jobs) != maxViewJobs {
		t.Errorf("%+v, %v", got, err)
	}
}

// The tensors of a view can be told apart: by the peer's own IDs as long as these do so, and whatever a peer says.
func TestTensorsOfAViewCanBeToldApart(t *testing.T) {
	for text, want := range map[string][]uint64{
		`{"id":"7"},{"id":"9"},{"id":"8"}`:    {7, 9, 8},
		`{},{},{}`:                            {1, 2, 3},
		`{"id":"2"},{"id":"2"},{},{"id":"1"}`: {2, 1, 3, 4},
		`{"id":"18446744073709551615"},{},{}`: {1<<64 - 1, 1, 2},
	} {
		v, err := DecodeView([]byte(`{"version":1,"tensors":{"largest":[` + text + `]}}`))
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for _, x := range v.Tensors.Largest {
			got = append(got, x.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: IDs %v, want %v", text, got, want)
		}
	}
}

// A tensor of a peer's half is asked for by the peer and its ID there, and is not one of this site's.
func TestTensorOfAHalf(t *testing.T) {
	c := Config{Tensor: func(id uint64) (proxy.TensorInfo, *TensorHistory, bool) {
		return proxy.TensorInfo{ID: id, Name: "of this site"}, nil, true
	}}
	c.setDefaults()
	v := PeerView{Tensors: Tensors{Largest: []proxy.TensorInfo{{ID: 7, Name: "first"}, {ID: 9, Name: "second"}}}}
	view, err := DecodeView(v.Encode())
	if err != nil {
		t.Fatal(err)
	}
	h := newHub(&c)
	h.halves = []Half{{Peer: "tokyo", View: view}}
	for query, want := range map[string]string{"peer=tokyo&id=7": "first", "peer=tokyo&id=9": "second", "peer=tokyo&id=8": "", "peer=paris&id=7": "", "id=7": "of this site"} {
		w := httptest.NewRecorder()
		c.tensor(h)(w, httptest.NewRequest("GET", "/tensor?"+query, nil))
		var a Answer
		if err := json.Unmarshal(w.Body.Bytes(), &a); (err == nil) != (want != "") || a.Tensor.Name != want {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

// A view of a later version, with more in it, is read; one of none, and numbers that no site counts, are refused.
func TestViewsOfOtherVersions(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"version":2,"site":"tokyo","raw_bytes":5,"new":{"x":1}}`: true,
		`{"version":1}`:                                       true,
		`{"site":"tokyo"}`:                                    false,
		`{"version":1,"raw_bytes":-1}`:                        false,
		`{"version":1,"sent_bytes":9223372036854775807}`:      false,
		`{"version":1,"rtt_seconds":-0.1}`:                    false,
		`{"version":1,"tensors":{"largest":[{"values":-1}]}}`: false,
		`[]`: false,
		`{"version":1,"site":"` + strings.Repeat("x", 1<<17) + `"}`: false,
	} {
		if _, err := DecodeView([]byte(text)); (err == nil) != ok || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

// Whatever a peer says, texts stay short and can be seen, and lists stay short.
func FuzzDecodeView(f *testing.F) {
	v := PeerView{Site: "tokyo", Tensors: Tensors{Largest: []proxy.TensorInfo{{Name: "<script>", Job: "a\x00b"}}}}
	f.Add(v.Encode())
	f.Add([]byte(`{"version":1,"tensors":{"largest":[{"job":"\u202e\u0007"}],"count":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := DecodeView(text)
		if err != nil {
			return
		}
		if len(v.Tensors.Largest) > maxViewTensors || len(v.Jobs) > maxViewJobs {
			t.Fatal("long lists")
		}
		for _, x := range v.Tensors.Largest {
			for _, s := range []string{x.Job, x.Name, x.From, x.Shape, x.Reason} {
				if len(s) > 3*maxViewText || strings.ContainsAny(s, "\x00\n\x1b") {
					t.Fatalf("%q", s)
				}
			}
			Explain(&x, func(string) bool { return true })
		}
		if _, err := json.Marshal(v); err != nil {
			t.Fatal(err)
		}
	})
}

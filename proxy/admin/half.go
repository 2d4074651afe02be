package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/gradproxy/gradproxy/proxy"
)

// A Half is the other side's view of the traffic with this site.
type Half struct {
	Peer  string    `json:"peer"`
	Error string    `json:"error,omitempty"` // why there is none
	View  *PeerView `json:"view,omitempty"`
}

// A PeerView is the view that a site gives a peer of the traffic with that peer, and of nothing else. A reader skips
// names that it does not know, and takes missing numbers for 0, so that a later version may add some.
type PeerView struct {
	Version   int             `json:"version"` // viewVersion
	Site      string          `json:"site"`
	Program   string          `json:"program"` // its version
	Raw       int64           `json:"raw_bytes"`
	Wire      int64           `json:"wire_bytes"`
	Delivered int64           `json:"delivered_bytes"`
	Sent      int64           `json:"sent_bytes"`
	Received  int64           `json:"received_bytes"`
	RTT       float64         `json:"rtt_seconds"`
	Goodput   float64         `json:"goodput_bytes_per_second"`
	Jobs      []proxy.Traffic `json:"jobs"`
	Tensors   Tensors         `json:"tensors"`
}

// viewVersion is that of PeerView. A view of a later one has all that this one has.
const viewVersion = 1

// Bounds of a PeerView from a peer, which may be made up.
const (
	maxViewJobs    = 64
	maxViewTensors = 128
	maxViewText    = 160 // bytes of each text
)

// Encode returns the text of a view, at most proxy.MaxView bytes: of many tensors only the largest are in it.
func (v *PeerView) Encode() []byte {
	v.Version = viewVersion
	v.Jobs = v.Jobs[:min(len(v.Jobs), maxViewJobs)]
	t := &v.Tensors
	t.Groups = t.Groups[:min(len(t.Groups), maxViewTensors)]
	for n := min(len(t.Largest), maxViewTensors); ; n /= 2 {
		t.Largest = t.Largest[:n]
		if n == 0 {
			t.Groups = nil
		}
		if text, err := json.Marshal(v); err != nil || n == 0 || len(text) <= proxy.MaxView {
			return text
		}
	}
}

// DecodeView reads the text of a peer's view. It believes nothing: lists and texts are cut to their bounds, control
// characters replaced, and numbers that no site counts refused.
func DecodeView(text []byte) (*PeerView, error) {
	v := &PeerView{}
	if len(text) > proxy.MaxView || json.Unmarshal(text, v) != nil {
		return nil, errors.New("the peer's answer is no view of its traffic")
	}
	if v.Version < viewVersion {
		return nil, fmt.Errorf("the peer's view has version %d, which is none", v.Version)
	}
	v.Jobs = v.Jobs[:min(len(v.Jobs), maxViewJobs)]
	t := &v.Tensors
	t.Largest, t.Groups = t.Largest[:min(len(t.Largest), maxViewTensors)], t.Groups[:min(len(t.Groups), maxViewTensors)]
	numbers := []int64{v.Raw, v.Wire, v.Delivered, v.Sent, v.Received, int64(t.Count)}
	floats := []float64{v.RTT, v.Goodput}
	clean(&v.Site, &v.Program)
	for i := range v.Jobs {
		j := &v.Jobs[i]
		clean(&j.Peer, &j.Job)
		numbers = append(numbers, j.Raw, j.Wire, j.Delivered)
	}
	for i := range t.Largest {
		x := &t.Largest[i]
		x.Shadow = nil
		clean(&x.Peer, &x.Job, &x.Protocol, &x.Direction, &x.DType, &x.Role, &x.Evidence, &x.Proof, &x.Codec, &x.Reason, &x.From, &x.To, &x.Name, &x.Shape)
		numbers = append(numbers, int64(x.Bytes), x.Values, x.RawBytes, x.WireBytes, int64(x.Number), x.Guarded)
		floats = append(floats, x.Error, x.Residual, x.Sparsity)
	}
	distinguish(t.Largest)
	for i := range t.Groups {
		g := &t.Groups[i]
		clean(&g.Peer, &g.Job, &g.Role, &g.Codec)
		numbers = append(numbers, int64(g.Count), g.RawBytes, g.WireBytes)
	}
	for _, n := range numbers {
		if n < 0 || n > 1<<53 {
			return nil, fmt.Errorf("the peer's view has the number %d, which is no count", n)
		}
	}
	for _, f := range floats {
		if !(f >= 0) || f > math.MaxFloat32 {
			return nil, fmt.Errorf("the peer's view has the number %v, which is no measurement", f)
		}
	}
	t.Largest, t.Groups = tensorsOf(proxy.TensorSummary{Largest: t.Largest}).Largest, tensorsOf(proxy.TensorSummary{Groups: t.Groups}).Groups
	return v, nil
}

// distinguish gives tensors without an ID, or with that of an earlier one, another. An ID is of the peer's own table:
// only together with the peer's name does it name a tensor.
func distinguish(list []proxy.TensorInfo) {
	seen := map[uint64]bool{}
	next := uint64(0)
	for i := range list {
		for list[i].ID == 0 || seen[list[i].ID] {
			next++
			list[i].ID = next
		}
		seen[list[i].ID] = true
	}
}

// clean bounds texts, and replaces characters in them that cannot be seen.
func clean(texts ...*string) {
	for _, s := range texts {
		if len(*s) > maxViewText {
			*s = (*s)[:maxViewText]
		}
		*s = strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return '?'
			}
			return r
		}, strings.ToValidUTF8(*s, "?"))
	}
}

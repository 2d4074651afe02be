package tensors

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// fill makes a table of n tensors of a job. Tensor i has sent i KB.
func fill(n int) *Table {
	table := new(Table)
	o := Origin{Peer: "tokyo", From: netip.MustParseAddr("10.1.0.1"), To: netip.MustParseAddr("10.2.0.1")}
	for i := 1; i <= n; i++ {
		x := tensor.Tensor{Key: uint64(i), DType: tensor.Float32, Size: 4 * i, Role: tensor.Gradient}
		r, _ := table.Of(o, policy.Flow{Job: "resnet", Protocol: "gloo"}, x)
		r.Named(Label{}, i)
		r.Chose(nil, x, []string{"lossless", "int4"}[i%2], tensor.OK)
		r.Sent(1000*i, 100*i)
	}
	return table
}

// The largest tensors are listed, and the others add up to the rest, for each codec.
func TestSummary(t *testing.T) {
	table := fill(100)
	x := tensor.Tensor{Key: 7, Size: 4, Role: tensor.State}
	other, _ := table.Of(Origin{Peer: "berlin"}, policy.Flow{Job: "other"}, x)
	other.Sent(1<<40, 1)
	s := table.Summary("tokyo", 10)
	if s.Count != 100 || len(s.Largest) != 10 || s.Largest[0].RawBytes != 100_000 || s.Largest[9].RawBytes != 91_000 {
		t.Errorf("%d tensors; the largest: %+v", s.Count, s.Largest)
	}
	if first := s.Largest[0]; first.From != "10.1.0.1" || first.To != "10.2.0.1" || first.Hosts != [2]netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1")} || first.Number != 100 || first.Peer != "tokyo" {
		t.Errorf("%+v", first)
	}
	raw, count := int64(0), 0
	for _, g := range s.Groups {
		raw, count = raw+g.RawBytes, count+g.Count
	}
	if len(s.Groups) != 2 || count != 90 || raw != 1000*90*91/2 {
		t.Errorf("groups %+v", s.Groups)
	}
	if all := table.Summary("", 0); all.Count != 101 || len(all.Largest) != 0 {
		t.Errorf("without a limit of 1: %+v", all)
	}
	if got, ok := table.ByID(s.Largest[3].ID); !ok || got.Key != s.Largest[3].Key {
		t.Errorf("by its ID: %+v, %v", got, ok)
	}
	if _, ok := table.ByID(1 << 60); ok {
		t.Error("there is a tensor of an ID that was not given")
	}
}

// Groups are bounded, however many jobs there are, and lose no tensor.
func TestGroupsAreBounded(t *testing.T) {
	table := new(Table)
	for i := range 3 * maxGroups {
		table.Of(Origin{}, policy.Flow{Job: fmt.Sprint(i)}, tensor.Tensor{Key: 1, Size: 4})
	}
	s := table.Summary("", 0)
	count := 0
	for _, g := range s.Groups {
		count += g.Count
	}
	if len(s.Groups) > maxGroups+len(tensor.Roles()) || count != 3*maxGroups {
		t.Errorf("%d groups of %d tensors", len(s.Groups), count)
	}
}

// A name from the network is cut, between two characters.
func TestLabelsAreBounded(t *testing.T) {
	var long string
	for len(long) < 1000 {
		long += "é"
	}
	table := new(Table)
	r, _ := table.Of(Origin{}, policy.Flow{}, tensor.Tensor{Key: 1, Size: 4})
	r.Named(Label{Name: "x" + long}, 1)
	if got := table.List()[0].Name; len(got) > maxLabel+3 {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// A tensor is named with its first value, and again with later ones, rarer and rarer: a protocol may prove the sender's
// rank after some steps. Its number stays.
func TestNamesThatAreKnownLate(t *testing.T) {
	table := &Table{}
	x := tensor.Tensor{Key: 1, Size: 1000, Role: tensor.Gradient}
	named := 0
	for value := range 3000 {
		r, fresh := table.Of(Origin{Peer: "tokyo", From: netip.MustParseAddr("10.1.0.1")}, policy.Flow{}, x)
		if r.Unnamed() {
			l, number := Label{}, 0
			if named++; fresh {
				number = 7
			}
			if value >= 20 {
				l.From = "rank 1 of 3"
			}
			r.Named(l, number)
		}
		r.Chose(nil, x, "int4", tensor.OK)
		want := "10.1.0.1"
		if value >= 31 {
			want = "rank 1 of 3"
		}
		if got := table.List()[0]; got.From != want || got.Number != 7 {
			t.Fatalf("after %d values from %q, number %d; want %q, 7", value+1, got.From, got.Number, want)
		}
	}
	if named != 11 { // with the values 1, 2, 4, ..., 1,024
		t.Errorf("it was named %d times", named)
	}
}

// One refresh of the page, of its tensors and as JSON. Its bound is 100 ms at 100,000 tensors.
func BenchmarkRefresh(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := fill(n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := json.Marshal(table.Summary("", 240)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

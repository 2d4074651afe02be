package inspect

import (
	"bytes"
	"slices"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// The values of a capture are the messages of the job, whole and unchanged, with the roles that the report counts.
func TestValues(t *testing.T) {
	trace := twoRanksTrace()
	file := captureOf(trace)
	config := Config{Sums: parser.SumsGradients}
	var values []Value
	if err := Values(bytes.NewReader(file), config, func(v Value) { values = append(values, v) }); err != nil {
		t.Fatal(err)
	}
	var sent [][]byte
	for _, e := range trace.Events {
		if m := e.Message; m != nil && len(m.Bytes) > 0 {
			sent = append(sent, m.Bytes)
		}
	}
	var got [][]byte
	bytesOf := map[tensor.Role]int{}
	for _, v := range values {
		if v.Tensor.Size != len(v.Data) || v.Tensor.Off != 0 {
			t.Errorf("%d bytes of %+v", len(v.Data), v.Tensor)
		}
		bytesOf[v.Tensor.Role] += len(v.Data)
		got = append(got, v.Data)
	}
	slices.SortFunc(sent, bytes.Compare)
	slices.SortFunc(got, bytes.Compare)
	if !slices.EqualFunc(sent, got, bytes.Equal) {
		t.Errorf("%d values, of %d messages, or not what was sent", len(got), len(sent))
	}
	report, err := Read(bytes.NewReader(file), config)
	if err != nil {
		t.Fatal(err)
	}
	var want RoleBytes
	for _, d := range []Direction{report.Connections[0].FromClient, report.Connections[0].FromServer} {
		want.Gradient += d.RoleBytes.Gradient
		want.Aggregate += d.RoleBytes.Aggregate
	}
	if bytesOf[tensor.Gradient] != want.Gradient || bytesOf[tensor.Aggregate] != want.Aggregate || want.Gradient == 0 {
		t.Errorf("%v, and the report counts %+v", bytesOf, want)
	}
	if err := Values(bytes.NewReader(file[:len(file)/2]), config, func(Value) {}); err == nil {
		t.Error("a capture that is cut short is whole")
	}
}

// A value whose blocks are of several roles is Unknown; one without its beginning is none.
func TestWholeValues(t *testing.T) {
	var w wholeValue
	var got []Value
	each := func(v Value) { got = append(got, v) }
	v := value{tensor: tensor.Tensor{Key: 1, Role: tensor.Gradient, Size: 8}}
	add := func(off int, b []byte, r tensor.Role) {
		v.off, v.data = off, b
		w.add(&v, r, each)
	}
	add(0, []byte("abcd"), tensor.Gradient)
	add(4, []byte("efgh"), tensor.Gradient)
	add(0, []byte("ijkl"), tensor.Unknown)
	add(4, []byte("mnop"), tensor.Gradient)
	add(4, []byte("late"), tensor.Gradient)
	if len(got) != 2 || string(got[0].Data) != "abcdefgh" || got[0].Tensor.Role != tensor.Gradient ||
		string(got[1].Data) != "ijklmnop" || got[1].Tensor.Role != tensor.Unknown {
		t.Errorf("%+v", got)
	}
}

package pslitesim

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// unhex reads hexadecimal text with blanks.
func unhex(text string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		panic(err)
	}
	return b
}

// Metas of MXNet 1.9.1.
func TestMetas(t *testing.T) {
	for name, c := range map[string]struct {
		meta Meta
		want []byte
	}{
		"push of float32": {
			Meta{Request: true, Push: true, Timestamp: 7, DataTypes: []int32{TypeUint64, TypeOther, TypeInt32}},
			unhex("0800 2001 2801 3000 3800 4007 4a03080b03 5000 6000 6800"),
		},
		"barrier of the workers": {
			Meta{Head: Unset, Request: true, Timestamp: 2, Control: &Control{Command: Barrier, BarrierGroup: GroupWorkers}},
			unhex("08ffffffff07 1a04 0803 1804 2001 2800 3000 3800 4002 5000 6000 6800"),
		},
		"registration": {
			Meta{Head: Unset, AppID: Unset, CustomerID: Unset, Control: &Control{Command: AddNode, Nodes: []NodeInfo{{
				Role: Worker, ID: Unset, Hostname: "127.0.0.1", Port: 36977,
			}}}},
			unhex("08ffffffff07 1a1f 0802 121b 0801 10ffffffff07 1a09 3132372e302e302e31 20f1a002 2800 5000 2000 2800 3000 4000 50ffffffff07 6000 6800"),
		},
		"end": {
			Meta{Head: Unset, AppID: Unset, Timestamp: Unset, Control: &Control{Command: Terminate}},
			unhex("08ffffffff07 1a02 0801 2000 2800 3000 5000 6000 6800"),
		},
		"priority below zero": {
			Meta{Request: true, Push: true, Pull: true, Priority: -2},
			unhex("0800 2001 2801 3000 3800 4000 5000 6001 68feffffffffffffffff01"),
		},
	} {
		if got := c.meta.Append(nil); !bytes.Equal(got, c.want) {
			t.Errorf("%s: % x, want % x", name, got, c.want)
		}
		if got, err := ParseMeta(c.want); err != nil || !reflect.DeepEqual(got, c.meta) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.meta)
		}
	}
}

// Before 2019 metas did not tell a pull: a message was one if it was no push, no command and no control message.
func TestOldMetasTellNoPull(t *testing.T) {
	for text, pull := range map[string]bool{
		"0800 2001 2800 3000 3800 4007 5000":                        true,
		"0800 2001 2801 3000 3800 4007 5000":                        false,
		"0800 2001 2800 3001 3800 4007 5000":                        false,
		"08ffffffff07 1a04 0803 1804 2001 2800 3000 3800 4002 5000": false,
	} {
		if m, err := ParseMeta(unhex(text)); err != nil || m.Pull != pull {
			t.Errorf("%s: pull %v, %v, want %v", text, m.Pull, err, pull)
		}
	}
}

func TestMalformedMetas(t *testing.T) {
	for name, text := range map[string]string{
		"cut tag":                "80",
		"cut varint":             "08ff",
		"cut body":               "1205 41",
		"cut control":            "1a03 0801 12",
		"cut node":               "1a04 1202 08ff",
		"fixed width":            "0d 00000000",
		"cut data type":          "4a01 80",
		"control in data":        "1a01 80",
		"field 0":                "00 00",
		"varint of eleven bytes": "08 ffffffffffffffffffffff01",
	} {
		if m, err := ParseMeta(unhex(text)); !errors.Is(err, errMeta) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v, want %v", name, m, err, errMeta)
		}
	}
}

// Any bytes are a meta or an error, and a meta's encoding has the same content.
func FuzzParseMeta(f *testing.F) {
	f.Add(unhex("0800 2001 2801 3000 3800 4007 4a03080b03 5000 6000 6800"))
	f.Add(unhex("08ffffffff07 1a04 0803 1804 2001 2800 3000 3800 4002 5000 6000 6800"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMeta(b)
		if err != nil {
			return
		}
		text := m.Append(nil)
		again, err := ParseMeta(text)
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		if got := again.Append(nil); !bytes.Equal(got, text) {
			t.Errorf("% x became % x", text, got)
		}
	})
}

package main

import "testing"

func TestBitRate(t *testing.T) {
	for text, want := range map[string]bitRate{
		"0": 0, "50M": 50e6, "50Mbit": 50e6, "1.5Gbit/s": 1.5e9, "64k": 64e3, "9600": 9600, "9600bit/s": 9600, "2.5 M": 2.5e6,
	} {
		var r bitRate
		if err := r.Set(text); err != nil || r != want {
			t.Errorf("%q is %d, %v, want %d", text, r, err, want)
		}
		var again bitRate
		if err := again.Set(r.String()); err != nil || again != r {
			t.Errorf("%d is written %q, which is read as %d, %v", r, r.String(), again, err)
		}
	}
	for _, text := range []string{"", "M", "-1", "fast", "1e30", "NaN", "50MB", "50m"} {
		var r bitRate
		if err := r.Set(text); err == nil {
			t.Errorf("%q is %d", text, r)
		}
	}
}

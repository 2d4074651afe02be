package gloo

import "testing"

// lengthsOf returns the lengths of an all-reduce's messages.
func lengthsOf(all ...int) (l lengths) {
	for _, n := range all {
		l.add(n)
	}
	return l
}

// All-reduces that are no ring's, or were announced and never came, are no buckets, and the search for buckets among
// them ends, whatever the lengths of their messages are.
func TestTileIsBounded(t *testing.T) {
	bucket := planOf(100*4, 4, 2)
	good := lengthsOf(bucket.length(0, 0), bucket.length(0, 1), bucket.length(0, 2), bucket.length(0, 3))
	for name, c := range map[string]struct {
		l     lengths
		tiled bool
	}{
		"a bucket":                         {good, true},
		"no message":                       {lengthsOf(), false},
		"a short message, and a long one":  {lengthsOf(8, 1<<32-1), false},
		"a short message, and long ones":   {lengthsOf(8, 1<<20, 1<<20, 1<<20), false},
		"a short message, and a huge one":  {lengthsOf(8, 1<<62), false},
		"a short message, and two of 2^62": {lengthsOf(8, 1<<62, 1<<62), false},
	} {
		reduces := []expectedReduce{{lengths: c.l}}
		tile(reduces, []uint64{60, 40}, 2)
		if reduces[0].tiled != c.tiled {
			t.Errorf("%s: it is a bucket: %v", name, reduces[0].tiled)
		}
	} // The sizes of the second are not all tried: it might be the bucket, so none is.
	reduces := []expectedReduce{{lengths: good}, {lengths: lengthsOf(8, 216_000)}}
	if tile(reduces, []uint64{60, 40}, 2); reduces[0].tiled {
		t.Error("a bucket is found though not all sizes were tried")
	}
}

package bench

import (
	"fmt"
	"io"
)

// A Table writes rows as text, each as it comes.
type Table struct {
	w           io.Writer
	codec, data int // widths
}

// NewTable writes the heading of a table that is wide enough for the names in c.
func NewTable(w io.Writer, c Config) *Table {
	t := &Table{w: w, codec: len("codec"), data: len("data")}
	for _, c := range c.Codecs {
		t.codec = max(t.codec, len(c.String()))
	}
	for _, d := range c.Data {
		t.data = max(t.data, len(d.Name))
	}
	fmt.Fprintf(w, "%-*s  %-*s  %-8s %9s %8s %7s %9s %8s %7s %9s  %15s  %15s  %15s\n", t.codec, "codec", t.data, "data",
		"dtype", "elements", "ratio", "bits", "nmse", "cosine", "flips", "max error", "encode (x copy)", "decode (x copy)", "bytes e+d+alloc")
	return t
}

// Row writes a row: speeds in GB/s of elements and, in brackets, over that of copying memory; memory in bytes a value,
// of the encoder, the decoder, and the allocations of each step.
func (t *Table) Row(r Row) {
	fmt.Fprintf(t.w, "%-*s  %-*s  %-8s %9d %8.3f %7.3f %9.3g %8.5f %6.2f%% %9.3g  %7.2f (%5.3f)  %7.2f (%5.3f)  %5.2f+%4.2f+%4.2f\n", t.codec, r.Codec,
		t.data, r.Data, r.DType, r.Elements, r.Ratio, r.BitsPerValue, r.NMSE, r.Cosine, 100*r.SignFlips, r.MaxAbsError,
		r.EncodeGBps, r.EncodeVsCopy, r.DecodeGBps, r.DecodeVsCopy, r.EncoderBytes, r.DecoderBytes, r.AllocatedBytes)
}

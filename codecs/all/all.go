// Package all lists the codecs.
package all

import (
	"fmt"
	"strings"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/block"
	"github.com/gradproxy/gradproxy/codecs/cast"
	"github.com/gradproxy/gradproxy/codecs/dgc"
	"github.com/gradproxy/gradproxy/codecs/drive"
	"github.com/gradproxy/gradproxy/codecs/fastsgd"
	"github.com/gradproxy/gradproxy/codecs/gspar"
	"github.com/gradproxy/gradproxy/codecs/int255"
	"github.com/gradproxy/gradproxy/codecs/keys"
	"github.com/gradproxy/gradproxy/codecs/logquant"
	"github.com/gradproxy/gradproxy/codecs/lossless"
	"github.com/gradproxy/gradproxy/codecs/onebit"
	"github.com/gradproxy/gradproxy/codecs/qsgd"
	"github.com/gradproxy/gradproxy/codecs/randomk"
	"github.com/gradproxy/gradproxy/codecs/skcompress"
	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
	"github.com/gradproxy/gradproxy/codecs/sparsify"
	"github.com/gradproxy/gradproxy/codecs/stochastic3"
	"github.com/gradproxy/gradproxy/codecs/terngrad"
	"github.com/gradproxy/gradproxy/codecs/threelc"
	"github.com/gradproxy/gradproxy/codecs/threshold"
	"github.com/gradproxy/gradproxy/codecs/topk"
	"github.com/gradproxy/gradproxy/codecs/zipml"
)

// table has one line for each codec, in the order in which help lists them.
var table = [...]struct {
	name string
	new  func(*codecs.Args) (codecs.Codec, error)
}{
	{"lossless", lossless.FromArgs},
	{"3lc", threelc.FromArgs},
	{"int8", block.FromArgs},
	{"int4", block.FromArgs},
	{"int255", int255.FromArgs},
	{"fp16", cast.FromArgs},
	{"bf16", cast.FromArgs},
	{"stochastic3", stochastic3.FromArgs},
	{"onebit", onebit.FromArgs},
	{"terngrad", terngrad.FromArgs},
	{"qsgd", qsgd.FromArgs},
	{"drive", drive.FromArgs},
	{"delta-binary", keys.FromArgs},
	{"adaptive-prefix", keys.FromArgs},
	{"bit-grain", keys.FromArgs},
	{"rice", keys.FromArgs},
	{"bitmap", keys.FromArgs},
	{"fastsgd", fastsgd.FromArgs},
	{"logquant", logquant.FromArgs},
	{"sketchedsgd", sketchedsgd.FromArgs},
	{"topk", topk.FromArgs},
	{"dgc", dgc.FromArgs},
	{"threshold", threshold.FromArgs},
	{"randomk", randomk.FromArgs},
	{"sparsify", sparsify.FromArgs},
	{"gspar", gspar.FromArgs},
	{"unisp", gspar.FromArgs},
	{"skcompress", skcompress.FromArgs},
	{"zipml", zipml.FromArgs},
}

// New returns the codec that text names, with its parameters: "lossless", "lossless(level=fast)". The error wraps
// codecs.ErrText and says which names or values there are.
func New(text string) (codecs.Codec, error) {
	a, err := codecs.ParseText(text)
	if err != nil {
		return nil, err
	}
	for _, c := range table {
		if c.name == a.Name {
			return c.new(a)
		}
	}
	return nil, fmt.Errorf("%w %q: no codec is called %s; there are %s", codecs.ErrText, text, a.Name, strings.Join(Names(), ", "))
}

// Names returns the names of all codecs.
func Names() []string {
	names := make([]string, len(table))
	for i, c := range table {
		names[i] = c.name
	}
	return names
}

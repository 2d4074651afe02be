package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/strict"
	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// maxShadow bounds the candidates, which share one piece of memory and a share of the processors.
const maxShadow = 8

// codecs checks a list of codecs. The list must name no codec twice.
func (k *checker) codecs(list []string, line int, place string) {
	for i, text := range list {
		where := fmt.Sprintf("%s[%d]", place, i)
		if slices.Contains(list[:i], text) {
			k.errorf(line, where, "%s is there twice: leave one out", text)
		}
		if text == policy.Verbatim {
			k.errorf(line, where, "verbatim is no codec: leave it out")
			continue
		}
		codec, err := k.known.Codec(text)
		if err == nil {
			err = policy.Check(codec)
		}
		switch {
		case err != nil:
			k.errorf(line, where, "%s", strings.TrimPrefix(strict.OneLine(err.Error()), "codecs: bad codec text "))
		case !takesFloats(codec):
			k.errorf(line, where, "%s takes %s, and tensors that may lose something are floating-point numbers: leave it out", text, typesOf(codec))
		}
	}
}

// takesFloats reports whether codec takes elements of any float type.
func takesFloats(codec codecs.Codec) bool {
	return slices.ContainsFunc(tensor.DTypes(), func(d tensor.DType) bool { return d.Float() && taker(codec)(d) })
}

// budgets checks the budgets of peers and jobs.
func (k *checker) budgets() {
	check := func(b *Budget, where string) {
		if b.line == 0 {
			return
		}
		if b.GBPerDay == 0 {
			k.errorf(b.line, where+".gb_per_day", "it is missing: write the gigabytes of a day, such as 50, or leave budget out")
		}
		k.codecs(b.Then, b.line, where+".then")
		k.unordered(b, where+".then")
	}
	for i := range k.Peers {
		check(&k.Peers[i].Budget, fmt.Sprintf("peers[%d].budget", i))
	}
	for i := range k.Jobs {
		check(&k.Jobs[i].Budget, fmt.Sprintf("jobs[%d].budget", i))
	}
}

// unordered warns of rules with a codec that a budget's list does not have: tensors of theirs move to the list's first
// one, though that may be finer.
func (k *checker) unordered(b *Budget, where string) {
	if len(b.Then) == 0 {
		return
	}
	for i, r := range k.Policy {
		if r.Codec != "" && r.Codec != policy.Verbatim && r.Codec != "lossless" && !slices.Contains(b.Then, r.Codec) {
			k.warnf(b.line, where, "%s of policy[%d] is not in the list, so its tensors move to %s, which may be finer and take more bytes: name it in its place", r.Codec, i, b.Then[0])
		}
	}
}

func (k *checker) shadow() {
	line := k.lines["shadow"]
	if len(k.Shadow) > maxShadow {
		k.errorf(line, "shadow", "%d candidates are too many for the share of the processors that they have: name at most %d", len(k.Shadow), maxShadow)
	}
	k.codecs(k.Shadow, line, "shadow")
	if len(k.Shadow) > 0 && k.Admin == Off {
		k.warnf(line, "shadow", "admin is off, so nobody can see the results: set admin, or leave shadow out")
	}
}

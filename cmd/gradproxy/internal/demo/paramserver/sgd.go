package paramserver

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// SGD is how servers change weights: stochastic gradient descent with momentum, as MXNet computes it,
// v = Momentum v - Rate Rescale g; w = w + v, where g is the sum over the workers.
type SGD struct {
	Rate     float32
	Momentum float32 // in [0, 1)
	Rescale  float32 // factor of gradients
}

// update changes weights by a sum of gradients. velocity is as long, 0 at first. Each operation is rounded, and in the
// order of SGDKernel and SGDMomKernel (src/operator/optimizer_op-inl.h), so that the bits are MXNet's.
func (o SGD) update(weight, velocity, sum []float32) {
	velocity, sum = velocity[:len(weight)], sum[:len(weight)]
	rate := o.Rate * o.Rescale
	if o.Momentum == 0 {
		for i := range weight {
			weight[i] -= float32(rate * sum[i])
		}
		return
	}
	for i := range weight {
		v := float32(o.Momentum*velocity[i]) - float32(rate*sum[i])
		velocity[i] = v
		weight[i] += v
	}
}

// optimizerText is sent by MXNet 1.9.1 for mx.optimizer.SGD with all else at its default, in Python's pickle protocol
// 0, with %s for the numbers of SGD: Rescale, Rate, Momentum.
//
//go:embed sgd.pickle
var optimizerText string

// errOptimizer is returned for optimizers that this package cannot compute.
var errOptimizer = errors.New("paramserver: optimizer is not plain SGD with momentum, as MXNet 1.9 pickles it")

// pickle returns the optimizer as workers send it.
func (o SGD) pickle() []byte {
	return fmt.Appendf(nil, optimizerText, python(o.Rescale), python(o.Rate), python(o.Momentum))
}

// unpickle reads a text that pickle made.
func unpickle(text []byte) (o SGD, err error) {
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(optimizerText), "%s", `([-+.0-9e]+)`) + "$"
	numbers := regexp.MustCompile(pattern).FindSubmatch(bytes.TrimSpace(text))
	if numbers == nil {
		return o, errOptimizer
	}
	for i, dst := range []*float32{&o.Rescale, &o.Rate, &o.Momentum} {
		v, err := strconv.ParseFloat(string(numbers[1+i]), 32)
		if err != nil {
			return o, fmt.Errorf("%w: %w", errOptimizer, err)
		}
		*dst = float32(v)
	}
	return o, nil
}

// python returns a number as Python writes it.
func python(v float32) string {
	s := strconv.FormatFloat(float64(v), 'g', -1, 32)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

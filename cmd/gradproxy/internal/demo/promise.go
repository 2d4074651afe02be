package demo

import (
	"errors"
	"fmt"

	"github.com/gradproxy/gradproxy/codecs"
	all "github.com/gradproxy/gradproxy/codecs/all"
)

// A promise must be true at the end of a run, on all data.
type promise uint8

const (
	sameWeights  promise = iota // every rank has the weights of the direct run: nothing may be lost
	sameReplicas                // all ranks have the same weights: gradients may lose detail, before sums are shared
	likeReplicas                // the ranks' weights differ by less than maxDistance: sums may lose detail
)

// maxDistance is how far apart replicas may end, relative to the norm of their weights: a tenth of the distance that a
// classifier's accuracy notices.
const maxDistance = 0.02

// ErrBroken is wrapped by errors of runs that ended otherwise than gradproxy promises.
var ErrBroken = errors.New("gradproxy has not kept its promise, please report this")

// promise returns r's.
func (r Run) promise() promise {
	switch {
	case lossy(r.Aggregates):
		return likeReplicas
	case lossy(r.Gradients), lossy(r.State): // all workers are sent the same difference
		return sameReplicas
	}
	return sameWeights
}

// lossy reports whether a codec, whose text has been validated, may lose something. "" does not.
func lossy(text string) bool {
	if text == "" {
		return false
	}
	c, err := all.New(text)
	return err == nil && codecs.Lossy(c)
}

// kept returns an error that wraps ErrBroken if the run has not ended as r promises.
func (r Run) kept(result Result) error {
	switch p := r.promise(); {
	case p == sameWeights && !result.SameAsDirect:
		return fmt.Errorf("%s, %s: the weights differ from the weights of the direct run: %w", r.Wire, r.Name, ErrBroken)
	case p == sameReplicas && !result.ReplicasIdentical:
		return fmt.Errorf("%s, %s: the ranks' weights differ: %w", r.Wire, r.Name, ErrBroken)
	case p == likeReplicas && !(result.ReplicaDistance < maxDistance): // nor is NaN
		return fmt.Errorf("%s, %s: the ranks' weights differ by %.2g of their norm, want less than %v: %w", r.Wire, r.Name, result.ReplicaDistance, maxDistance, ErrBroken)
	}
	return nil
}

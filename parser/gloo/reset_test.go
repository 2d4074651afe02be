package gloo

import (
	"errors"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/gloo/gloosim"
	"github.com/gradproxy/gradproxy/tensor"
)

// Messages of an all-reduce that ends sooner than the ones before it, with segments as long as theirs, have been called
// phase 1 although they were phase 2.
// Nothing shows it until it has ended; then the verdict is taken back with an error.
func TestTakesBackAFalsePhase(t *testing.T) {
	require.OneGoroutine(t)
	const long, short = 7 << 18, 7 << 17 // elements: 8 and 4 segments of 917,504 bytes among 2 ranks
	calls := repeatSteps(40, func(s int) []gloosim.Call {
		switch {
		case s < 4:
			return []gloosim.Call{gloosim.Gradients("w", s, long-4, tensor.Float32)}
		case s == 4:
			return []gloosim.Call{gloosim.Gradients("w", s, short-2, tensor.Float32)}
		}
		return []gloosim.Call{gloosim.Gradients("b", s, 10, tensor.Float32)}
	})
	all, err := play(t, gloosim.Run(gloosim.Job{Ranks: 2, Tags: true, Calls: calls}), parser.Conn{Sums: parser.SumsGradients})
	wrong := 0
	for _, m := range all {
		if m.value.Role == tensor.Gradient && m.Phase == 2 {
			wrong++
		}
	}
	if wrong == 0 {
		t.Fatal("no phase was called false: the test is not what it says")
	}
	if !errors.Is(err, parser.ErrReset) {
		t.Errorf("%d messages of phase 2 were called gradients, and the error is %v", wrong, err)
	}

	// The same, but as long as before: nothing to take back.
	calls = repeatSteps(40, func(s int) []gloosim.Call {
		if s < 5 {
			return []gloosim.Call{gloosim.Gradients("w", s, long-4, tensor.Float32)}
		}
		return []gloosim.Call{gloosim.Gradients("b", s, 10, tensor.Float32)}
	})
	if _, err := play(t, gloosim.Run(gloosim.Job{Ranks: 2, Tags: true, Calls: calls}), parser.Conn{Sums: parser.SumsGradients}); err != nil {
		t.Error(err)
	}
}

// With constant tags the next message shows it.
func TestTakesBackAFalsePhaseUnderConstantTags(t *testing.T) {
	const long = 5 << 18 // elements: 6 segments of 873,816 bytes, the last one 873,800
	step := func(s, n int) []gloosim.Call {
		return []gloosim.Call{gloosim.Gradients("a", s, 5000, tensor.Float32), gloosim.Gradients("b", s, n, tensor.Float32), gloosim.Gradients("c", s, 9000, tensor.Float32)}
	}
	calls := repeatSteps(4, func(s int) []gloosim.Call {
		if s == 3 {
			return step(s, 4*873_816/4)
		}
		return step(s, long)
	})
	_, err := play(t, gloosim.Run(gloosim.Job{Ranks: 2, Calls: calls}), parser.Conn{Sums: parser.SumsGradients, Ranks: 2})
	if !errors.Is(err, parser.ErrReset) {
		t.Errorf("%v", err)
	}
}

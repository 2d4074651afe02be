package gloo

import "testing"

// repeats plays a text through findRepeat and returns the repetition found at its last letter.
func repeats(text string) repeat {
	i := len(text) - 1
	budget := 1 << 20
	return findRepeat(i, func(yield func(int) bool) {
		for j := i - 1; j >= 0; j-- {
			if text[j] == text[i] && !yield(j) {
				return
			}
		}
	}, func(a, b int) bool { return text[a] == text[b] }, &budget)
}

func TestFindRepeat(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  repeat
		whole bool
		phase int
	}{
		{"abcda", repeat{4, 0}, false, 0},
		{"abcdab", repeat{4, 1}, false, 1},
		{"abcdabcda", repeat{4, 4}, true, 0},
		{"xyzabcdabcda", repeat{4, 4}, true, 0},       // letters before the first repetition do not matter
		{"aaaba", repeat{2, 0}, false, 0},             // the shortest among equals
		{"aaabaaaba", repeat{4, 4}, true, 0},          // the repetition that reaches furthest back
		{"aaabaaabaa", repeat{4, 5}, true, 1},         // the place in the sequence goes on
		{"abcabcabxabcabcab", repeat{9, 7}, false, 7}, // after a surprise it has to pass twice again
		{"abcd", repeat{}, false, 0},
	} {
		got := repeats(c.text)
		if got != c.want || got.whole() != c.whole || got.period > 0 && got.phase() != c.phase {
			t.Errorf("%s: %+v, want %+v", c.text, got, c.want)
		}
	}
}

// The search ends when its budget does.
func TestFindRepeatIsBounded(t *testing.T) {
	n, calls := 100_000, 0
	budget := 1000
	findRepeat(n, func(yield func(int) bool) {
		for j := n - 1; j >= 0; j-- {
			if !yield(j) {
				return
			}
		}
	}, func(a, b int) bool { calls++; return true }, &budget)
	if calls > 1000 {
		t.Errorf("%d comparisons with a budget of 1000", calls)
	}
}

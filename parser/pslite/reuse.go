package pslite

// An index is the memory of an index array. There are two for each: one by size, with the hash of the last keys of that
// size, and one for all sizes, with the reuse score.
type index struct {
	hash  uint64
	score int8 // reuse score: above 0, keys of this array are expected to come again
}

// The reuse score of an array begins at initialScore, high enough that its second index has a Base as well. An
// index that came again raises the score by 2, another one lowers it by 1: a list that comes twice is worth holding.
const (
	initialScore = 2
	maxScore     = 4
)

// after returns the reuse score after keys that came again, or did not.
func after(score int8, again bool) int8 {
	if again {
		return min(score+2, maxScore)
	}
	return max(score-1, 0)
}

package tensor

// A Verdict is the content check's answer on a block.
type Verdict uint8

const (
	Fits         Verdict = iota // the block may lose something
	Outlier                     // the block must travel as it is, this time: its norm is unlike the norms before
	Near                        // the block must travel as it is: it is near an earlier value, and not near the last one
	Predicted                   // the block must travel as it is: it follows from the results of earlier sums
	Unproved                    // the block must travel as it is: trust is not earned, or was lost
	Repeats                     // the block is no gradient: it repeats an earlier value, and is not near the last one
	SingleSigned                // the block is no gradient: its elements have one sign, and earlier values had both
	OneSided                    // the block was no gradient: no element of the result lies below it, or none above
	Replicated                  // the block was no gradient: the result is a multiple of it, so that all ranks have the same
	Product                     // the block was no summand: nothing of it is in the result
	FirstWeights                // the block is no gradient: it is like the weights that the job broadcast at first
	Result                      // the block is no gradient: it is a multiple of the result of an earlier sum, which all ranks have
)

var verdictNames = [...]string{"fits", "outlier", "near an earlier sum", "follows from the results of earlier sums", "unproved", "repeats an earlier sum, and not the last one", "has elements of one sign only",
	"is a maximum, a minimum, or a sum of values of one sign", "sums the same of all ranks", "is a product", "is like the weights that the job has broadcast",
	"repeats the result of an earlier sum"}

// String returns the verdict in the words that users see.
func (v Verdict) String() string { return name(verdictNames[:], int(v)) }

// Foreign reports whether the block was found to be something else than a gradient.
func (v Verdict) Foreign() bool { return v >= Repeats }

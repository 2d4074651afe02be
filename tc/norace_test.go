//go:build !race

package tc

// raceDetector says whether the tests run with it.
const raceDetector = false

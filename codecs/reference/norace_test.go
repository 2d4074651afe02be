//go:build !race

package reference_test

const raceDetector = false

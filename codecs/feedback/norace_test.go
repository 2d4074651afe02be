//go:build !race

package feedback_test

const raceDetector = false

//go:build race

package feedback_test

const raceDetector = true // sync.Pool drops some of what is put into it

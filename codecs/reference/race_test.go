//go:build race

package reference_test

const raceDetector = true // sync.Pool drops some of what is put into it

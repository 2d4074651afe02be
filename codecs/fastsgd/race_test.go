//go:build race

package fastsgd

const raceDetector = true

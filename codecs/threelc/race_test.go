//go:build race

package threelc

const raceDetector = true

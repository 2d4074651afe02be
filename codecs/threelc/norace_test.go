//go:build !race

package threelc

const raceDetector = false

//go:build !race

package lossless

const raceDetector = false

//go:build race

package lossless

const raceDetector = true // sync.Pool drops some of what is put into it

//go:build !linux

package wansim

func newAlarm() (alarm, error) { return newTimerAlarm() }

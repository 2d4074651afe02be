//go:build !unix

package attacktest

import "time"

// Spent returns 0: it is not known here.
func Spent() time.Duration { return 0 }

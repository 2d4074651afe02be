package require

import "flag"

// ManyAtOnce has 8 parallel tests of this process run at the same time, on any number of cores, for packages whose
// tests wait for most of their time. A TestMain calls it before m.Run, which reads the flags: go test -parallel has the
// last word.
func ManyAtOnce() { flag.Set("test.parallel", "8") }

package quota

import "time"

var processStart = time.Now()

// sinceStart is a clock that costs little to read.
func sinceStart() time.Duration { return time.Since(processStart) }

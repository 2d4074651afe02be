package site

const (
	reserve = 64   // descriptors that are kept for all but connections and their pipes: carriers, the admin pages, logs
	fewest  = 1024 // descriptors that a process has, most often, where nobody has thought of it
)

// divide divides descriptors: each place is one, and each pipe, of which there are one at least, two. A connection has a place for
// what the app has opened, and where it is passed on a second one; that many pass through pipes at a time.
func divide(descriptors int) (places, pipes int) {
	pipes = max(min(descriptors/16, 256), 1)
	return max(descriptors-reserve-2*pipes, 1), pipes
}

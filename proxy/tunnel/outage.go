package tunnel

import "time"

// An outage is a time in which nothing comes back from a peer although bytes are under way to it, or in which there is
// no carrier. It is seen and said long before a carrier is given up (deadAfter), and changes nothing: no carrier and no
// stream ends by it.
//
// The witness is the other host's kernel, by the acknowledgements of TCP (LinkState.Waits, Silence): it answers while
// the process there is suspended, busy, or slow to read. So such times are no outages, nor is a time in which this
// process did not run, for the kernel here has taken the answers meanwhile. A long path has as long as its round trips
// take (LinkState.Patience). Where something on the way answers in the place of the other host, only deadAfter shows
// the outage.
type outage struct {
	began    time.Time // of the last sign of life; zero: there is no outage, nor one whose end is to be said
	over     time.Time // of the first sign of life after it; zero: it lasts
	replayed uint64    // bytes that had been sent again to the peer before it
	lost     int       // carriers lost during it
}

// lasts reports whether there is an outage now.
func (o *outage) lasts() bool { return !o.began.IsZero() && o.over.IsZero() }

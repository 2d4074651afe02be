// Package history remembers the traffic of a proxy: bytes of apps and of links, by peer and by job, over the last
// minutes, hour and day.
//
// A Recorder is given the counters once a second. It keeps rises, not counters, in rings of a fixed number of slots of
// 1 s, 10 s and 4 min, so its memory is bounded: a series takes 53 KB, and there are at most maxSeries. A slot in which
// the process did not run is missing, which is not the same as a slot in which nothing was sent. Save and Load carry
// the slots of 10 s and 4 min over a restart.
package history

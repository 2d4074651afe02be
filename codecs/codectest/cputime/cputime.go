// Package cputime is the clock that benchmarks of codecs read: a thread's processor time on Linux, so that other programs
// disturb their figures less. What other threads do for it, as the garbage collector's, does not count.
package cputime

// Package cputime is the clock that benchmarks of codecs read: a thread's processor time on Linux, so that other
// programs disturb their figures less. The work of other threads, such as the garbage collector's, does not count.
package cputime

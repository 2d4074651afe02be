// Package cputime is the clock that benchmarks of codecs read: processor time on Linux, so that other programs disturb their
// figures less.
package cputime

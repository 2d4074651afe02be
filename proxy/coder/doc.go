// Package coder applies codecs to blocks, for both ends and for tensors as for cached values: blocks of a slot take
// turns, a codec that fails has its block travel raw, and a panic in a codec stays an error of its slot. The short form
// of encodings that are mostly zeros ([ShortenBlock], [DecodeShort]) and the checksums that blocks keep ([Summed]) are
// here for both, too.
package coder

// Package coder applies codecs to blocks, at both ends, for the blocks of connections and of the value cache.
// The blocks of a slot take turns ([Turns]). If a codec fails, its block travels raw, and a panic in a codec is an
// error of its slot only. The package also has the short form of encodings that are mostly zeros ([ShortenBlock],
// [DecodeShort]), and the checksums that blocks keep ([Summed]).
package coder

// Package sketchedsgd is the codec after Sketched-SGD ([Ivkin et al.]): workers send a count sketch of their gradient,
// a server adds the sketches, finds the largest coordinates of the sum in it, asks all workers for the exact values
// there, and sends the k largest sums back. The codec does to a block as one worker and the server do when there are no
// other workers: the encoder sketches the block, finds candidates in its own sketch, and sends their k largest values,
// exactly. It exists so that a policy and the benchmarks can name the method and see which coordinates a sketch finds.
//
// It is not the paper's saving: with one worker no sketch needs to travel, a top-k of the block itself finds better
// coordinates in less time, and sums over workers, which the method saves on the way back, are made elsewhere. The
// exchange of workers and a server is a simulation, in integration/cmd/papers/sketched, that makes the paper's tables;
// it finds candidates by this package's [Plan] and [Picker].
//
// Candidates are the P·k largest estimates of a sketch (Algorithm 3, line 9), or HEAVYMIX's ([HeavyMix], Algorithm 1).
// Error feedback is Algorithm 2's accumulation.
//
// # Deviations from the paper
//
// Algorithm 1's ĝ_i >= ℓ²/k is read as ĝ_i² >= ℓ²/k, since gradients have both signs and the proof is of squares; if
// more than k pass, the k largest do. Coordinates with an estimate of 0 are no candidates of the P·k largest, and
// coordinates with a value of 0 are not sent.
//
// # State
//
// An Encoder counts its encodings, because HEAVYMIX draws by that number; every encoding can be decoded by itself.
//
// # Wire
//
// Everything is little-endian: coordinates, at most k, are their number as unsigned LEB128 and then, ascending, the
// Rice code of package keys; their values, binary32, follow. Numbers are finite.
//
// # Bounds
//
// Size: 4 bytes and a coordinate (1 byte at k = 0.01) for each value that is sent.
//
// Error: values that are sent are exact. With HEAVYMIX, E‖x-y‖² <= (1 - k/d)·‖x‖² over its draws, if the sketch's
// estimates hold, which a size of Θ(k log(d/δ)) assures with a probability of 1-δ (Lemma 1); with the top P·k,
// ‖x-y‖² <= ‖x‖².
//
// Time: O(r·d) for a sketch and for a choice from one. Memory: of an encoder while it runs, the sketch,
// and 4 bytes a value for the estimates.
//
// # Unsuited
//
// Blocks with a NaN, an infinity, or a magnitude over 2^128/(4·d), as sums of them might be infinite.
//
// [Ivkin et al.]: https://arxiv.org/abs/1903.04488
package sketchedsgd

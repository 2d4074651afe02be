// Package sketchedsgd is Sketched-SGD ([Ivkin et al.]): workers send a count sketch of their gradient, a server adds the
// sketches, finds the largest coordinates of the sum in it, asks all workers for the exact values there, and sends the k
// largest sums back. A worker's traffic depends neither on the number of workers nor, but for a logarithm, on the length of the
// gradient.
//
// # The two halves
//
// A [Worker] and a [Server] exchange messages and nothing else. A step of Algorithm 3, with the lines that each call does:
//
//	worker  Sketch      u <- m·u + g; v <- v + u; S_i = sketch of v            lines 5, 6, 7    sketch      up
//	server  AddSketch   S <- S + S_i                                           line 8
//	        Candidates  the P·k coordinates of the largest estimates           line 9           candidates  down
//	worker  Values      v at the candidates                                    line 10          values      up
//	server  AddValues   sums of them                                           line 10
//	        Update      the k largest sums                                     line 11          update      down
//	worker  Update      v, u <- 0 where g̃ is not 0                             line 13
//
// Algorithm 2 is that with HEAVYMIX ([HeavyMix], Algorithm 1) in the place of the P·k largest, without momentum, and with
// v <- v - g̃ ([Mean]); all of these are options of their own. Weights are not this package's: line 12, w <- w - η·g̃, is
// the caller's. A [Simulation] runs W workers and a server in one process, and beside them the paper's baselines.
//
// # Deviations from the paper
//
// The server adds sketches and leaves out 1/W, which changes no choice; an update holds sums and the number of
// workers. Algorithm 1's ĝ_i >= ℓ²/k is read as ĝ_i² >= ℓ²/k, since gradients have both signs and the proof is of squares; if
// more than k pass, the k largest do. Coordinates with an estimate of 0 are no candidates of the P·k largest, and
// coordinates with a sum of 0 are in no update. Momentum factor masking leaves small tensors alone: it would zero all of their
// velocity (section 5.3 says so of k = d).
//
// # At proxies
//
// The halves are for proxies at several sites, between workers and the server that adds their gradients up. The proxy at each site
// with workers holds a Worker for each tensor of each of its workers; or, since sketches are linear, one for the site,
// which it gives the sum of its workers' gradients. One proxy, at the site of the parameter server, holds the tensor's
// Server. A worker's proxy takes the gradient off its connection, as it would to code it, and sends a sketch and then
// values; the server's proxy delivers the update once, in the place of one worker's gradient, and zeros in the place of
// the others'. Where replicas add up among themselves (all-reduce), any one site's proxy holds the Server, and each proxy
// delivers the update in the place of the sum.
//
// All must know the same Params beforehand. Messages have the number of their step, so that a lost or repeated one is an error
// ([ErrOrder]) and never a wrong sum. All messages of all workers are needed: a worker that
// is gone ends the exchange, and its residual with it unless the site saves that ([Worker.Residual]).
//
// # As a codec
//
// The codec sketchedsgd does to a block as one Worker and the Server do when there are no other workers: the encoder
// sketches the block, finds candidates in its own sketch, and sends their k largest values, exactly. It exists so that a
// policy and the benchmarks can name the method and see which coordinates a sketch finds. It is not the paper's saving:
// with one worker no sketch needs to travel, a top-k of the block itself finds better coordinates in less time, and sums
// over workers, which the method saves on the way back, are made elsewhere. Error feedback is Algorithm 2's accumulation.
//
// # State
//
// Worker: v, and with momentum u, of d float32 each, at each Sketch and Update. Server: none between steps. Codec:
// encoders count their encodings, for what HEAVYMIX draws; every encoding can be decoded by itself.
//
// # Wire
//
// Everything is little-endian. All messages begin with
//
//	kind  1 byte
//	step  4 bytes: 0 at first, modulo 2^32
//
// and go on, by kind:
//
//	2 sketch         up: as package countsketch says
//	3 candidates     down: coordinates
//	4 values         up: 4 bytes a candidate, binary32
//	5 update         down: workers, 4 bytes; coordinates, at most k of the candidates; their sums, binary32
//	6 whole tensor   up, of a small tensor: d values, binary32
//	7 whole update   down, of a small tensor: workers, 4 bytes; d sums, binary32
//
// where coordinates are their number as unsigned LEB128 and then, ascending, the Rice code of package keys. The codec's
// encoding is coordinates, at most k, and their values, binary32. Numbers are finite.
//
// # Bounds
//
// Size: a worker's traffic is r·c + P·k values up and k down, and heads and coordinates beside them ([Params.Cost]). The
// codec's is 4 bytes and a coordinate (1 byte at k = 0.01) for each value that is sent.
//
// Error: values that are sent are exact. With HEAVYMIX, E‖x-y‖² <= (1 - k/d)·‖x‖² over its draws, if the sketch's
// estimates hold, which a size of Θ(k log(d/δ)) assures with a probability of 1-δ (Lemma 1); with the top P·k,
// ‖x-y‖² <= ‖x‖².
//
// Time: O(r·d) for a sketch and for a choice from one. Memory: of a Server, and of an encoder while it runs, the sketch,
// and 4 bytes a value for the estimates.
//
// # Unsuited
//
// Gradients, and blocks, with a NaN, an infinity, or a magnitude over 2^128/(4·d), as sums of them might be infinite.
//
// [Ivkin et al.]: https://arxiv.org/abs/1903.04488
package sketchedsgd

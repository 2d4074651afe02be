// Package sketched is the exchange of Sketched-SGD ([Ivkin et al.]) between workers and a server, in one process, for
// the paper's tables: workers send a count sketch of their gradient, a server adds the sketches, finds the largest
// coordinates of the sum in it, asks all workers for the exact values there, and sends the k largest sums back. A
// worker's traffic depends neither on the number of workers nor, but for a logarithm, on the length of the gradient.
// The codec is package sketchedsgd.
//
// # The two halves
//
// A [Worker] and a [Server] exchange messages and nothing else. A step of Algorithm 3, with the lines that each call
// does:
//
//	worker  Sketch      u <- m·u + g; v <- v + u; S_i = sketch of v            lines 5, 6, 7    sketch      up
//	server  AddSketch   S <- S + S_i                                           line 8
//	        Candidates  the P·k coordinates of the largest estimates           line 9           candidates  down
//	worker  Values      v at the candidates                                    line 10          values      up
//	server  AddValues   sums of them                                           line 10
//	        Update      the k largest sums                                     line 11          update      down
//	worker  Update      v, u <- 0 where g̃ is not 0                             line 13
//
// Algorithm 2 is that with HEAVYMIX ([sketchedsgd.HeavyMix], Algorithm 1) in the place of the P·k largest, without
// momentum, and with v <- v - g̃ ([Mean]); all of these are options of their own. Weights are not this package's: line
// 12, w <- w - η·g̃, is the caller's. A [Simulation] runs W workers and a server in one process, and beside them the
// paper's baselines.
//
// # Deviations from the paper
//
// Beside the deviations that package sketchedsgd names: the server adds sketches and leaves out 1/W, which changes no
// choice; an update holds sums and the number of workers. Coordinates with a sum of 0 are in no update. Momentum factor
// masking leaves small tensors alone: it would zero all of their velocity (section 5.3 says so of k = d).
//
// # Order
//
// All must know the same parameters beforehand. Messages have the number of their step, so that a lost or repeated one
// is an error ([ErrOrder]) and never a wrong sum. All messages of all workers are needed: a worker that is gone ends
// the exchange.
//
// # State
//
// Worker: v, and with momentum u, of d float32 each, at each Sketch and Update. Server: none between steps.
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
// where coordinates are their number as unsigned LEB128 and then, ascending, the Rice code of package keys. Numbers are
// finite.
//
// # Bounds
//
// Size: a worker's traffic is r·c + P·k values up and k down, and heads and coordinates beside them ([CostOf]).
//
// # Unsuited
//
// Gradients with a NaN, an infinity, or a magnitude over 2^128/(4·d), as sums of them might be infinite.
//
// [Ivkin et al.]: https://arxiv.org/abs/1903.04488
package sketched

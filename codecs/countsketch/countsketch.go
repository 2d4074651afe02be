// Package countsketch is the count sketch ([Charikar, Chen and Farach-Colton]): a table of r rows by c columns from
// which every coordinate of a vector g can be estimated to within a fraction of g's norm, however long g is, and which
// is linear: S(a) + S(b) = S(a+b). Workers of Sketched-SGD send it instead of their gradients ([Ivkin et al.], section
// 3).
//
// Each row r has two hash functions of a coordinate i, a bucket h_r(i) in [0, c) and a sign s_r(i), +1 or -1. With them
//
//	insert   cell[r][h_r(i)] += s_r(i)·g_i                      for every row r
//	query    ĝ_i = median over r of s_r(i)·cell[r][h_r(i)]
//	norm     ‖g‖² ≈ median over r of Σ cell[r][j]²               ([Alon, Matias and Szegedy])
//
// # Hash functions
//
// Buckets are 2-wise independent: multiply-shift ([Thorup]). With a and b of 64 bits,
//
//	h(i) = ⌊c·⌊(a·i + b mod 2^64) / 2^32⌋ / 2^32⌋
//
// The inner part is exactly 2-wise independent for keys of 32 bits; the outer one takes columns uniformly to within a
// fraction of c/2^32. There is no division, and the next neighbour's a·i + b is an addition away.
//
// Signs are 4-wise independent (even 5-wise): tabulation of the two 16-bit halves of i and of their sum ([Thorup and
// Zhang]),
//
//	s(i) = T0[i>>16] xor T1[i&65535] xor T2[(i>>16) + (i&65535)]
//
// with tables of 16 bits, in which bit r belongs to row r (1: negative), so that one look-up gives the signs of all
// rows, and signs of neighbours lie side by side. Bits of different rows are independent as the tables' are.
//
// Sequence t = 0, 1, 2, 3 of a seed is word(t, i) = mix(mix(seed + (t+1)·G) + (i+1)·G) for i = 0, 1, …, where G is
// 0x9e3779b97f4a7c15 and mix SplitMix64's output function. Row r's a and b are words 2r and 2r+1 of sequence 0; Tt is
// sequence t+1, four entries to a word, the lowest bits first. So a seed is all that two ends need to share.
//
// Neither independence holds against an attacker with the seed: it is not a secret, and a gradient made for it can hide
// a coordinate.
//
// # Wire
//
//	rows      1 byte: odd, 1 to 15
//	width     1 byte: of a cell, 4 (binary32) or 2 (binary16) bytes
//	exponent  2 bytes: two's complement e, -163 to 113; cells of 2 bytes are in units of 2^e; for cells of 4 it is 0
//	columns   4 bytes
//	seed      8 bytes
//	cells     rows·columns·width bytes, row after row, all finite
//
// Everything is little-endian. Append chooses e such that the largest cell lies in [2^14, 2^15] units, so cells of 2
// bytes do not overflow, cells of at least 2^-28 of the largest keep 11 bits, and a gradient's own scale does not
// matter.
//
// # Bounds
//
// One row's estimate has mean g_i and a variance of at most ‖g‖²/c. So it is off by more than √(3/c)·‖g‖ with a
// probability of at most 1/3 (Chebyshev), and the median over r rows with a probability that falls exponentially in r:
// with c = Θ(1/ε) and r = Θ(log(d/δ)), all d estimates satisfy ĝ_i² = g_i² ± ε‖g‖² with a probability of 1-δ. A row's
// norm has a variance of at most 2‖g‖⁴/c; at c = 64, Chebyshev keeps it within a factor of 1 ± 0.5 with a probability
// of at least 7/8, before the median.
//
// Sums are float32's: S(a) + S(b) has the bits of S(a+b) where no sum is rounded (integers below 2^24, say), and
// elsewhere differs in their rounding. Time: O(r) a coordinate. Memory: 4·r·c bytes; hashes up to 384 KiB, shared;
// scratch of Insert 64 or 128 KiB and of Query 16·r or 256·r KiB, the larger ones for tables of more than 1 MiB.
//
// [Charikar, Chen and Farach-Colton]: https://doi.org/10.1007/3-540-45465-9_59
// [Ivkin et al.]: https://arxiv.org/abs/1903.04488
// [Thorup]: https://arxiv.org/abs/1504.06804
// [Thorup and Zhang]: https://doi.org/10.1137/100800774
//
// [Alon, Matias and Szegedy]: https://doi.org/10.1006/jcss.1997.1545
package countsketch

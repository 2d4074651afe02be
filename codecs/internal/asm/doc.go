// Package asm holds the generator of the assembly kernels of tensor and codecs (gen, a module of its own, so that
// gradproxy does not depend on avo) and the helpers with which packages test theirs (asmtest).
//
// A kernel stays only if a figure of docs/numbers.md is at least 5 % worse without it. Measured on Zen 3 (AVX2), each
// figure as a part of itself with that package's kernels off:
//
//	codecs/threelc             3lc encodes at 0.28 of its speed, 3lc(s=1.75) at 0.31
//	codecs/block               int8 encodes at 0.40, without feedback at 0.34, int4 at 0.46
//	codecs/lossless            lossless encodes at 0.84, lossless(level=fast) at 0.38, of bfloat16 at 0.31
//	codecs/internal/magnitude  topk encodes at 0.31, topk(threshold=sampled) at 0.24
//	codecs/internal/absmax     3lc, int8 and int4 encode at 0.68
//	codecs/internal/arith      bf16 encodes at 0.67, fp16 at 0.71, onebit at 0.92
//	codecs/countsketch         a sketch of 5 rows takes values in at 0.43 of its speed and answers at 0.37
//	tensor                     the content check runs at 0.14, int8 of bfloat16 encodes at 0.70
//
// The function that calls a kernel says how fast a codec is without this kernel alone, with AVX-512 and with AVX2
// (GODEBUG=cpu.avx512f=off), measured on Zen 4: without a kernel that makes it twice as fast, at 0.5 of its speed. Of
// each the best of two to seven runs counts, with the kernel and without it in turn, of gradproxy bench codecs --rounds
// 7 --mib 32, with --warmup 200 on cnn and without feedback on normal. The kernels of codecs/keys were measured so
// only. The kernels of float16 and roundBrain were measured on Zen 5: medians of six rounds of the commands that
// docs/numbers.md names.
package asm

//go:generate go -C gen run . ../../../..

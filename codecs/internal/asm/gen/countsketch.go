package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func countsketch(k *kernel) {
	for _, tier := range []string{"AVX2", "AVX512"} {
		insertKernel(k, tier)
		queryKernel(k, tier)
		medianKernel(k, tier)
		signsKernel(k, tier)
	}
}

// insertKernel takes 16 coordinates of each run in turn: it computes their signed values and adds them one after
// another, so that a cell which two of them share gets both in order. Accesses to memory bound its speed, so values go
// through none but the cells. Columns do, and since they are slow to read when just stored, they are stored a round of
// the runs before.
func insertKernel(k *kernel, tier string) {
	const maxRuns = 4
	k.function("insert"+tier, "(row, x *float32, signs *uint16, n int, key, mul, columns, up uint64, stride, runs, step int)",
		"insert"+tier+" is insert for runs of coordinates, 1 to 4 that begin stride after each other. In each of n rounds, at least 1,",
		"it takes 16 of each run, and goes on step. It takes every key's column for one of the row.")
	_, lanes := k.vectors(tier)
	row, x, n := k.arg("row"), k.arg("x"), k.arg("n")
	stride, runs, back := k.arg("stride"), k.arg("runs"), k.arg("step") // back is from behind the last run to the next round
	all := k.GP64()
	k.MOVQ(runs, all)
	k.IMULQ(stride, all)
	k.SUBQ(all, back)
	h, signs := k.hashing(tier, stride), k.rowSigns(tier)
	nextRound := h.times(back)

	slots, slot, run := k.AllocLocal(4*tileKeys*maxRuns), k.GP64(), k.GP64()
	h.buffer = operand.Mem{Base: slot}
	eachRun := func(body func()) {
		k.LEAQ(slots, slot)
		k.MOVQ(runs, run)
		k.loop(run, 1, func() {
			body()
			h.keep(h.next())
			k.ADDQ(operand.Imm(4*tileKeys), slot)
		})
		h.skip(nextRound)
	}
	eachRun(func() {})
	k.loop(n, 1, func() {
		eachRun(func() {
			for from := 0; from < tileKeys; from += lanes {
				s := signs.of(from, operand.Mem{Base: x, Disp: 4 * from})
				k.eachLane(s, func(i int, v reg.Register) {
					cell := operand.Mem{Base: row, Index: h.at(from + i), Scale: 4}
					k.VADDSS(cell, v, v)
					k.VMOVSS(v, cell)
				})
			}
			k.LEAQ(operand.Mem{Base: x, Index: stride, Scale: 4}, x)
			k.LEAQ(operand.Mem{Base: signs.from, Index: stride, Scale: 2}, signs.from)
		})
		k.LEAQ(operand.Mem{Base: x, Index: back, Scale: 4}, x)
		k.LEAQ(operand.Mem{Base: signs.from, Index: back, Scale: 2}, signs.from)
	})
	k.VZEROUPPER()
	k.RET()
}

// queryKernel brings together the cells of 16 coordinates.
func queryKernel(k *kernel, tier string) {
	k.function("query"+tier, "(dst *int32, row *float32, signs *uint16, n int, key, mul, columns, up uint64)",
		"query"+tier+" is query for n coordinates, a multiple of 16 above 0. It takes every key's column for one of the row.")
	vector, lanes := k.vectors(tier)
	dst, row, n, step := k.arg("dst"), k.arg("row"), k.arg("n"), k.GP64()
	k.MOVQ(operand.U32(tileKeys), step)
	h, signs := k.hashing(tier, step), k.rowSigns(tier)
	k.loop(n, tileKeys, func() {
		h.keep(h.next())
		for from := 0; from < tileKeys; from += lanes {
			cells := vector()
			k.collect(cells, func(i int) operand.Mem {
				return operand.Mem{Base: row, Index: h.at(from + i), Scale: 4}
			})
			v := signs.of(from, cells)
			k.ordered(v)
			k.store(v, operand.Mem{Base: dst, Disp: 4 * from})
		}
		k.ADDQ(operand.Imm(4*tileKeys), dst)
		signs.next()
	})
	k.VZEROUPPER()
	k.RET()
}

// ordered makes of each float32's bits the integer that compares as it does, or the other way round.
func (k *kernel) ordered(v reg.VecVirtual) {
	m := k.like(v)
	k.VPSRAD(operand.Imm(31), v, m)
	k.VPSRLD(operand.Imm(1), m, m)
	k.xor(m, v, v)
}

// medianKernel writes the kernel for five rows, by the steps of median5.
func medianKernel(k *kernel, tier string) {
	const rows = 5
	name := "median5" + tier
	k.function(name, "(dst *float32, rows *[15][]int32, n int)",
		name+" sets n elements of dst, a positive multiple of 16, to the medians of the first five rows.")
	vector, lanes := k.vectors(tier)
	dst, list, n := k.arg("dst"), k.arg("rows"), k.arg("n")
	in := make([]reg.GPVirtual, rows)
	for i := range in {
		in[i] = k.GP64()
		k.MOVQ(operand.Mem{Base: list, Disp: 24 * i}, in[i])
	}
	k.loop(n, 16, func() {
		for at := 0; at < 16; at += lanes {
			v := make([]reg.VecVirtual, rows)
			for i := range v {
				v[i] = vector()
				k.load(operand.Mem{Base: in[i], Disp: 4 * at}, v[i])
			}
			spare := vector()
			// sort makes a the lesser and b the greater of both.
			sort := func(a, b reg.VecVirtual) {
				k.VPMINSD(a, b, spare)
				k.VPMAXSD(a, b, b)
				k.copy(spare, a)
			}
			sort(v[0], v[1])
			sort(v[3], v[4])
			k.VPMAXSD(v[0], v[3], v[0])
			k.VPMINSD(v[1], v[4], v[1])
			sort(v[0], v[1])
			k.VPMINSD(v[1], v[2], v[2])
			k.VPMAXSD(v[0], v[2], v[2])
			k.ordered(v[2])
			k.store(v[2], operand.Mem{Base: dst, Disp: 4 * at})
		}
		for _, p := range append(in, dst) {
			k.ADDQ(operand.Imm(64), p)
		}
	})
	k.VZEROUPPER()
	k.RET()
}

func signsKernel(k *kernel, tier string) {
	k.function("signs"+tier, "(dst, a, b *uint16, n int, s uint32)",
		"signs"+tier+" sets n of dst, a multiple of 64 above 0, to a[i]^b[i]^s, where both halves of s are the same.")
	vector, lanes := k.vectors(tier)
	dst, a, b, n := k.arg("dst"), k.arg("a"), k.arg("b"), k.arg("n")
	s := vector()
	k.VBROADCASTSS(k.parameter("s"), s)
	k.loop(n, 64, func() {
		for at := 0; at < 128; at += 4 * lanes {
			v := vector()
			k.xor(operand.Mem{Base: a, Disp: at}, s, v)
			k.xor(operand.Mem{Base: b, Disp: at}, v, v)
			k.store(v, operand.Mem{Base: dst, Disp: at})
		}
		for _, p := range []reg.GPVirtual{dst, a, b} {
			k.ADDQ(operand.U32(128), p)
		}
	})
	k.VZEROUPPER()
	k.RET()
}

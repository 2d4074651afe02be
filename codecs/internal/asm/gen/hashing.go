package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tileKeys is how many coordinates' keys are hashed at a time.
const tileKeys = 16

// hashing holds the registers with the keys of tileKeys coordinates, and with the constants that make columns of them.
type hashing struct {
	k             *kernel
	tier          string
	lanes         int              // of 32 bits
	keys          []reg.VecVirtual // of coordinates 0, 2, 4, …, then 1, 3, 5, …, of as many as there are lanes; and so on
	mul           reg.GPVirtual
	step, columns reg.VecVirtual
	odd           operand.Op  // with AVX-512, every second lane
	buffer        operand.Mem // for the columns, 32 bits each
}

// hashing makes the first keys from the arguments key, mul and columns. The next keys are of the coordinates step on.
func (k *kernel) hashing(tier string, step reg.GPVirtual) *hashing {
	vector, lanes := k.vectors(tier)
	key, mul := k.arg("key"), k.arg("mul")
	h := &hashing{k: k, tier: tier, lanes: lanes, mul: mul, columns: vector(), buffer: k.AllocLocal(8 * tileKeys)}
	for i := range tileKeys {
		k.MOVQ(key, h.buffer.Offset(i/lanes*8*lanes+i%2*4*lanes+i%lanes/2*8))
		k.ADDQ(mul, key)
	}
	for at := 0; at < 8*tileKeys; at += 4 * lanes {
		v := vector()
		k.load(h.buffer.Offset(at), v)
		h.keys = append(h.keys, v)
	}
	h.step = h.times(step)
	k.VPBROADCASTQ(k.parameter("columns"), h.columns)
	if tier != "AVX2" {
		odd, r := k.K(), k.GP32()
		k.MOVL(operand.U32(0xaaaa), r)
		k.KMOVW(r, odd)
		h.odd = odd
	}
	return h
}

// times returns the difference between keys of coordinates that many apart.
func (h *hashing) times(coordinates reg.GPVirtual) reg.VecVirtual {
	k := h.k
	vector, _ := k.vectors(h.tier)
	more, r := vector(), k.GP64()
	k.MOVQ(coordinates, r)
	k.IMULQ(h.mul, r)
	k.MOVQ(r, h.buffer)
	k.VPBROADCASTQ(h.buffer, more)
	return more
}

// skip adds a result of times to the keys.
func (h *hashing) skip(more reg.VecVirtual) {
	for _, key := range h.keys {
		h.k.VPADDQ(more, key, key)
	}
}

// next returns the columns of the next keys, 32 bits each.
func (h *hashing) next() (columns []reg.VecVirtual) {
	k := h.k
	vector, _ := k.vectors(h.tier)
	for i := 0; i < len(h.keys); i += 2 {
		even, odd := vector(), vector()
		for j, v := range []reg.VecVirtual{even, odd} {
			k.VPSRLQ(operand.Imm(32), h.keys[i+j], v)
			k.VPMULUDQ(h.columns, v, v)
			k.VPADDQ(h.step, h.keys[i+j], h.keys[i+j])
		}
		k.VPSRLQ(operand.Imm(32), even, even)
		if h.tier == "AVX2" {
			k.VPBLENDD(operand.Imm(0xaa), odd, even, even)
		} else {
			k.VMOVDQA32(odd, h.odd, even)
		}
		columns = append(columns, even)
	}
	return columns
}

// keep puts columns where at finds them.
func (h *hashing) keep(columns []reg.VecVirtual) {
	for i, v := range columns {
		h.k.store(v, h.buffer.Offset(4*h.lanes*i))
	}
}

// at returns a register with the kept column i.
func (h *hashing) at(i int) reg.GPVirtual {
	column := h.k.GP64()
	h.k.MOVL(h.buffer.Offset(4*i), column.As32())
	return column
}

// rowSigns are a row's signs of coordinates, which lie side by side with the signs of the other rows.
type rowSigns struct {
	k        *kernel
	tier     string
	from     reg.GPVirtual
	up, sign reg.VecVirtual
}

// rowSigns makes them of the arguments signs and up.
func (k *kernel) rowSigns(tier string) *rowSigns {
	vector, _ := k.vectors(tier)
	s := &rowSigns{k, tier, k.arg("signs"), k.XMM(), k.splat32(vector(), 1<<31)}
	k.VMOVQ(k.parameter("up"), s.up)
	return s
}

// of returns values with the signs of the coordinates from i on.
func (s *rowSigns) of(i int, values operand.Op) reg.VecVirtual {
	k := s.k
	vector, _ := k.vectors(s.tier)
	v := vector()
	k.VPMOVZXWD(operand.Mem{Base: s.from, Disp: 2 * i}, v)
	k.VPSLLD(s.up, v, v)
	if s.tier == "AVX2" {
		k.VPAND(s.sign, v, v)
		k.VPXOR(values, v, v)
	} else {
		k.VPTERNLOGD(operand.Imm(0x6a), values, s.sign, v) // v&sign ^ values
	}
	return v
}

func (s *rowSigns) next() { s.k.ADDQ(operand.Imm(2*tileKeys), s.from) }

// eachLane calls f with each 32-bit lane of v, brought to the lowest of a register that f may spoil.
func (k *kernel) eachLane(v reg.VecVirtual, f func(i int, lane reg.Register)) {
	quarters := []reg.Register{v.AsX()} // the others come from v before f spoils it
	for i := 1; i < int(v.Size())/16; i++ {
		quarter := k.XMM()
		if v.Size() == 64 {
			k.VEXTRACTI32X4(operand.U8(i), v, quarter)
		} else {
			k.VEXTRACTI128(operand.U8(i), v, quarter)
		}
		quarters = append(quarters, quarter)
	}
	for i, quarter := range quarters {
		lanes := [4]reg.Register{quarter, k.XMM(), k.XMM(), k.XMM()}
		for j := 1; j < 4; j++ {
			k.VPSHUFD(operand.U8(j), quarter, lanes[j])
		}
		for j, lane := range lanes {
			f(4*i+j, lane)
		}
	}
}

// collect sets the 32-bit lanes of v to the words at from(0), from(1), ….
func (k *kernel) collect(v reg.VecVirtual, from func(i int) operand.Mem) {
	for i := range int(v.Size()) / 16 {
		quarter := k.XMM()
		k.VMOVD(from(4*i), quarter)
		for j := 1; j < 4; j++ {
			k.VPINSRD(operand.U8(j), from(4*i+j), quarter, quarter)
		}
		switch {
		case i == 0:
			k.VMOVDQA(quarter, v.AsX())
		case v.Size() == 64:
			k.VINSERTI32X4(operand.U8(i), quarter, v, v)
		default:
			k.VINSERTI128(operand.U8(i), quarter, v, v)
		}
	}
}

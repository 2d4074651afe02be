//go:build amd64 || arm64

package probe

import (
	"debug/elf"
	"encoding/hex"
	"testing"
)

// The place of a process group's counter is read out of nextTag's code.
func TestCounterOf(t *testing.T) {
	for name, x := range map[string]struct {
		machine elf.Machine
		code    string
		want    uint32 // 0: an error
	}{
		"2.15 on x86":          {elf.EM_X86_64, "53 4889fb e857ac62fa 8b83f4000000 8d5001 8993f4000000 5b c3", 0xf4},
		"1.13 on x86":          {elf.EM_X86_64, "8b87ac000000 8d5001 8997ac000000 c3", 0xac},
		"two counters":         {elf.EM_X86_64, "8b87ac000000 8d5001 8997ac000000 8b87b0000000 c3", 0},
		"written elsewhere":    {elf.EM_X86_64, "8b87ac000000 8d5001 8997b0000000 c3", 0},
		"never written":        {elf.EM_X86_64, "8b87ac000000 c3", 0},
		"64 bits wide":         {elf.EM_X86_64, "488b87ac000000 488d5001 488997ac000000 c3", 0},
		"too far":              {elf.EM_X86_64, "8b87ac000100 8d5001 8997ac000100 c3", 0},
		"arm64":                {elf.EM_AARCH64, "e10300aa 20f440b9 02040011 22f400b9 c0035fd6", 0xf4},
		"2.12 on arm64":        {elf.EM_AARCH64, "e10300aa 00d440b9 02040011 22d400b9 c0035fd6", 0xd4},
		"2.14 on arm64":        {elf.EM_AARCH64, "fd7bbea9 fd030091 f30b00f9 f30300aa 20368496 60f640b9 01040011 61f600b9 f30b40f9 fd7bc2a8 c0035fd6", 0xf4},
		"2.15 on arm64":        {elf.EM_AARCH64, "fd7bbea9 a1b0ff90 214444f9 fd030091 f30b00f9 f30300aa 20003fd6 60f640b9 01040011 61f600b9 f30b40f9 fd7bc2a8", 0xf4},
		"arm64, never written": {elf.EM_AARCH64, "20f440b9 02040011 c0035fd6", 0},
		"another machine":      {elf.EM_RISCV, "8b87ac000000 8d5001 8997ac000000 c3", 0},
		"nothing":              {elf.EM_X86_64, "", 0},
	} {
		var hexadecimal []byte
		for _, c := range []byte(x.code) {
			if c != ' ' {
				hexadecimal = append(hexadecimal, c)
			}
		}
		code, err := hex.DecodeString(string(hexadecimal))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := counterOf(code, x.machine); got != x.want || (err == nil) != (x.want != 0) {
			t.Errorf("%s: %#x %v, want %#x", name, got, err, x.want)
		}
	}
}

// A probe lies behind the mark of a jump's target, so that the kernel need not single-step it.
func TestEntryOf(t *testing.T) {
	x := function{offset: 100}
	marked, plain := []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, []byte{0x55, 0x48, 0x89, 0xe5}
	for _, c := range []struct {
		code    []byte
		machine elf.Machine
		want    uint64
	}{{marked, elf.EM_X86_64, 104}, {plain, elf.EM_X86_64, 100}, {marked, elf.EM_AARCH64, 100}, {marked[:3], elf.EM_X86_64, 100}} {
		if got := x.entryOf(c.code, c.machine); got != c.want {
			t.Errorf("% x on %v: %d, want %d", c.code, c.machine, got, c.want)
		}
	}
}

package parsertest

import "github.com/gradproxy/gradproxy/parser"

// Fold writes an exchange as bytes, for fuzzing: each piece, of at most 32,767 bytes, as its side in the top bit of two
// bytes, its length in the others, and its bytes.
func Fold(x Exchange) (b []byte) {
	for _, t := range x {
		for rest := t.Bytes; len(rest) > 0; {
			n := min(len(rest), 0x7fff)
			b = append(b, byte(t.From)<<7|byte(n>>8), byte(n))
			b = append(b, rest[:n]...)
			rest = rest[n:]
		}
	}
	return b
}

// Unfold reverses Fold, and makes an exchange of any other bytes as well. It shares b's memory.
func Unfold(b []byte) (x Exchange) {
	for len(b) > 2 {
		from, n := parser.Side(b[0]>>7), int(b[0]&0x7f)<<8|int(b[1])
		n = min(n, len(b)-2)
		x = append(x, Piece{From: from, Bytes: b[2 : 2+n]})
		b = b[2+n:]
	}
	return x
}

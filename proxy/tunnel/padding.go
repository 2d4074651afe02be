package tunnel

// Padding hides from an observer of the network how many bytes streams carry. A burst has the bytes that a carrier
// sends between two waits of its writer. PAD records at the end of a burst with DATA make its length a multiple of
// Config.Pad; the receiver drops them. Bursts without DATA, such as acknowledgements, are not padded. So that
// their length does not depend on how much a stream has carried, WINDOW and DONE have long headers for a peer to which
// DATA is padded.
//
// The length of the burst counts all its records. TLS writes records of 16 KiB whatever the tunnel's are
// (tlsLink.coalesce), since their lengths are in clear.

const (
	minPad = 1 << 10
	maxPad = 256 << 10 // Config.Pad at most
)

// A padder counts the bytes that a carrier sends in a burst. The zero padder pads nothing.
type padder struct {
	step  int  // Config.Pad; 0: the peer does not know PAD, or none is asked for
	burst int  // bytes since the burst began
	full  bool // DATA is among them
}

// next appends PAD records to dst, which is empty, up to a batch of them; none: the burst is as long as it should be,
// and over.
func (p *padder) next(dst []byte) []byte {
	if p.step == 0 || !p.full {
		p.burst, p.full = 0, false
		return dst
	}
	for len(dst)+headerLen+smallBody <= batchSize {
		missing := (p.step - (p.burst+len(dst))%p.step) % p.step
		if missing == 0 {
			break
		}
		if missing < headerLen {
			missing += p.step
		}
		n := min(missing, headerLen+smallBody)
		if rest := missing - n; rest > 0 && rest < headerLen {
			n -= headerLen
		}
		dst = header{kind: kindPad, length: n - headerLen}.append(dst)
		dst = append(dst, zeros[:n-headerLen]...)
	}
	if len(dst) == 0 {
		p.burst, p.full = 0, false
	}
	return dst
}

// zeros is the body of PAD records.
var zeros [smallBody]byte

package proxy

import "testing"

// The kernel's buffers towards apps that do not read are bounded together, from the first connection on, but for the
// least that a connection needs.
func TestSendBuffers(t *testing.T) {
	for _, memory := range []int64{16 << 20, 256 << 20, 4 << 30} {
		total := int64(0)
		for n := range int64(1000) {
			b := int64(sendBuffer(memory, n))
			switch {
			case b == 0:
				total = 4 << 20 * (n + 1) // the kernel's own choice
			case b < 64<<10:
				t.Fatalf("connection %d has %d bytes", n, b)
			default:
				total = 2 * b * (n + 1) // if all had as much as the last one
			}
			if minimum := int64(2 * 64 << 10 * 1000); total > max(memory, minimum) {
				t.Fatalf("%d connections of a proxy with %d bytes may have %d bytes of buffers", n+1, memory, total)
			}
		}
	}
}

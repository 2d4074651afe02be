package site

import (
	"testing"

	"github.com/gradproxy/gradproxy/proxy"
)

// The shares and the reserve never are more than there is, down to where nothing would be left.
func TestDivide(t *testing.T) {
	const gate = proxy.PollGateDescriptors
	for descriptors, want := range map[int]shares{
		1 << 20: {1<<20 - 64 - 512 - 1024*gate, 256, 1024},
		4096:    {4096 - 64 - 512 - 256*gate, 256, 256},
		1024:    {832 - 64*gate, 64, 64},
		67:      {1, 4, 4},
		1:       {1, 1, 1},
	} {
		if got := divide(descriptors); got != want {
			t.Errorf("divide(%d) = %+v, want %+v", descriptors, got, want)
		}
	}
}

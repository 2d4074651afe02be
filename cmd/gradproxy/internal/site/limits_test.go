package site

import (
	"testing"

	"github.com/gradproxy/gradproxy/proxy"
)

// The shares and the reserve never are more than there is, down to where nothing would be left.
func TestDivide(t *testing.T) {
	const each = proxy.PollGateDescriptors
	for descriptors, want := range map[int]shares{
		1 << 20: {1<<20 - 32 - 1024 - 512 - 1024*each, 256, 1024, 1024},
		4096:    {4096 - 32 - 256 - 512 - 256*each, 256, 256, 256},
		1024:    {1024 - 32 - 64 - 128 - 64*each, 64, 64, 64},
		67:      {1, 4, 32, 4},
		1:       {1, 1, 32, 1},
	} {
		if got := divide(descriptors); got != want {
			t.Errorf("divide(%d) = %+v, want %+v", descriptors, got, want)
		}
	}
}

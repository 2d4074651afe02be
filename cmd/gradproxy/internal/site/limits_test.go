package site

import "testing"

// Places, pipes and the reserve never are more than there is, down to where nothing would be left.
func TestDivide(t *testing.T) {
	for _, c := range []struct{ descriptors, places, pipes int }{{1 << 20, 1<<20 - 64 - 512, 256}, {4096, 4096 - 64 - 512, 256}, {1024, 832, 64}, {67, 1, 4}, {1, 1, 1}} {
		if places, pipes := divide(c.descriptors); places != c.places || pipes != c.pipes {
			t.Errorf("divide(%d) = %d, %d, want %d, %d", c.descriptors, places, pipes, c.places, c.pipes)
		}
	}
}

package tensorflow

import "testing"

// A device is called by its task, and a shape as people write it.
func TestNamesForPeople(t *testing.T) {
	for device, want := range map[string]string{"/job:worker/replica:0/task:1/device:CPU:0": "worker 1", "/job:ps/replica:0/task:0/device:GPU:1": "ps 0", "gpu": "gpu", "": ""} {
		if got := taskOf(device); got != want {
			t.Errorf("%s is called %q, want %q", device, got, want)
		}
	}
	var s shape
	for i, want := range []string{"", "512", "512×256", "512×256×3", "512×256×3×3", ""} {
		if got := s.String(); got != want {
			t.Errorf("%d dimensions are written %q, want %q", i, got, want)
		}
		s.add([]uint64{512, 256, 3, 3, 3, 3}[i])
	}
}

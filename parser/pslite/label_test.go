package pslite

import "testing"

// Nodes have the names that ps-lite's own log gives them.
func TestNodeNames(t *testing.T) {
	for id, want := range map[int]string{1: "scheduler", 8: "server 0", 9: "worker 0", 10: "server 1", 13: "worker 2", 0: "", 4: ""} {
		if got := nodeName(id); got != want {
			t.Errorf("node %d is called %q, want %q", id, got, want)
		}
	}
}

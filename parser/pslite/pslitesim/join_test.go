package pslitesim

import (
	"slices"
	"testing"
)

// Ids follow the addresses, greater host names first and then lower ports, whatever the order of registration; servers
// and workers are counted apart.
func TestIDsFollowAddresses(t *testing.T) {
	nodes := []NodeInfo{
		{Role: Worker, Hostname: "192.0.2.1", Port: 9},
		{Role: Server, Hostname: "192.0.2.1", Port: 7},
		{Role: Worker, Hostname: "198.51.100.1", Port: 8},
		{Role: Worker, Hostname: "192.0.2.1", Port: 8},
		{Role: Server, Hostname: "192.0.2.1", Port: 6},
	}
	want := []NodeInfo{
		{Role: Worker, ID: 9, Hostname: "198.51.100.1", Port: 8},
		{Role: Server, ID: 8, Hostname: "192.0.2.1", Port: 6},
		{Role: Server, ID: 10, Hostname: "192.0.2.1", Port: 7},
		{Role: Worker, ID: 11, Hostname: "192.0.2.1", Port: 8},
		{Role: Worker, ID: 13, Hostname: "192.0.2.1", Port: 9},
	}
	for range len(nodes) {
		nodes = append(nodes[1:], nodes[0])
		got := slices.Clone(nodes)
		number(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%+v\nwant\n%+v", got, want)
		}
	}
}

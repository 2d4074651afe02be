package inspect

import (
	"cmp"
	"net/netip"
	"slices"
)

// A HostPair sums up the connections of one protocol between two hosts.
type HostPair struct {
	Client      string   `json:"client"` // ip of the ends that sent SYN
	Server      string   `json:"server"`
	Ports       []uint16 `json:"ports"` // of the server, the first maxPorts
	Protocol    string   `json:"protocol"`
	Name        string   `json:"name,omitempty"` // of a protocol that no parser knows, as far as its first bytes or its port tell
	Connections int      `json:"connections"`
	FromClient  int      `json:"from_client_bytes"`
	FromServer  int      `json:"from_server_bytes"`
	Lossless    int      `json:"lossless_bytes"` // both directions, under the policy lossless

	directions [2]Direction // summed up
	incomplete int          // connections with missing bytes
}

// maxPorts bounds the ports that a HostPair lists.
const maxPorts = 8

// hostPairs sums up connections, the pair with most bytes first.
func hostPairs(conns []Connection) []HostPair {
	type key struct{ client, server, protocol, name string }
	all := []HostPair{}
	places := map[key]int{}
	for i := range conns {
		c := &conns[i]
		client, server := netip.MustParseAddrPort(c.Client), netip.MustParseAddrPort(c.Server)
		k := key{client.Addr().String(), server.Addr().String(), c.Protocol, c.Name}
		at, ok := places[k]
		if !ok {
			at, places[k] = len(all), len(all)
			all = append(all, HostPair{Client: k.client, Server: k.server, Protocol: k.protocol, Name: k.name})
		}
		h := &all[at]
		h.Connections++
		h.directions[0], h.directions[1] = h.directions[0].plus(c.FromClient), h.directions[1].plus(c.FromServer)
		if !c.Complete {
			h.incomplete++
		}
		h.FromClient += c.FromClient.Bytes
		h.FromServer += c.FromServer.Bytes
		h.Lossless += c.FromClient.Lossless + c.FromServer.Lossless
		if !slices.Contains(h.Ports, server.Port()) && len(h.Ports) < maxPorts {
			h.Ports = append(h.Ports, server.Port())
		}
	}
	slices.SortStableFunc(all, func(a, b HostPair) int { return cmp.Compare(b.FromClient+b.FromServer, a.FromClient+a.FromServer) })
	return all
}

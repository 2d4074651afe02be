package flower

import (
	"math/rand/v2"
	"net/netip"

	"github.com/gradproxy/gradproxy/parser"
	sim "github.com/gradproxy/gradproxy/parser/flower/flowersim"
	"github.com/gradproxy/gradproxy/parser/parsertest"
)

func fresh() parser.Protocol { return new(Protocol) }

// conn is the connection of a client on host 10.0.0.n.
func conn(n byte) parser.Conn {
	return parser.Conn{Job: "job", Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 40_000), Server: netip.MustParseAddrPort("10.0.1.1:8000")}
}

// npyOf returns a .npy file of n elements of a type with that description.
func npyOf(descr string, size, n int, seed uint64) []byte {
	elements := make([]byte, n*size)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range elements {
		elements[i] = byte(r.Uint32())
	}
	return sim.NPY(descr, size, elements)
}

// httpCall is one call.
func httpCall(method string, request, response []byte) parsertest.Exchange {
	return parsertest.Exchange{{From: parser.Client, Bytes: sim.Post(method, request)}, {From: parser.Server, Bytes: sim.OK(response)}}
}

// pull is the calls by which a node is sent a message.
func pull(m sim.Object) parsertest.Exchange {
	x := httpCall("pull-messages", nil, sim.Pulled(m))
	m.LeavesFirst(func(o sim.Object) {
		x = append(x, httpCall("pull-object", sim.PullObject(5, o.ID), sim.ObjectPulled(o))...)
	})
	return x
}

// push is the calls by which a node sends a message.
func push(node uint64, m sim.Object) parsertest.Exchange {
	x := httpCall("push-messages", sim.Pushed(node, m), nil)
	m.LeavesFirst(func(o sim.Object) { x = append(x, pushOf(node, o)...) })
	return x
}

// pushOf is the call by which a node sends an object.
func pushOf(node uint64, o sim.Object) parsertest.Exchange {
	return httpCall("push-object", sim.PushObject(node, o), sim.ObjectPushed())
}

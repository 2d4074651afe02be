package pslite

import (
	"net/netip"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/mix"
)

// The first word of a mix says how its other words are made.
const (
	seedOfName  = iota // a configured job
	seedOfTable        // a configured job, and the scheduler's address
	seedOfConn         // a connection without a job
	placeOfNode        // a worker whose id is not known, by its host and the connection's number
)

// nameSeed identifies a configured job.
func nameSeed(name string) uint64 { return mix.Words(seedOfName, xxhash.Sum64String(name)) }

// tableSeed identifies the job of a scheduler, whose port the user has chosen.
func tableSeed(name, scheduler string) uint64 {
	return mix.Words(seedOfTable, xxhash.Sum64String(name), xxhash.Sum64String(scheduler))
}

// connSeed identifies a connection without a job. The ports are not part of it: both proxies see the same.
func connSeed(c parser.Conn) uint64 {
	client, server := c.Client.Addr().As16(), c.Server.Addr().As16()
	return mix.Words(seedOfConn, xxhash.Sum64(client[:]), xxhash.Sum64(server[:]), uint64(c.Number))
}

// place stands for the id of the worker that accepts a connection on host, where there is no table of nodes.
func place(host netip.Addr, number int) uint64 {
	a := host.As16()
	return mix.Words(placeOfNode, xxhash.Sum64(a[:]), uint64(number))
}

// An identity holds the facts that make a key.
type identity struct {
	direction kind   // push, pull or answer
	worker    uint64 // its id, or a number in its place
	app       int32
	customer  int32
	shape     shape
	key       uint64 // of the array
	set       uint64 // hash of the keys frame where it names rows or many keys; else 0
}

// under returns the Key of an identity in the job of that seed.
func (i identity) under(seed uint64) uint64 {
	return mix.Words(seed, uint64(i.direction), i.worker, uint64(uint32(i.app))<<32|uint64(uint32(i.customer)), uint64(i.shape), i.key, i.set)
}

// shared returns the Base of a tensor: the same for all workers that send or get the same values.
func (i identity) shared(seed uint64) uint64 {
	i.worker = 0
	return i.under(seed)
}

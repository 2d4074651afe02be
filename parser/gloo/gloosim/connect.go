package gloosim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
)

// Config says how a rank finds the others.
type Config struct {
	Rank int // of this process, from 0

	// Addrs are the addresses that the ranks have published, in their order, at least two and all different. They
	// decide which rank of a pair connects, and need not be the addresses that Dial connects to.
	Addrs []netip.AddrPort

	// Dial connects to a rank whose published address is less than this one's. It is called once for each.
	Dial func(ctx context.Context, peer int) (net.Conn, error)

	// Listeners accept the ranks whose published address is greater: one for all of them, or with NoSequence one for
	// each, at its rank's place. Connect closes them.
	Listeners []net.Listener

	// NoSequence leaves out the sequence number, as Gloo did before May 2023 (PyTorch 1.13): each pair had a listening
	// socket of its own.
	NoSequence bool
}

// Connect connects the mesh, and returns when this rank's connections all stand. ctx bounds the connecting only.
func Connect(ctx context.Context, c Config) (*Group, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, c.closeListeners)
	defer func() {
		if stop() {
			c.closeListeners()
		}
	}()

	type arrival struct {
		peer int
		conn net.Conn
		err  error
	}
	arrivals := make(chan arrival)
	for peer := range c.Addrs {
		switch {
		case peer == c.Rank:
		case initiates(c.Addrs[c.Rank], c.Addrs[peer]):
			go func() {
				conn, err := c.dial(ctx, peer)
				arrivals <- arrival{peer, conn, err}
			}()
		default:
			go func() {
				peer, conn, err := c.accept(ctx, peer)
				arrivals <- arrival{peer, conn, err}
			}()
		}
	}

	conns := make([]net.Conn, len(c.Addrs))
	var errs []error
	for range len(c.Addrs) - 1 {
		a := <-arrivals
		if a.err == nil && conns[a.peer] != nil {
			a.err = fmt.Errorf("gloosim: rank %d has connected twice", a.peer)
			a.conn.Close()
		}
		if a.err != nil {
			errs = append(errs, fmt.Errorf("rank %d: %w", c.Rank, a.err))
			cancel()
			continue
		}
		conns[a.peer] = a.conn
	}
	if len(errs) > 0 {
		for _, conn := range conns {
			if conn != nil {
				conn.Close()
			}
		}
		return nil, errs[0] // the others follow from it
	}
	return newGroup(c.Rank, c.pairs(conns)), nil
}

// pairs takes over the connections.
func (c *Config) pairs(conns []net.Conn) []*pair {
	pairs := make([]*pair, len(conns))
	for peer, conn := range conns {
		if conn == nil {
			continue
		}
		var sent, received int
		if !c.NoSequence {
			if initiates(c.Addrs[c.Rank], c.Addrs[peer]) {
				sent = sequenceLen
			} else {
				received = sequenceLen
			}
		}
		pairs[peer] = newPair(conn, sent, received)
	}
	return pairs
}

func (c *Config) closeListeners() {
	for _, l := range c.Listeners {
		if l != nil {
			l.Close()
		}
	}
}

// initiates reports whether the rank that published local connects to the one that published remote: addresses are
// compared as bytes, then ports as the integers that network byte order makes of them on little-endian hosts
// (transport/tcp/device.cc, isInitiator).
func initiates(local, remote netip.AddrPort) bool {
	if c := bytes.Compare(local.Addr().AsSlice(), remote.Addr().AsSlice()); c != 0 {
		return c > 0
	}
	swapped := func(p uint16) uint16 { return p<<8 | p>>8 }
	return swapped(local.Port()) > swapped(remote.Port())
}

// sequenceLen is the length of the sequence number, in bytes.
const sequenceLen = 8

// dial connects to a peer and sends this rank's number: on a device of its own, as every group of torch has, a pair's
// sequence number is the initiator's rank. It must arrive in one piece, since the acceptor reads it with one call.
func (c *Config) dial(ctx context.Context, peer int) (net.Conn, error) {
	conn, err := c.Dial(ctx, peer)
	if err != nil {
		return nil, fmt.Errorf("gloosim: connect to rank %d: %w", peer, err)
	}
	if !c.NoSequence {
		if _, err := conn.Write(binary.LittleEndian.AppendUint64(nil, uint64(c.Rank))); err != nil {
			conn.Close()
			return nil, fmt.Errorf("gloosim: greet rank %d: %w", peer, err)
		}
	}
	return conn, nil
}

// accept accepts one peer: with NoSequence the given one, else the next that connects.
func (c *Config) accept(ctx context.Context, peer int) (int, net.Conn, error) {
	l := c.listener(peer)
	if l == nil {
		return 0, nil, fmt.Errorf("gloosim: rank %d connects to this one, which does not listen", peer)
	}
	conn, err := l.Accept()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return 0, nil, fmt.Errorf("gloosim: accept: %w", err)
	}
	if c.NoSequence {
		return peer, conn, nil
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var seq [sequenceLen]byte
	if _, err := io.ReadFull(conn, seq[:]); err != nil {
		conn.Close()
		return 0, nil, fmt.Errorf("gloosim: sequence number of %v: %w", conn.RemoteAddr(), err)
	}
	who := binary.LittleEndian.Uint64(seq[:])
	if who >= uint64(len(c.Addrs)) || int(who) == c.Rank || !initiates(c.Addrs[who], c.Addrs[c.Rank]) {
		conn.Close()
		return 0, nil, fmt.Errorf("gloosim: %v says that it is rank %d, which was not to connect", conn.RemoteAddr(), who)
	}
	return int(who), conn, nil
}

// listener returns where a peer connects to.
func (c *Config) listener(peer int) net.Listener {
	if !c.NoSequence {
		peer = 0
	}
	if peer >= len(c.Listeners) {
		return nil
	}
	return c.Listeners[peer]
}

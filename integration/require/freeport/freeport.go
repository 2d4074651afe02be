// Package freeport finds addresses at which another process is to listen.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports lie below the range from which Linux takes ports for connections, as it comes (ip_local_port_range). In
// that range a connection of any process could have a port before its listener does, also when that listener is started
// again.
const first, last = 20_000, 32_000

var given sync.Map // the addresses that this process has had

// Find returns an address of a host, an IP address, that nobody listens at, and that no earlier call has returned.
// network is "tcp" or "udp".
func Find(network, host string) (string, error) {
	err := errors.New("all ports that were tried are given away")
	for range 100 {
		address := net.JoinHostPort(host, strconv.Itoa(first+rand.IntN(last-first)))
		if _, taken := given.LoadOrStore(network+" "+address, true); taken {
			continue
		}
		if err = bind(network, address); err == nil {
			return address, nil
		}
	}
	return "", fmt.Errorf("no free port of %s at %s: %w", network, host, err)
}

// bind tells whether somebody can listen at an address.
func bind(network, address string) error {
	if network == "udp" {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			return err
		}
		return c.Close()
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	return l.Close()
}

//go:build linux

package main

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// datagrams is the network of carriers over UDP. It has a socket for each source, by which it passes the datagrams of
// that source on.
type datagrams struct {
	to string

	mu     sync.Mutex
	near   *net.UDPConn
	flows  map[netip.AddrPort]*flow
	until  [2]time.Time // nothing passes earlier: there, back
	mtu    int          // 0: any datagram passes
	closed bool
}

// A flow is the carrier of one source.
type flow struct {
	d      *datagrams
	source netip.AddrPort
	near   *net.UDPConn // to answer by
	far    *net.UDPConn

	mu      sync.Mutex
	tampers [2][]string // of the next datagrams, one each
	kept    [2][]byte   // a datagram that is to be passed on after the next one
}

func newDatagrams(to string) (*datagrams, error) {
	near, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	d := &datagrams{to: to, near: near, flows: map[netip.AddrPort]*flow{}}
	go d.serve(near)
	return d, nil
}

func (d *datagrams) address() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.near.LocalAddr().String()
}

func (d *datagrams) serve(near *net.UDPConn) {
	b := make([]byte, 64<<10)
	for {
		n, source, err := near.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if f := d.flow(near, source); f != nil {
			f.carry(0, b[:n])
		}
	}
}

// flow returns the flow of a source, and makes it if there is none. It returns nil if the flow cannot be made.
func (d *datagrams) flow(near *net.UDPConn, source netip.AddrPort) *flow {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.flows[source]; f != nil || d.closed {
		return f
	}
	c, err := net.Dial("udp", d.to)
	if err != nil {
		return nil
	}
	f := &flow{d: d, source: source, near: near, far: c.(*net.UDPConn)}
	d.flows[source] = f
	go func() {
		b := make([]byte, 64<<10)
		for failed := 0; failed < 1000; { // nobody may listen there for a while
			n, err := f.far.Read(b)
			if err != nil {
				if failed++; d.forgotten(f) {
					return
				}
				time.Sleep(time.Millisecond)
				continue
			}
			failed = 0
			f.carry(1, b[:n])
		}
	}()
	return f
}

// forgotten reports whether d has forgotten f.
func (d *datagrams) forgotten(f *flow) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flows[f.source] != f
}

// carry passes a datagram on, unless nothing passes now. If a tamper is due, it changes the datagram.
func (f *flow) carry(way int, b []byte) {
	f.d.mu.Lock()
	lost := time.Now().Before(f.d.until[way]) || f.d.mtu > 0 && len(b) > f.d.mtu
	f.d.mu.Unlock()
	if lost {
		return
	}
	f.mu.Lock()
	all := [][]byte{b}
	if t := f.tampers[way]; len(t) > 0 {
		f.tampers[way] = t[1:]
		switch t[0] {
		case "bit flips":
			all[0] = tampers[t[0]](bytes.Clone(b))
		case "duplicates":
			all = append(all, b)
		case "reordering":
			all = nil
			if f.kept[way] == nil {
				f.kept[way] = bytes.Clone(b)
			} else {
				all = [][]byte{b}
			}
		case "omissions":
			all = nil
		}
	} else if f.kept[way] != nil {
		all = append(all, f.kept[way])
		f.kept[way] = nil
	}
	f.mu.Unlock()
	for _, b := range all {
		if way == 0 {
			f.far.Write(b)
		} else {
			f.near.WriteToUDPAddrPort(b, f.source)
		}
	}
}

// reset forgets the flow, as a router forgets a mapping: the next datagram of its source arrives from another address.
func (f *flow) reset() {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.forget(f)
}

// forget ends a flow. d.mu must be held.
func (d *datagrams) forget(f *flow) {
	if d.flows[f.source] == f {
		delete(d.flows, f.source)
	}
	f.far.Close()
}

func (f *flow) tamper(way int, how string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range 20 { // of the many datagrams of a read of TCP
		f.tampers[way] = append(f.tampers[way], how)
	}
}

func (d *datagrams) some(random *rand.Rand, f func(p path)) {
	d.mu.Lock()
	var chosen []*flow
	for _, flow := range d.flows {
		if len(chosen) == 0 || random.IntN(2) == 0 {
			chosen = append(chosen, flow)
		}
	}
	d.mu.Unlock()
	for _, flow := range chosen {
		f(flow)
	}
}

func (d *datagrams) cut(lasts time.Duration, ways ...int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range ways {
		d.until[w] = time.Now().Add(lasts)
	}
}

// narrow has the network lose datagrams of more than mtu bytes.
func (d *datagrams) narrow(mtu int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mtu = mtu
}

// move has the network listen at another address, and forgets the flows of the old one. The port stays, as that of
// relay does.
func (d *datagrams) move() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := *d.near.LocalAddr().(*net.UDPAddr)
	a.IP = net.IPv4(127, 0, 0, 1+a.IP.To4()[3])
	near, err := net.ListenUDP("udp", &a)
	if err != nil {
		return err
	}
	d.near.Close()
	for _, f := range d.flows {
		d.forget(f)
	}
	d.near = near
	go d.serve(near)
	return nil
}

// outlast returns a wait that returns at once: UDP has no end of a connection for which it could wait.
func (d *datagrams) outlast() (wait func()) { return func() {} }

func (d *datagrams) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.near.Close()
	for _, f := range d.flows {
		d.forget(f)
	}
}

//go:build linux

package main

import (
	"bytes"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A network lies between the two processes. Ways are 0, there, and 1, back.
type network interface {
	address() string                        // at which the dialling process reaches it
	some(random *rand.Rand, f func(p path)) // calls f for some carriers, at least one if there are any
	cut(d time.Duration, ways ...int)       // has nothing pass for d
	narrow(mtu int)                         // has no packet of more than mtu bytes pass, and tells nobody; 0: has all pass again
	move() error                            // goes to another address
	outlast() (wait func())                 // wait returns once the carriers that exist now have ended for both processes
	close()
}

// A path is one carrier in a network.
type path interface {
	reset()                     // ends it, or makes it one that the other process does not know
	tamper(way int, how string) // changes the next bytes; how is a key of tampers
}

// A relay is the network of carriers over TCP. Each carrier is two connections, one to the relay and one from it.
type relay struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	pairs  map[*pair]bool
	until  [2]time.Time // nothing passes earlier: there, back
	mtu    int          // 0: any packet passes
	rate   int          // bytes per second of each direction of a carrier; 0: unlimited
	closed bool
}

// A pair is one carrier.
type pair struct {
	ends [2]*net.TCPConn
	over chan struct{} // closed once both ends are closed

	mu      sync.Mutex
	tampers [2][]func([]byte) []byte // the changes of the next reads, one for each: there, back
}

func (p *pair) tamper(way int, how string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tampers[way] = append(p.tampers[way], tampers[how])
}

func newRelay(to string, rate int) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, to: to, rate: rate, pairs: map[*pair]bool{}}
	go r.serve(l)
	return r, nil
}

func (r *relay) address() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listener.Addr().String()
}

func (r *relay) serve(l net.Listener) {
	for {
		a, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			b, err := net.Dial("tcp", r.to)
			if err != nil {
				abort(a)
				return
			}
			p := &pair{ends: [2]*net.TCPConn{a.(*net.TCPConn), b.(*net.TCPConn)}, over: make(chan struct{})}
			r.mu.Lock()
			closed := r.closed
			r.pairs[p] = true
			p.narrow(r.mtu)
			r.mu.Unlock()
			if closed {
				p.reset()
			}
			var both sync.WaitGroup
			both.Go(func() { r.pump(p, 0) })
			both.Go(func() { r.pump(p, 1) })
			both.Wait()
			p.reset()
			close(p.over)
			r.mu.Lock()
			delete(r.pairs, p)
			r.mu.Unlock()
		}()
	}
}

// pump carries one direction of a carrier.
func (r *relay) pump(p *pair, way int) {
	from, to := p.ends[way], p.ends[1-way]
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		for {
			r.mu.Lock()
			wait := time.Until(r.until[way])
			r.mu.Unlock()
			if wait <= 0 {
				break
			}
			time.Sleep(wait)
		}
		if n > 0 {
			b := buf[:n]
			p.mu.Lock()
			if t := p.tampers[way]; len(t) > 0 {
				b, p.tampers[way] = t[0](bytes.Clone(b)), t[1:]
			}
			p.mu.Unlock()
			if r.rate > 0 {
				time.Sleep(time.Duration(len(b)) * time.Second / time.Duration(r.rate))
			}
			if _, err := to.Write(b); err != nil {
				p.reset()
				return
			}
		}
		if err == io.EOF {
			to.CloseWrite()
			return
		} else if err != nil {
			p.reset()
			return
		}
	}
}

func (p *pair) reset() {
	for _, c := range p.ends {
		abort(c)
	}
}

// abort ends a connection by an RST.
func abort(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// some calls f for some carriers, at least one if there are any.
func (r *relay) some(random *rand.Rand, f func(p path)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := true
	for p := range r.pairs {
		if first || random.IntN(2) == 0 {
			f(p)
		}
		first = false
	}
}

// cut has nothing pass for d in the ways given.
func (r *relay) cut(d time.Duration, ways ...int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range ways {
		r.until[w] = time.Now().Add(d)
	}
}

// narrow makes the relay lose TCP segments that are too long for IP packets of mtu bytes. They are lost where they
// arrive at the relay, so the kernels at the ends of carriers do not learn of it.
func (r *relay) narrow(mtu int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mtu = mtu
	for p := range r.pairs {
		p.narrow(mtu)
	}
}

// narrow attaches a filter to both ends, or detaches it if mtu is 0. The filter of a socket (socket(7),
// SO_ATTACH_FILTER) sees each segment from its TCP header on.
func (p *pair) narrow(mtu int) {
	const ipHeader = 20
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtLen},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: uint32(max(0, mtu-ipHeader)), SkipTrue: 1},
		bpf.RetConstant{Val: math.MaxUint32},
		bpf.RetConstant{Val: 0}, // it is lost
	})
	if err != nil {
		panic(err)
	}
	filter := make([]unix.SockFilter, len(program))
	for i, x := range program {
		filter[i] = unix.SockFilter{Code: x.Op, Jt: x.Jt, Jf: x.Jf, K: x.K}
	}
	for _, c := range p.ends {
		raw, err := c.SyscallConn()
		if err != nil {
			return // it has ended
		}
		raw.Control(func(fd uintptr) {
			if mtu > 0 {
				unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
				return
			}
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) // an error: there is none
		})
	}
}

// move makes the relay listen at another address, and resets the carriers that came to the old one. The port stays the
// same: a confined proxy may dial only the ports that its configuration named at its start.
func (r *relay) move() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := *r.listener.Addr().(*net.TCPAddr)
	a.IP = net.IPv4(127, 0, 0, 1+a.IP.To4()[3])
	l, err := net.ListenTCP("tcp", &a)
	if err != nil {
		return err
	}
	r.listener.Close()
	r.listener = l
	for p := range r.pairs {
		p.reset()
	}
	go r.serve(l)
	return nil
}

// outlast returns a wait for the end of the carriers of now. It is for the death of a process: a black hole keeps the
// end of a carrier from the other process for as long as it lasts.
func (r *relay) outlast() (wait func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pairs := slices.Collect(maps.Keys(r.pairs))
	return func() {
		for _, p := range pairs {
			<-p.over
		}
	}
}

func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.listener.Close()
	for p := range r.pairs {
		p.reset()
	}
}

// tampers are changes of bytes that TCP's checksum does not notice, or that somebody on the path makes.
var tampers = map[string]func([]byte) []byte{
	"bit flips":  func(b []byte) []byte { b[len(b)/2] ^= 1 << (len(b) % 8); return b },
	"duplicates": func(b []byte) []byte { return append(b, b...) },
	"reordering": func(b []byte) []byte { return append(slices.Clone(b[len(b)/2:]), b[:len(b)/2]...) },
	"omissions":  func(b []byte) []byte { return b[:len(b)/2] },
}

//go:build linux

package testbed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Hostile is a peer of the proxies at other sites with a certificate as good as theirs. It attacks them all the time,
// in this process and its site's namespace, by everything at once: openings to servers that it may not have, openings
// that it resets, values of zeros without end, blocks of zeros towards a server that it may have, and handshakes that
// never end.
type Hostile struct {
	endpoint *tunnel.Endpoint
	stop     context.CancelFunc
	work     sync.WaitGroup

	valuesOfZeros, blocksOfZeros zeros

	Denied, Reset, Values, Blocks, Silent atomic.Int64 // attacks that have reached the other sites so far
}

// How many blocks of zeros an attack sends in one write.
const (
	valuesAtOnce = 4
	blocksAtOnce = 20
)

// Attack has site i attack the proxies of c, from now until Stop. sinks are addresses at their sites that it may have
// dialled, which take bytes.
func (g *Gradproxy) Attack(w *WAN, i int, c Config, sinks map[int]netip.AddrPort) (*Hostile, error) {
	own := w.Sites[i]
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		ns, _, _ := own.edge()
		return dialIn(ctx, ns, network, address)
	}
	at := func(suffix string) string { return filepath.Join(g.dir, own.Site+suffix) }
	config := tunnel.Config{Name: own.Site, Dial: dial, Identity: tunnel.Identity{Cert: at(".pem"), Key: at(".key"), CA: filepath.Join(g.dir, "ca.pem")},
		Codecs: []string{"lossless", "topk", "hand-over"}, Accept: func(_ string, _ []byte, in *tunnel.Incoming) { in.Refuse(1, "no") }}
	for _, j := range c.sites(w) {
		_, addr, _ := w.Sites[j].edge()
		name := w.Sites[j].Site
		config.Peers = append(config.Peers, tunnel.Peer{Name: name, ID: fmt.Sprintf("spiffe://%s/%s", domain, name), Dial: fmt.Sprintf("%s:%d", addr, tunnelPort)})
	}
	h := &Hostile{}
	var err error
	if h.valuesOfZeros, err = newZeros("lossless", 1, valuesAtOnce); err != nil {
		return nil, err
	}
	if h.blocksOfZeros, err = newZeros("topk", 0, blocksAtOnce); err != nil {
		return nil, err
	}
	if h.endpoint, err = tunnel.New(config); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	for _, j := range c.sites(w) {
		site := w.Sites[j]
		_, addr, _ := site.edge()
		h.often(ctx, 100, func(n int) { h.deny(ctx, site, own, n) })
		h.often(ctx, 200, func(int) { h.reset(ctx, site) })
		h.often(ctx, 2, func(n int) { h.values(ctx, site, n) })
		h.often(ctx, 50, func(int) { h.silent(ctx, dial, fmt.Sprintf("%s:%d", addr, tunnelPort)) })
		if sink, ok := sinks[j]; ok {
			h.often(ctx, 1, func(n int) { h.blocks(ctx, site, own, sink, n) })
		}
	}
	return h, nil
}

// often calls f so many times a second, one at a time, until ctx ends.
func (h *Hostile) often(ctx context.Context, rate int, f func(n int)) {
	h.work.Go(func() {
		ticker := time.NewTicker(time.Second / time.Duration(rate))
		defer ticker.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			f(n)
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	})
}

func (h *Hostile) open(ctx context.Context, site *Site, opening []byte) (*tunnel.Stream, error) {
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return h.endpoint.Open(soon, site.Site, opening)
}

// opening returns the opening of a connection from an address of this site.
func opening(own *Site, server netip.AddrPort, n int) []byte {
	o := frame.Opening{Client: netip.AddrPortFrom(own.Addr, uint16(1024+n%60000)), Server: server, Tag: uint64(n) + 1}
	return o.Append(nil)
}

// deny asks for servers that this peer may not have: the ssh and the admin page of the host, and a metadata service.
func (h *Hostile) deny(ctx context.Context, site, own *Site, n int) {
	to := []netip.AddrPort{netip.AddrPortFrom(site.Addr, 22), netip.MustParseAddrPort(adminAddress), netip.MustParseAddrPort("169.254.169.254:80")}[n%3]
	s, err := h.open(ctx, site, opening(own, to, n))
	if err == nil {
		s.Reset(1)
	}
	count(&h.Denied, err)
}

// count counts an opening that the other side has answered, whatever the answer is.
func count(n *atomic.Int64, err error) {
	if no := (*tunnel.RefusedError)(nil); err == nil || errors.As(err, &no) {
		n.Add(1)
	}
}

// reset opens streams without a meaning and resets them.
func (h *Hostile) reset(ctx context.Context, site *Site) {
	s, err := h.open(ctx, site, nil)
	if err == nil {
		s.Reset(1)
	}
	count(&h.Reset, err)
}

// silent begins a handshake and says nothing.
func (h *Hostile) silent(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), address string) {
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if c, err := dial(soon, "tcp", address); err == nil {
		time.AfterFunc(time.Second, func() { c.Close() })
		h.Silent.Add(1)
	}
}

// A zeros is the frames of a slot's declaration and of blocks of zeros, 16 MiB each, which take some bytes each. To
// encode the blocks costs an attacker far more than to send them, so an attack does so once.
type zeros struct{ declare, body []byte }

func newZeros(codec string, key uint64, blocks int) (z zeros, err error) {
	const n = frame.MaxBlock / 4
	c, err := all.New(codec)
	if err != nil {
		return zeros{}, err
	}
	d := frame.Declaration{Codec: c.String(), DType: tensor.Float32, N: n, Key: key}
	e, err := c.NewEncoder(tensor.Float32, n)
	if key != 0 {
		mine := reference.NewCopy(frame.MaxBlock, 0)
		e, err = reference.NewEncoder(c, tensor.Float32, mine, mine)
	}
	block := make([]byte, frame.MaxBlock)
	for range blocks {
		var body []byte
		if err == nil {
			body, err = e.Append([]byte{frame.FormCoded}, block)
		}
		z.body = frame.Append(z.body, frame.Frame{Kind: frame.Block, Body: body})
	}
	z.declare = frame.Append(nil, frame.Frame{Kind: frame.Declare, Body: d.Append(nil)})
	return z, err
}

// values puts values of zeros and has them forgotten, for some seconds.
func (h *Hostile) values(ctx context.Context, site *Site, n int) {
	s, err := h.open(ctx, site, binary.AppendUvarint([]byte{frame.OpeningValues}, uint64(n+1)))
	if err != nil {
		return
	}
	defer s.Reset(1)
	defer time.AfterFunc(3*time.Second, func() { s.Reset(1) }).Stop()
	go io.Copy(io.Discard, s)
	for put := uint64(0); ctx.Err() == nil; put += valuesAtOnce {
		var gone []byte
		for i := range uint64(valuesAtOnce) {
			gone = binary.AppendUvarint(gone, put+i+1)
		}
		all := frame.Append(slices.Concat(h.valuesOfZeros.declare, h.valuesOfZeros.body), frame.Frame{Kind: frame.Forget, Body: gone})
		if _, err := s.Write(frame.Append(all, frame.Frame{Kind: frame.Evict, Body: []byte{0}})); err != nil {
			return
		}
		h.Values.Add(valuesAtOnce)
		select { // the four values take a proxy less time than that
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// blocks has a server given hundreds of megabytes of zeros, and leaves.
func (h *Hostile) blocks(ctx context.Context, site, own *Site, sink netip.AddrPort, n int) {
	s, err := h.open(ctx, site, opening(own, sink, n))
	if err != nil {
		return
	}
	defer s.Reset(1)
	defer time.AfterFunc(time.Second, func() { s.Reset(1) }).Stop()
	if _, err := s.Write(slices.Concat(h.blocksOfZeros.declare, h.blocksOfZeros.body)); err == nil {
		h.Blocks.Add(blocksAtOnce)
	}
	select { // for the bytes to be delivered, or not
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
}

// Stop ends the attack, and reports one that never was any.
func (h *Hostile) Stop() error {
	h.stop()
	h.work.Wait()
	err := h.endpoint.Close()
	for name, n := range map[string]*atomic.Int64{"denied openings": &h.Denied, "resets": &h.Reset, "values": &h.Values, "silent handshakes": &h.Silent} {
		if n.Load() < 20 {
			err = errors.Join(err, fmt.Errorf("testbed: the attack had %d %s only", n.Load(), name))
		}
	}
	return err
}

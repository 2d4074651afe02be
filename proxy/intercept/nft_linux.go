package intercept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// rules is a Plan in the kernel. It alone touches the system; each method is one transaction of nf_tables, so that no
// packet ever meets half of a change. Its netlink socket stays in the network namespace where it was opened.
type rules struct {
	conn *nftables.Conn
	plan Plan
}

func openRules(p Plan) (*rules, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, explain(err)
	}
	return &rules{conn, p}, nil
}

func (r *rules) table() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: r.plan.Table}
}

// replace writes the plan, in place of a table that a dead proxy may have left.
func (r *rules) replace() error {
	r.conn.AddTable(r.table()) // or there is nothing to delete
	r.conn.DelTable(r.table())
	return r.write()
}

// write makes table, sets and rules as the plan says. Chains stay: without a chain of type nat the kernel would
// stop translating the connections that were redirected before.
func (r *rules) write() error {
	t := r.conn.AddTable(r.table())
	if err := r.set(aliveSet(t), aliveElements()); err != nil {
		return err
	}
	sets := map[string]*nftables.Set{setAlive: aliveSet(t)}
	if r.plan.Hold > 0 {
		sets[setHeld] = r.heldSet(t)
		if err := r.set(sets[setHeld], aliveElements()); err != nil {
			return err
		}
	}
	for i, f := range r.plan.families() {
		networks, tunnels := networkSet(t, f, uint32(2+2*i)), tunnelSet(t, f, uint32(3+2*i))
		sets[networks.Name], sets[tunnels.Name] = networks, tunnels
		if err := r.set(networks, intervals(r.plan.networks(f))); err != nil {
			return err
		}
		if err := r.set(tunnels, endpoints(r.plan.tunnels(f))); err != nil {
			return err
		}
	}
	for _, c := range r.plan.chains() {
		nc := r.conn.AddChain(nftChain(t, c))
		r.conn.FlushChain(nc)
		for _, exprs := range r.plan.rules(c, sets) {
			r.conn.AddRule(&nftables.Rule{Table: t, Chain: nc, Exprs: exprs})
		}
	}
	return explain(r.conn.Flush())
}

// set makes the set hold exactly these elements.
func (r *rules) set(s *nftables.Set, elems []nftables.SetElement) error {
	if err := r.conn.AddSet(s, nil); err != nil {
		return err
	}
	r.conn.FlushSet(s)
	if len(elems) == 0 {
		return nil
	}
	return r.conn.SetAddElements(s, elems)
}

// refresh lets the rules stay in force for another Timeout. The element is made anew rather than prolonged, which
// kernels before 6.12 cannot do.
func (r *rules) refresh() error {
	if err := r.prolong(aliveSet(r.table())); err != nil {
		return err
	}
	if err := r.hold(); err != nil {
		return err
	}
	return explain(r.conn.Flush())
}

// hold lets connections be held for another Hold, where they are.
func (r *rules) hold() error {
	if r.plan.Hold == 0 {
		return nil
	}
	return r.prolong(r.heldSet(r.table()))
}

func (r *rules) prolong(s *nftables.Set) error {
	r.conn.FlushSet(s)
	return r.conn.SetAddElements(s, aliveElements())
}

// expire ends the rules' force at once.
func (r *rules) expire() error {
	r.conn.FlushSet(aliveSet(r.table()))
	if err := r.hold(); err != nil {
		return err
	}
	return explain(r.conn.Flush())
}

// remove deletes the table; one that is gone already is no error.
func (r *rules) remove() error {
	r.conn.AddTable(r.table())
	r.conn.DelTable(r.table())
	return explain(r.conn.Flush())
}

func (r *rules) close() error { return r.conn.CloseLasting() }

func aliveSet(t *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: t, ID: 1, Name: setAlive, KeyType: nftables.TypeInetProto, HasTimeout: true, Timeout: Timeout}
}

func (r *rules) heldSet(t *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: t, ID: 6, Name: setHeld, KeyType: nftables.TypeInetProto, HasTimeout: true, Timeout: Timeout + r.plan.Hold}
}

func aliveElements() []nftables.SetElement {
	return []nftables.SetElement{{Key: []byte{unix.IPPROTO_TCP}}}
}

func networkSet(t *nftables.Table, f family, id uint32) *nftables.Set {
	return &nftables.Set{Table: t, ID: id, Name: setNetworks + f.suffix, KeyType: f.addrType(), Interval: true}
}

func tunnelSet(t *nftables.Table, f family, id uint32) *nftables.Set {
	return &nftables.Set{Table: t, ID: id, Name: setTunnels + f.suffix, Concatenation: true,
		KeyType: nftables.MustConcatSetType(f.addrType(), nftables.TypeInetService)}
}

func (f family) addrType() nftables.SetDatatype {
	if f.bytes == 4 {
		return nftables.TypeIPAddr
	}
	return nftables.TypeIP6Addr
}

// intervals returns networks as an interval set takes them: the first address of each, and the first one behind it.
func intervals(networks []netip.Prefix) []nftables.SetElement {
	var out []nftables.SetElement
	for i, n := range networks {
		first := n.Addr().AsSlice()
		if zero := make([]byte, len(first)); i == 0 && string(zero) != string(first) {
			out = append(out, nftables.SetElement{Key: zero, IntervalEnd: true}) // nft lists such sets wrongly without it
		}
		out = append(out, nftables.SetElement{Key: first})
		if end := after(n); end != nil {
			out = append(out, nftables.SetElement{Key: end, IntervalEnd: true})
		}
	}
	return out
}

// after returns the address behind the last one of n; nil: there is none.
func after(n netip.Prefix) []byte {
	b := n.Masked().Addr().AsSlice()
	for bit := n.Bits() - 1; bit >= 0; bit-- { // add one to the network part
		b[bit/8] ^= 0x80 >> (bit % 8)
		if b[bit/8]&(0x80>>(bit%8)) != 0 {
			return b
		}
	}
	return nil
}

// endpoints returns addresses with ports as keys of a concatenation, whose parts are padded to 4 bytes.
func endpoints(addrs []netip.AddrPort) []nftables.SetElement {
	out := make([]nftables.SetElement, len(addrs))
	for i, a := range addrs {
		key := binary.BigEndian.AppendUint16(a.Addr().AsSlice(), a.Port())
		out[i].Key = append(key, 0, 0)
	}
	return out
}

func nftChain(t *nftables.Table, c chain) *nftables.Chain {
	hooks := map[string]*nftables.ChainHook{"output": nftables.ChainHookOutput, "prerouting": nftables.ChainHookPrerouting,
		"forward": nftables.ChainHookForward}
	accept := nftables.ChainPolicyAccept
	return &nftables.Chain{Table: t, Name: c.name, Type: nftables.ChainType(c.kind), Hooknum: hooks[c.hook],
		Priority: nftables.ChainPriorityRef(nftables.ChainPriority(c.priority)), Policy: &accept}
}

// rules returns the rules of chain c, in the order of Plan.String, as expressions of nf_tables.
func (p *Plan) rules(c chain, sets map[string]*nftables.Set) [][]expr.Any {
	var out [][]expr.Any
	if p.Transparent != 0 && !c.refuse {
		out = append(out, join(isTCP(), []expr.Any{
			&expr.Socket{Key: expr.SocketKeyTransparent, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{1}},
		}, setMark(p.Transparent), verdict(expr.VerdictAccept)))
	}
	if c.name == chainRefuse && p.Hold > 0 {
		for _, f := range p.families() {
			out = append(out, join(meta(expr.MetaKeyNFPROTO, []byte{f.nfproto}), isTCP(), sourcePort(f.listen), isRefusal(), verdict(expr.VerdictDrop)))
		}
	}
	out = append(out,
		join(meta(expr.MetaKeyMARK, binaryutil.NativeEndian.PutUint32(Mark)), verdict(expr.VerdictReturn)),
		join(isTCP(), destPort(Ports{22, 22}), verdict(expr.VerdictReturn)),
		join(localDestination(), verdict(expr.VerdictReturn)))
	for _, f := range p.families() {
		is := meta(expr.MetaKeyNFPROTO, []byte{f.nfproto})
		next := f.registerBehind()
		out = append(out,
			join(is, isTCP(), f.loadDestination(), loadDestPort(next), lookup(sets[setTunnels+f.suffix]), verdict(expr.VerdictReturn)))
		take := join(is, f.loadDestination(), lookup(sets[setNetworks+f.suffix]), isTCP(), destPort(p.Ports), isSYN())
		if c.refuse && p.Hold > 0 {
			out = append(out, join(take, []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}}, lookup(sets[setHeld]), verdict(expr.VerdictDrop)))
		}
		alive := join([]expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}}, lookup(sets[setAlive]))
		switch {
		case c.refuse:
			take = join(take, []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})
		case p.Transparent != 0:
			take = join(take, alive, f.tproxy(), setMark(p.Transparent), verdict(expr.VerdictAccept))
		default:
			take = join(take, alive, f.redirect())
		}
		out = append(out, take)
	}
	return out
}

// registerBehind returns the 32-bit register behind an address that was loaded to register 1: registers of 32 bits
// count on from 8, registers of 128 from 1.
func (f family) registerBehind() uint32 {
	if f.bytes == 16 {
		return 2
	}
	return 9
}

// redirect rewrites the destination to the listener.
func (f family) redirect() []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(f.listen)},
		&expr.Redir{RegisterProtoMin: 1, RegisterProtoMax: 1, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED},
	}
}

// tproxy gives the packet to the listener as it is.
func (f family) tproxy() []expr.Any {
	port := f.registerBehind()
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: f.local.AsSlice()},
		&expr.Immediate{Register: port, Data: binaryutil.BigEndian.PutUint16(f.listen)},
		&expr.TProxy{Family: f.nfproto, TableFamily: f.nfproto, RegAddr: 1, RegPort: port},
	}
}

func setMark(mark uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}
}

func join(parts ...[]expr.Any) []expr.Any {
	var out []expr.Any
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func meta(key expr.MetaKey, is []byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: is}}
}

func isTCP() []expr.Any { return meta(expr.MetaKeyL4PROTO, []byte{unix.IPPROTO_TCP}) }

func verdict(k expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: k}} }

func lookup(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID}}
}

func localDestination() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

func (f family) loadDestination() []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.offset, Len: f.bytes}}
}

// loadDestPort loads bytes 2 and 3 of the TCP header.
func loadDestPort(register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}}
}

func destPort(p Ports) []expr.Any {
	first, last := binaryutil.BigEndian.PutUint16(p.First), binaryutil.BigEndian.PutUint16(p.Last)
	if p.First == p.Last {
		return join(loadDestPort(1), []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: first}})
	}
	return join(loadDestPort(1), []expr.Any{
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: first},
		&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: last},
	})
}

// isSYN matches the flags FIN, SYN, RST and ACK, in byte 13 of the TCP header, with SYN alone set: the first packet of
// a connection, and never one of a connection that conntrack picks up in the middle.
func isSYN() []expr.Any {
	return flags(syn)
}

// isRefusal matches the kernel's answer to a SYN for a port on which nobody listens: RST and ACK, with sequence number
// 0 (RFC 9293, section 3.10.7.1). A connection that was open has another number.
func isRefusal() []expr.Any {
	return join(flags(rst|ack), []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 4, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 4)},
	})
}

// Flags of TCP.
const fin, syn, rst, ack = 0x01, 0x02, 0x04, 0x10

// flags matches packets by the given values of these four flags.
func flags(f byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{fin | syn | rst | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f}},
	}
}

// sourcePort matches bytes 0 and 1 of the TCP header.
func sourcePort(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
	}
}

// explain adds the user's remedy to an answer of the kernel.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return fmt.Errorf("intercept: redirect and tproxy add rules to nf_tables, for which the process lacks CAP_NET_ADMIN: run it as root, give it that capability, or use forward: %w", err)
	case errors.Is(err, syscall.EPROTONOSUPPORT), errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EOPNOTSUPP):
		return fmt.Errorf("intercept: the rules need nf_tables in the kernel (modules nf_tables, nft_redir, nft_fib_inet, nft_reject_inet; for tproxy nft_tproxy and nft_socket): load them, or use forward: %w", err)
	}
	return fmt.Errorf("intercept: nf_tables: %w", err)
}

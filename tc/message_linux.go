package tc

import (
	"encoding/binary"
	"math"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes of linux/pkt_sched.h that the library does not name. It has no size tables, and its netem knows neither
// nanoseconds nor a seed, so queueing disciplines are written here attribute by attribute.
const (
	tcaStabBase       = 1
	tcaNetemLatency64 = 10
	tcaNetemJitter64  = 11
	tcaNetemSeed      = 14
	linkLayerEthernet = 1
)

// A discipline is a queueing discipline as the kernel is told of it.
type discipline struct {
	kind           string
	parent, handle Handle
	overhead       int
	options        *nl.RtAttr // nil: none
}

// disciplineOf returns the discipline that a rule sets up; not every rule does.
func disciplineOf(r Rule) (d discipline, ok bool) {
	switch r := r.(type) {
	case TBF:
		return r.Place.discipline("tbf", r.options()), true
	case Netem:
		return r.Place.discipline("netem", r.options()), true
	case FQ:
		return r.Place.discipline("fq", r.options()), true
	case HTB:
		return r.Place.discipline("htb", r.options()), true
	case Clsact:
		return discipline{kind: "clsact", parent: netlink.HANDLE_CLSACT, handle: NewHandle(0xFFFF, 0)}, true
	}
	return discipline{}, false
}

func (p Place) discipline(kind string, options *nl.RtAttr) discipline {
	return discipline{kind, p.Parent, p.Handle, p.Overhead, options}
}

// creation returns the flags by which a discipline is made. A clsact that is there is shared, any other is in the way.
func (d discipline) creation() int {
	if d.kind == "clsact" {
		return unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	}
	return unix.NLM_F_CREATE | unix.NLM_F_EXCL
}

// request returns the netlink message: RTM_NEWQDISC, or RTM_DELQDISC, which names only kind and place.
func (d discipline) request(command, flags, device int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(command, flags|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(device), Handle: uint32(d.handle), Parent: uint32(d.parent)})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(d.kind)))
	if command == unix.RTM_DELQDISC {
		return req
	}
	if d.overhead != 0 {
		// struct tc_sizespec without a table: the overhead alone (net/sched/sch_api.c, __qdisc_calculate_pkt_len).
		spec := make([]byte, 24)
		binary.NativeEndian.PutUint32(spec[4:], uint32(d.overhead))
		binary.NativeEndian.PutUint32(spec[8:], linkLayerEthernet)
		stab := nl.NewRtAttr(nl.TCA_STAB, nil)
		stab.AddRtAttr(tcaStabBase, spec)
		req.AddData(stab)
	}
	if d.options != nil {
		req.AddData(d.options)
	}
	return req
}

func (q TBF) options() *nl.RtAttr {
	parms := nl.TcTbfQopt{Limit: q.Limit}
	parms.Rate.Linklayer = linkLayerEthernet
	parms.Rate.Rate = uint32(min(q.Rate, math.MaxUint32))
	o := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	o.AddRtAttr(nl.TCA_TBF_PARMS, parms.Serialize())
	o.AddRtAttr(nl.TCA_TBF_BURST, nl.Uint32Attr(q.Burst))
	if q.Rate > math.MaxUint32 {
		o.AddRtAttr(nl.TCA_TBF_RATE64, nl.Uint64Attr(q.Rate))
	}
	return o
}

// options begins with a struct, which attributes follow in the same payload.
func (q Netem) options() *nl.RtAttr {
	base := nl.TcNetemQopt{Limit: q.Limit, Loss: fraction(q.Loss)}
	o := nl.NewRtAttr(nl.TCA_OPTIONS, base.Serialize())
	o.AddRtAttr(tcaNetemLatency64, nl.Uint64Attr(uint64(q.Delay)))
	o.AddRtAttr(tcaNetemJitter64, nl.Uint64Attr(uint64(q.Jitter)))
	rate := nl.TcNetemRate{Rate: uint32(min(q.Rate, math.MaxUint32))}
	if q.Rate > math.MaxUint32 {
		o.AddRtAttr(nl.TCA_NETEM_RATE64, nl.Uint64Attr(q.Rate))
	}
	o.AddRtAttr(nl.TCA_NETEM_RATE, rate.Serialize())
	if q.Seed != 0 {
		o.AddRtAttr(tcaNetemSeed, nl.Uint64Attr(q.Seed))
	}
	return o
}

func (q FQ) options() *nl.RtAttr {
	o := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	o.AddRtAttr(nl.TCA_FQ_PLIMIT, nl.Uint32Attr(q.Limit))
	o.AddRtAttr(nl.TCA_FQ_FLOW_PLIMIT, nl.Uint32Attr(q.FlowLimit))
	o.AddRtAttr(nl.TCA_FQ_RATE_ENABLE, nl.Uint32Attr(0))
	o.AddRtAttr(nl.TCA_FQ_HORIZON, nl.Uint32Attr(uint32(q.Horizon.Microseconds())))
	o.AddRtAttr(nl.TCA_FQ_HORIZON_DROP, nl.Uint8Attr(1))
	return o
}

func (q HTB) options() *nl.RtAttr {
	glob := nl.TcHtbGlob{Version: 3, Rate2Quantum: 10, Defcls: uint32(q.Default)}
	o := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	o.AddRtAttr(nl.TCA_HTB_INIT, glob.Serialize())
	return o
}

// class returns the class as the library knows it; it counts a bucket in the kernel's ticks.
func (c HTBClass) class(device int) *netlink.HtbClass {
	return &netlink.HtbClass{
		ClassAttrs: netlink.ClassAttrs{LinkIndex: device, Parent: uint32(c.Parent), Handle: uint32(c.Class)},
		Rate:       c.Rate,
		Ceil:       c.Ceil,
		Buffer:     netlink.Xmittime(c.Rate, c.Burst),
		Cbuffer:    netlink.Xmittime(c.Ceil, c.Burst),
	}
}

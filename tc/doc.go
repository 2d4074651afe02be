// Package tc emulates a WAN with the Linux kernel's own traffic control: it turns one direction of a link (Link) into
// rules for the devices that its packets cross (Plan), prints, applies, changes and undoes them.
//
//	back end   made of                              needs                              abilities
//	kernel     netem and tbf at the router's exit   sch_netem, sch_tbf                 rate, delay, jitter, loss, queue; a seed from Linux 6.6 on
//	kernel     tbf alone                            sch_tbf                            rate, queue
//	eBPF       programs of shape.c, and fq          sch_ingress, cls_bpf, BPF, sch_fq  all, and ECN marks; each packet's loss and jitter by seed
//	eBPF       the program at the router's entry    sch_ingress, cls_bpf, BPF          loss and marks by seed, counters
//
// Supported finds out the features of the running kernel; KernelPlan and BPFPlan name the ones that a Link needs and it
// lacks.
//
// The devices belong to a router between the link's two ends, each end and the router in a network namespace:
//
//	sender's namespace         router's namespace         receiver's namespace
//	[ Sender ] ──────────────▶ [ In ] ──▶ [ Out ] ──────▶
//	segments apart             loss, marks  rate, delay, (netem:) loss
//
// Nothing is dropped where a sender could see it: the kernel tells a socket when its own device's queue drops a packet,
// and TCP then sends it again at once, so that loss there is none. A router's drop is a loss.
//
// Rates count IP bytes: payload and all headers from IP upwards. The devices are Ethernet devices (veth), whose header
// of EthernetHeader bytes the rules take off each packet's length.
package tc

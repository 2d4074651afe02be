// The part of the kernel's interface to BPF that the programs need, written down from its stable user interface
// (include/uapi/linux/bpf.h), whose numbers and layouts do not change: no other header is needed to build them.

#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

// Maps are declared as libbpf and cilium/ebpf read them from the object's type information.
#define MAP_UINT(name, value) int (*name)[value]
#define MAP_TYPE(name, type) typeof(type) *name

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NET16(x) __builtin_bswap16(x)
#else
#define NET16(x) (x)
#endif

enum { BPF_MAP_TYPE_ARRAY = 2 };

// Decisions of a program at clsact or TCX: the next one decides, or the packet is dropped.
enum { TC_ACT_UNSPEC = -1, TC_ACT_SHOT = 2 };

// A packet, as far as it is needed; from flow_keys on the kernel's numbers have gaps only where they are named here.
struct __sk_buff {
	__u32 len; // the Ethernet header included, at either hook
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol; // network byte order
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
	__u64 flow_keys;
	__u64 tstamp; // when it is to leave, in nanoseconds of CLOCK_MONOTONIC
	__u32 wire_len;
	__u32 gso_segs; // segments in one packet; 0: it is one
};

struct bpf_spin_lock {
	__u32 val;
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) = (void *)26;
static long (*bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)93;
static long (*bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)94;
static long (*bpf_skb_ecn_set_ce)(struct __sk_buff *skb) = (void *)97;

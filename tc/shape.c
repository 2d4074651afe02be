//go:build ignore

// One direction of an emulated link in two programs: loss, where a router's packets come in, and pace, where they go out.
// See program.go for their promises. Packet bytes are read one by one, so that verifiers which demand aligned access
// accept the programs.

#include "headers/bpf.h"

enum { ETHERNET = 14, SECOND = 1000000000 };
enum { PACKET_HOST = 0 }; // linux/if_packet.h
enum { TCP = 6, UDP = 17, ICMP6 = 58 };

// The settings of the link. User space may change them at any time.
struct settings {
	__u64 loss;   // probability, of 2^63
	__u64 marks;  // probability, of 2^63
	__u64 seed;   // of losses, marks and jitter
	__u64 rate;   // bytes per second; 0: unlimited
	__u64 delay;  // nanoseconds
	__u64 jitter; // nanoseconds
	__u64 queue;  // bytes
};

// The counts of the link. Segments count as packets, headers from IP upwards as bytes.
struct carried {
	__u64 packets; // offered
	__u64 bytes;
	__u64 lost;          // at random
	__u64 marked;        // with congestion experienced
	__u64 dropped;       // by a full queue
	__u64 dropped_bytes;
};

// A step is a stretch of the bottleneck's time that has been given to packets at a rate which has changed since. It
// begins where the step before it ends.
struct step {
	__u64 until;
	__u64 rate; // bytes per second
};

enum { STEPS = 16 };

// The memory of the link.
struct memory {
	struct bpf_spin_lock lock;
	__u32 unused;
	__u64 number;    // packets so far
	__u64 free;      // when the bottleneck has sent all that it holds
	__u64 remainder; // and the fraction of a nanosecond beyond that, times rate
	__u64 last;      // when the packet before leaves
	__u64 rate;      // of the time given since the last step
	struct step steps[STEPS]; // in order of time, the latest last; times that have passed mean nothing
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct settings);
} config SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct carried);
} counters SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct memory);
} state SEC(".maps");

INLINE __u8 byte_at(struct __sk_buff *skb, __u32 offset)
{
	__u8 b = 0;

	bpf_skb_load_bytes(skb, offset, &b, 1);
	return b;
}

// on_link says whether a packet crosses the link. Multicast and address resolution do not (ARP; RFC 4861, section 4): they
// stay between two neighbours, and when they come would shift the numbers of the others.
INLINE int on_link(struct __sk_buff *skb)
{
	if (skb->pkt_type != PACKET_HOST)
		return 0;
	if (skb->protocol == NET16(0x0800))
		return 1;
	if (skb->protocol != NET16(0x86DD))
		return 0;
	if (byte_at(skb, ETHERNET + 6) != ICMP6)
		return 1;
	__u8 type = byte_at(skb, ETHERNET + 40);
	return type < 133 || type > 137;
}

// headers returns the length of a packet's headers from IP to TCP or UDP, options included.
INLINE __u32 headers(struct __sk_buff *skb)
{
	__u32 length = 40;
	__u8 protocol = byte_at(skb, ETHERNET + 6);

	if (skb->protocol == NET16(0x0800)) {
		length = (byte_at(skb, ETHERNET) & 15) * 4;
		protocol = byte_at(skb, ETHERNET + 9);
	}
	if (protocol == TCP)
		return length + (byte_at(skb, ETHERNET + length + 12) >> 4) * 4;
	if (protocol == UDP)
		return length + 8;
	return length;
}

// A size is a packet's as on the wire, where the segments of one that the kernel keeps joined (GSO) have headers each.
struct size {
	__u64 packets;
	__u64 bytes;
};

INLINE struct size size_of(struct __sk_buff *skb)
{
	struct size s = {1, skb->len - ETHERNET};

	if (skb->gso_segs > 1) {
		s.packets = skb->gso_segs;
		s.bytes += (s.packets - 1) * headers(skb);
	}
	return s;
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014, figure 15).
INLINE __u64 mix(__u64 z)
{
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
	return z ^ (z >> 31);
}

enum { FOR_LOSS = 1, FOR_MARKS = 2, FOR_JITTER = 3 };

// draw returns 63 bits that look random, for the packet of that number: always the same for one seed and purpose.
INLINE __u64 draw(__u64 seed, __u64 purpose, __u64 number)
{
	return mix(mix(seed ^ mix(purpose)) + (number + 1) * 0x9E3779B97F4A7C15) >> 1;
}

SEC("tc/loss")
int loss(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct settings *c = bpf_map_lookup_elem(&config, &zero);
	struct carried *n = bpf_map_lookup_elem(&counters, &zero);
	struct memory *s = bpf_map_lookup_elem(&state, &zero);

	if (!c || !n || !s || !on_link(skb))
		return TC_ACT_UNSPEC;
	struct size size = size_of(skb);
	__u64 number = __sync_fetch_and_add(&s->number, size.packets);

	__sync_fetch_and_add(&n->packets, size.packets);
	__sync_fetch_and_add(&n->bytes, size.bytes);
	if (draw(c->seed, FOR_LOSS, number) < c->loss) {
		__sync_fetch_and_add(&n->lost, size.packets);
		return TC_ACT_SHOT;
	}
	if (draw(c->seed, FOR_MARKS, number) < c->marks && bpf_skb_ecn_set_ce(skb))
		__sync_fetch_and_add(&n->marked, size.packets);
	return TC_ACT_UNSPEC;
}

// turn makes rate the one by which the link gives packets their time. The time that it has given already stays as it is:
// FQ holds these packets, and lets nobody change when they leave. While all steps are in use the rate stays too.
INLINE void turn(struct memory *s, __u64 rate, __u64 now)
{
	if (s->rate == rate)
		return;
	if (s->free > now && s->free > s->steps[STEPS - 1].until) {
		if (s->steps[0].until > now)
			return;
#pragma unroll
		for (int i = 1; i < STEPS; i++)
			s->steps[i - 1] = s->steps[i];
		s->steps[STEPS - 1].until = s->free;
		s->steps[STEPS - 1].rate = s->rate;
	}
	s->rate = rate;
}

// held returns the bytes that a busy bottleneck has yet to send, each of them in the time that it was given, times SECOND.
INLINE __u64 held(struct memory *s, __u64 now)
{
	__u64 sum = s->remainder, from = now;

	if (s->steps[STEPS - 1].until > now) {
#pragma unroll
		for (int i = 0; i < STEPS; i++) {
			if (s->steps[i].until > from) {
				sum += (s->steps[i].until - from) * s->steps[i].rate;
				from = s->steps[i].until;
			}
		}
	}
	return sum + (s->free - from) * s->rate;
}

// A packet finds the queue full if the bottleneck holds more than queue bytes with it; an idle one takes any. A rate
// that changes is that of the packets behind the ones that the bottleneck holds: these leave when they were told to.
SEC("tc/pace")
int pace(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct settings *c = bpf_map_lookup_elem(&config, &zero);
	struct carried *n = bpf_map_lookup_elem(&counters, &zero);
	struct memory *s = bpf_map_lookup_elem(&state, &zero);

	if (!c || !n || !s || !on_link(skb))
		return TC_ACT_UNSPEC;
	struct size size = size_of(skb);
	__u64 now = bpf_ktime_get_ns();
	__u64 most = c->queue * SECOND; // a queue of 18 GB is the most
	__u64 at = 0;
	int full = 0;

	__sync_fetch_and_add(&n->packets, size.packets);
	__sync_fetch_and_add(&n->bytes, size.bytes);
	bpf_spin_lock(&s->lock);
	__u64 number = s->number;
	s->number += size.packets;
	turn(s, c->rate, now);
	__u64 rate = s->rate;
	if (s->free <= now) {
		s->free = now;
		s->remainder = 0;
	} else if (rate) {
		full = held(s, now) + size.bytes * SECOND > most;
	}
	if (!full) {
		if (rate) {
			__u64 scaled = size.bytes * SECOND + s->remainder;
			s->free += scaled / rate;
			s->remainder = scaled % rate;
		}
		// The upper 32 bits of the draw times up to 4 s of nanoseconds: no overflow.
		at = s->free + c->delay + ((draw(c->seed, FOR_JITTER, number) >> 31) * c->jitter >> 32);
		if (at < s->last)
			at = s->last;
		s->last = at;
	}
	bpf_spin_unlock(&s->lock);

	if (full) {
		__sync_fetch_and_add(&n->dropped, size.packets);
		__sync_fetch_and_add(&n->dropped_bytes, size.bytes);
		return TC_ACT_SHOT;
	}
	skb->tstamp = at;
	return TC_ACT_UNSPEC;
}

char licence[] SEC("license") = "Apache-2.0";

//go:build ignore

// The programs that redirect connections of a cgroup to the proxy; doc.go describes each. Addresses are kept as addresses
// of IPv6, an IPv4 one as ::ffff:a.b.c.d, in network byte order. All memory is accessed at its natural alignment, which
// some kernels demand.

#include "headers/bpf.h"

#define SO_ORIGINAL_DST 80 // linux/netfilter_ipv4.h, and IP6T_SO_ORIGINAL_DST of netfilter_ipv6/ip6_tables.h
#define SSH 22

// Variables that the proxy sets before it loads the programs.
volatile const __u64 netns;      // cookie of the network namespace that the listeners are in
volatile const __u64 timeout;    // ns after the last beat from which on the proxy counts as dead
volatile const __u32 mark;       // SO_MARK of the proxy's own sockets
volatile const __u32 refuse;     // 1: connections are refused when the proxy is dead; 0: they go directly to the peer
volatile const __u64 hold;       // ns after timeout in which connections wait for the next proxy instead; 0: none do
volatile const __u16 first_port; // destination ports that are taken
volatile const __u16 last_port;
volatile const __u16 listen4; // ports of the listeners on 127.0.0.1 and ::1
volatile const __u16 listen6;
volatile const __u16 awaited4; // ports of the listeners of the dead proxy whose flows these programs go on with
volatile const __u16 awaited6;

struct addr {
	__u32 word[4];
};

struct end {
	struct addr ip;
	__u16 port; // network byte order
	__u16 zero;
};

// A target is a server as the client dialled it, in an end's form, with the listener that the connection goes to instead.
struct target {
	struct addr ip;
	__u16 port; // network byte order
	__u16 at;   // port of that listener, network byte order; 0: the flow is of a version that did not note it
};

// A flow is a connection that was redirected to the proxy. Its size stays: the next version's proxy goes on with the flows of a dead one only
// if its own have the same size.
struct flow {
	struct target server;
	struct end client; // zero until it is established
	__u64 opened;      // ns, as bpf_ktime_get_ns
	__u64 closed;      // 0: open
	__u64 sent;        // bytes that the proxy has acknowledged
	__u64 received;    // bytes
	__u64 sent_base;   // the kernel's count of sent bytes when it was established: the SYN
	__u32 segments_sent;
	__u32 segments_received;
};

// A total is the sum over all flows; it does not forget flows for which the table had no room.
struct total {
	__u64 taken;   // connections
	__u64 refused; // connections
	__u64 sent;
	__u64 received;
	__u64 segments_sent;
	__u64 segments_received;
};

// A dial is the destination that the client of a redirected connection dialled.
struct dial {
	struct end server;
	__u32 asked; // 1: the proxy knows it
	__u32 left;  // 1: the client has closed
};

struct prefix {
	__u32 bits;
	__u32 v4; // 1: of IPv4, so that ::/0 holds none of its addresses; the prefix begins here
	struct addr ip;
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_LPM_TRIE);
	MAP_TYPE(key, struct prefix);
	MAP_TYPE(value, struct addr); // the source address towards it; zero: unknown
	MAP_UINT(max_entries, 65536);
	MAP_UINT(map_flags, BPF_F_NO_PREALLOC);
} networks SEC(".maps");

// Addresses of this host, whose connections to itself are left alone.
struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct addr);
	MAP_TYPE(value, __u32);
	MAP_UINT(max_entries, 4096);
} locals SEC(".maps");

// The peers' ends of tunnels.
struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct end);
	MAP_TYPE(value, __u32);
	MAP_UINT(max_entries, 4096);
} tunnels SEC(".maps");

// When the proxy was alive last, ns.
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, 1);
} beat SEC(".maps");

// By the cookie of the client's socket.
struct {
	MAP_UINT(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, __u64);
	MAP_TYPE(value, struct flow);
	MAP_UINT(max_entries, 65536);
} flows SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct total);
	MAP_UINT(max_entries, 1);
} totals SEC(".maps");

// By the client's end, from when the connection is established until the client has closed and the proxy knows the destination that it
// dialled: one that says a word and leaves is accepted later, if the proxy is busy.
struct {
	MAP_UINT(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct end);
	MAP_TYPE(value, struct dial);
	MAP_UINT(max_entries, 65536);
} dialled SEC(".maps");

// The ports of the listeners, for the next proxy: it reads them here and listens there too, for connections that wait.
struct listeners {
	__u16 port4;
	__u16 port6;
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct listeners);
	MAP_UINT(max_entries, 1);
} listening SEC(".maps");

INLINE struct total *total(void) {
	__u32 zero = 0;
	return bpf_map_lookup_elem(&totals, &zero);
}

#define ADD(field, n) __sync_fetch_and_add(&(field), (n))

INLINE int is_zero(const __u32 *w) { return !(w[0] | w[1] | w[2] | w[3]); }

INLINE int is_v4(const __u32 *w) { return !(w[0] | w[1]) && w[2] == NET32(0xffff); }

INLINE void set_v4(struct addr *a, __u32 ip) {
	a->word[0] = a->word[1] = 0;
	a->word[2] = NET32(0xffff);
	a->word[3] = ip;
}

// of_this_host reports whether an address leads back to the host, whatever interfaces it has: 127/8, 0.0.0.0, ::1, ::, and
// an address that it has.
INLINE int of_this_host(const struct addr *a) {
	if (is_v4(a->word)) {
		if (!a->word[3] || (a->word[3] & NET32(0xff000000)) == NET32(0x7f000000))
			return 1;
	} else if (!(a->word[0] | a->word[1] | a->word[2]) && (!a->word[3] || a->word[3] == NET32(1))) {
		return 1;
	}
	return bpf_map_lookup_elem(&locals, a) != 0;
}

enum proxy_state { ALIVE, AWAITED, DEAD };

// state_of returns the state of a proxy whose listener is there or not: AWAITED is a dead one for which connections wait.
INLINE enum proxy_state state_of(int listens) {
	__u32 zero = 0;
	__u64 *last = bpf_map_lookup_elem(&beat, &zero);
	if (!last || !*last)
		return DEAD;
	__u64 silent = bpf_ktime_get_ns() - *last;
	if (silent < timeout && listens)
		return ALIVE;
	return hold && silent < timeout + hold ? AWAITED : DEAD;
}

enum listener { NOBODY, PROXY, OTHERS };

// listener_of returns the owner of the listening socket at a port of loopback, in network byte order. The kernel closes a killed proxy's at once, and only
// a process with CAP_NET_ADMIN can mark one as the proxy does.
INLINE enum listener listener_of(void *ctx, int v4, __u16 port) {
	struct bpf_sock_tuple to = {};
	__u32 size = sizeof(to.ipv4);
	if (v4) {
		to.ipv4.saddr = to.ipv4.daddr = NET32(0x7f000001);
		to.ipv4.dport = port;
	} else {
		to.ipv6.saddr[3] = to.ipv6.daddr[3] = NET32(1);
		to.ipv6.dport = port;
		size = sizeof(to.ipv6);
	}
	struct bpf_sock *sk = bpf_sk_lookup_tcp(ctx, &to, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return NOBODY;
	enum listener l = sk->mark == mark ? PROXY : OTHERS;
	bpf_sk_release(sk);
	return l;
}

// wanted returns the network that a connection to server is for, with the source address towards it, or 0 if the
// connection is to be left alone.
INLINE struct addr *wanted(struct bpf_sock_addr *ctx, const struct end *server) {
	__u16 port = NET16(server->port);
	if (ctx->protocol != IPPROTO_TCP || port == SSH || port < first_port || port > last_port)
		return 0;
	struct prefix host = {.bits = 32 + 128, .v4 = is_v4(server->ip.word), .ip = server->ip};
	struct addr *source = bpf_map_lookup_elem(&networks, &host);
	if (!source || of_this_host(&server->ip) || bpf_map_lookup_elem(&tunnels, server))
		return 0;
	struct bpf_sock *sk = ctx->sk;
	// A socket that is bound to a device does not reach the listener, nor one of another network namespace.
	if (!sk || sk->mark == mark || sk->bound_dev_if || bpf_get_netns_cookie(ctx) != netns)
		return 0;
	return source;
}

// listens reports whether the proxy's listener is there.
INLINE int listens(void *ctx, int v4) {
	__u32 zero = 0;
	struct listeners *at = bpf_map_lookup_elem(&listening, &zero);
	return at && listener_of(ctx, v4, v4 ? NET16(at->port4) : NET16(at->port6)) == PROXY;
}

enum verdict { PASS, TAKE, REFUSE };

// redirected reports whether a dead proxy's program has just redirected this connection. For a moment its programs and the next proxy's
// are both attached, share the flows, and run one after the other: the second one sees loopback for a destination.
INLINE int redirected(__u64 cookie, const struct end *server) {
	const __u32 *w = server->ip.word;
	struct flow *f = bpf_map_lookup_elem(&flows, &cookie);
	if (!f)
		return 0;
	__u16 at = f->server.at;
	if (!at) // the dead proxy's version did not note it
		at = is_v4(w) ? NET16(awaited4) : NET16(awaited6);
	return at == server->port && (is_v4(w) ? w[3] == NET32(0x7f000001) : !(w[0] | w[1] | w[2]) && w[3] == NET32(1));
}

// judge decides about a connection to server, and remembers it if it is taken.
INLINE enum verdict judge(struct bpf_sock_addr *ctx, const struct end *server, struct addr *source) {
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct addr *from = wanted(ctx, server);
	if (!from) {
		if (!redirected(cookie, server))
			bpf_map_delete_elem(&flows, &cookie); // the socket may have been tried on another destination before
		return PASS;
	}
	*source = *from;
	struct flow f = {
		.server = {.ip = server->ip, .port = server->port, .at = is_v4(server->ip.word) ? NET16(listen4) : NET16(listen6)},
		.opened = bpf_ktime_get_ns(),
	};
	struct total *t = total();
	if (state_of(!refuse || listens(ctx, is_v4(server->ip.word))) != DEAD && !bpf_map_update_elem(&flows, &cookie, &f, 0)) {
		if (t)
			ADD(t->taken, 1);
		return TAKE;
	}
	bpf_map_delete_elem(&flows, &cookie);
	if (!refuse)
		return PASS;
	if (t)
		ADD(t->refused, 1);
	return REFUSE;
}

// bind4 and bind6 give a socket that has no address yet the one that it would have had towards the server, so that it is
// not known by the loopback's. Where that fails it is, and the connection works all the same.
INLINE void bind4(struct bpf_sock_addr *ctx, __u32 source) {
	struct bpf_sock *sk = ctx->sk;
	struct sockaddr_in a = {.family = AF_INET, .addr = source};
	if (sk && !sk->src_ip4 && source)
		bpf_bind(ctx, &a, sizeof(a));
}

INLINE void bind6(struct bpf_sock_addr *ctx, const struct addr *source) {
	struct bpf_sock *sk = ctx->sk;
	if (!sk || sk->src_ip6[0] | sk->src_ip6[1] | sk->src_ip6[2] | sk->src_ip6[3] || is_zero(source->word))
		return;
	struct sockaddr_in6 a = {.family = AF_INET6};
	a.addr[0] = source->word[0];
	a.addr[1] = source->word[1];
	a.addr[2] = source->word[2];
	a.addr[3] = source->word[3];
	bpf_bind(ctx, &a, sizeof(a));
}

// A connection is refused by redirecting it to port 0 of the loopback, on which nobody can listen: it ends with ECONNREFUSED
// as if the server had refused it, which no kernel before 5.18 lets a program say.

SEC("cgroup/connect4")
int gp_connect4(struct bpf_sock_addr *ctx) {
	struct addr source;
	struct end server = {.port = ctx->user_port};
	set_v4(&server.ip, ctx->user_ip4);
	enum verdict v = judge(ctx, &server, &source);
	if (v == PASS)
		return 1;
	if (v == TAKE)
		bind4(ctx, source.word[3]);
	ctx->user_ip4 = NET32(0x7f000001);
	ctx->user_port = v == TAKE ? NET16(listen4) : 0;
	return 1;
}

SEC("cgroup/connect6")
int gp_connect6(struct bpf_sock_addr *ctx) {
	struct addr source;
	struct end server = {.port = ctx->user_port};
	server.ip.word[0] = ctx->user_ip6[0];
	server.ip.word[1] = ctx->user_ip6[1];
	server.ip.word[2] = ctx->user_ip6[2];
	server.ip.word[3] = ctx->user_ip6[3];
	enum verdict v = judge(ctx, &server, &source);
	if (v == PASS)
		return 1;
	if (v == TAKE)
		bind6(ctx, &source);
	if (is_v4(server.ip.word)) { // an IPv4 connection of an IPv6 socket
		ctx->user_ip6[3] = NET32(0x7f000001);
		ctx->user_port = v == TAKE ? NET16(listen4) : 0;
		return 1;
	}
	ctx->user_ip6[0] = 0;
	ctx->user_ip6[1] = 0;
	ctx->user_ip6[2] = 0;
	ctx->user_ip6[3] = NET32(1);
	ctx->user_port = v == TAKE ? NET16(listen6) : 0;
	return 1;
}

// gp_egress drops the first packets of redirected connections while the proxy is awaited: the client's kernel repeats them. If none comes
// in time they pass, and the closed port refuses them; another process's listener there never gets one.
SEC("cgroup_skb/egress")
int gp_egress(struct __sk_buff *skb) {
	struct bpf_sock *sk = skb->sk;
	if (!sk || sk->state != BPF_TCP_SYN_SENT)
		return 1;
	__u64 cookie = bpf_get_socket_cookie(skb);
	struct flow *f = bpf_map_lookup_elem(&flows, &cookie);
	if (!f)
		return 1;
	enum listener l = listener_of(skb, is_v4(f->server.ip.word), sk->dst_port);
	enum proxy_state state = state_of(l == PROXY);
	if (state == ALIVE)
		return 1;
	if (state == AWAITED && bpf_ktime_get_ns() - f->opened < hold)
		return 0;
	return l == NOBODY;
}

// gp_sock marks the TCP sockets that the proxy makes, as SO_MARK would, for which the proxy needs no capability then.
SEC("cgroup/sock_create")
int gp_sock(struct bpf_sock *ctx) {
	if (ctx->protocol == IPPROTO_TCP)
		ctx->mark = mark;
	return 1;
}

// peer_of returns the destination that the client with this end dialled, if it is connected to a listener. It is not found by the
// socket's cookie: the cookie of a Multipath TCP socket is not the one of the subflow that was redirected.
INLINE struct end *peer_of(struct bpf_sock_addr *ctx, const struct end *client, __u16 listener) {
	if (ctx->user_port != NET16(listener))
		return 0;
	struct dial *t = bpf_map_lookup_elem(&dialled, client);
	return t ? &t->server : 0;
}

SEC("cgroup/getpeername4")
int gp_getpeername4(struct bpf_sock_addr *ctx) {
	struct bpf_sock *sk = ctx->sk;
	if (!sk || ctx->user_ip4 != NET32(0x7f000001))
		return 1;
	struct end client = {.port = NET16(sk->src_port)};
	set_v4(&client.ip, sk->src_ip4);
	struct end *server = peer_of(ctx, &client, listen4);
	if (!server)
		return 1;
	ctx->user_ip4 = server->ip.word[3];
	ctx->user_port = server->port;
	return 1;
}

SEC("cgroup/getpeername6")
int gp_getpeername6(struct bpf_sock_addr *ctx) {
	struct bpf_sock *sk = ctx->sk;
	if (!sk)
		return 1;
	struct end *server, client = {.port = NET16(sk->src_port)};
	struct addr to = {};
	to.word[0] = ctx->user_ip6[0];
	to.word[1] = ctx->user_ip6[1];
	to.word[2] = ctx->user_ip6[2];
	to.word[3] = ctx->user_ip6[3];
	if (is_v4(to.word) && to.word[3] == NET32(0x7f000001)) {
		set_v4(&client.ip, sk->src_ip4);
		server = peer_of(ctx, &client, listen4);
	} else if (!(to.word[0] | to.word[1] | to.word[2]) && to.word[3] == NET32(1)) {
		client.ip.word[0] = sk->src_ip6[0];
		client.ip.word[1] = sk->src_ip6[1];
		client.ip.word[2] = sk->src_ip6[2];
		client.ip.word[3] = sk->src_ip6[3];
		server = peer_of(ctx, &client, listen6);
	} else {
		return 1;
	}
	if (!server)
		return 1;
	ctx->user_ip6[0] = server->ip.word[0];
	ctx->user_ip6[1] = server->ip.word[1];
	ctx->user_ip6[2] = server->ip.word[2];
	ctx->user_ip6[3] = server->ip.word[3];
	ctx->user_port = server->port;
	return 1;
}

// count takes over the kernel's counters of the socket. Events of one socket come one after another.
INLINE void count(struct bpf_sock_ops *ops, struct flow *f) {
	struct flow now = {
		.sent = ops->bytes_acked - f->sent_base,
		.received = ops->bytes_received,
		.segments_sent = ops->segs_out,
		.segments_received = ops->segs_in,
	};
	struct total *t = total();
	if (t) {
		ADD(t->sent, now.sent - f->sent);
		ADD(t->received, now.received - f->received);
		ADD(t->segments_sent, now.segments_sent - f->segments_sent);
		ADD(t->segments_received, now.segments_received - f->segments_received);
	}
	f->sent = now.sent;
	f->received = now.received;
	f->segments_sent = now.segments_sent;
	f->segments_received = now.segments_received;
}

// established runs before the listener's accept returns, since the client's last packet of the handshake comes after it.
INLINE void established(struct bpf_sock_ops *ops, struct flow *f) {
	f->sent_base = ops->bytes_acked; // the SYN counts as a byte
	f->client.port = NET16(ops->local_port);
	if (ops->family == AF_INET) {
		set_v4(&f->client.ip, ops->local_ip4);
	} else {
		f->client.ip.word[0] = ops->local_ip6[0];
		f->client.ip.word[1] = ops->local_ip6[1];
		f->client.ip.word[2] = ops->local_ip6[2];
		f->client.ip.word[3] = ops->local_ip6[3];
	}
	struct dial t = {.server = {.ip = f->server.ip, .port = f->server.port}};
	bpf_map_update_elem(&dialled, &f->client, &t, 0);
	bpf_sock_ops_cb_flags_set(ops, BPF_SOCK_OPS_STATE_CB_FLAG | BPF_SOCK_OPS_RTT_CB_FLAG);
}

// closed forgets the destination that the client dialled, unless the proxy has yet to ask.
INLINE void closed(struct flow *f) {
	f->closed = bpf_ktime_get_ns();
	struct dial *t = bpf_map_lookup_elem(&dialled, &f->client);
	if (!t)
		return;
	t->left = 1;
	if (t->asked)
		bpf_map_delete_elem(&dialled, &f->client);
}

SEC("sockops")
int gp_sockops(struct bpf_sock_ops *ops) {
	__u32 op = ops->op;
	if (op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && op != BPF_SOCK_OPS_STATE_CB && op != BPF_SOCK_OPS_RTT_CB)
		return 1;
	__u64 cookie = bpf_get_socket_cookie(ops);
	struct flow *f = bpf_map_lookup_elem(&flows, &cookie);
	if (!f)
		return 1;
	if (op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB) {
		established(ops, f);
		return 1;
	}
	count(ops, f);
	if (op == BPF_SOCK_OPS_STATE_CB && ops->args[1] == BPF_TCP_CLOSE)
		closed(f);
	return 1;
}

// The same as sockaddr_in and sockaddr_in6, in a buffer of which only that much is known of its alignment.
struct answer4 {
	__u16 family, port;
	__u32 addr;
	__u8 zero[8];
} __attribute__((packed, aligned(2)));

struct answer6 {
	__u16 family, port;
	__u32 flowinfo, addr[4], scope;
} __attribute__((packed, aligned(2)));

// gp_getsockopt answers for the kernel, which knows of no translation.
SEC("cgroup/getsockopt")
int gp_getsockopt(struct bpf_sockopt *ctx) {
	struct bpf_sock *sk = ctx->sk;
	if (ctx->optname != SO_ORIGINAL_DST || !sk)
		return 1;
	struct end client = {.port = sk->dst_port};
	if (ctx->level == IPPROTO_IP && sk->family == AF_INET && sk->src_port == listen4) {
		set_v4(&client.ip, sk->dst_ip4);
	} else if (ctx->level == IPPROTO_IPV6 && sk->family == AF_INET6 && sk->src_port == listen6) {
		client.ip.word[0] = sk->dst_ip6[0];
		client.ip.word[1] = sk->dst_ip6[1];
		client.ip.word[2] = sk->dst_ip6[2];
		client.ip.word[3] = sk->dst_ip6[3];
	} else {
		return 1;
	}
	struct dial *t = bpf_map_lookup_elem(&dialled, &client);
	if (!t)
		return 1;
	struct end *server = &t->server;
	if (ctx->level == IPPROTO_IP) {
		struct answer4 *a = ctx->optval;
		if ((void *)(a + 1) > ctx->optval_end)
			return 1;
		a->family = AF_INET;
		a->port = server->port;
		a->addr = server->ip.word[3];
		ctx->optlen = sizeof(*a);
	} else {
		struct answer6 *a = ctx->optval;
		if ((void *)(a + 1) > ctx->optval_end)
			return 1;
		a->family = AF_INET6;
		a->port = server->port;
		a->flowinfo = 0;
		a->addr[0] = server->ip.word[0];
		a->addr[1] = server->ip.word[1];
		a->addr[2] = server->ip.word[2];
		a->addr[3] = server->ip.word[3];
		a->scope = 0;
		ctx->optlen = sizeof(*a);
	}
	ctx->retval = 0;
	t->asked = 1;
	if (t->left)
		bpf_map_delete_elem(&dialled, &client);
	return 1;
}

// No helper is called that is kept for GPL programs since Linux 5.8.
char licence[] SEC("license") = "Apache-2.0";

// Package mesh keeps the ranks that JAX's processes have in the meshes of Gloo, as the job's coordination service
// tells them. The connections of a mesh do not carry ranks.
//
// # Records
//
// The processes of a mesh find each other by a store of keys and values. A process that takes part as rank r of a mesh
// sets one value:
//
//	key    "cpu:gloo/0,2048/1": the numbers of the mesh's devices, by rank, and r
//	value  u64 n, n bytes of the host's name
//	       u64 136, and 136 bytes: the address of the process's listener, as struct sockaddr_storage, and an i64
//	       i64 for each rank: the number by which that rank must introduce itself, counted by the listener
//
// Integers are little-endian, but for the port and the IP address. Of two ranks one connects to the other's listener
// (https://github.com/pytorch/gloo, gloo/transport/tcp/context.cc), and its first 8 bytes are the number that the
// listener's record has for it. So listener and number tell the mesh and both ranks, however many meshes and ranks
// share the two hosts. Each process reads the records of all ranks before it sends anything to one of them.
package mesh

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser/lru"
)

// Bounds of a Table, and of its records.
const (
	MaxKey    = 1 << 10 // bytes of a key
	MaxRecord = 4 << 10 // bytes of a value
	maxRanks  = 64      // of a mesh
	maxHost   = 255     // bytes of a host's name
	maxMeshes = 1 << 9
	maxLinks  = 1 << 15 // ordered pairs of ranks, in all meshes together
)

// A Table has the records of meshes, the newest of them. The zero Table is empty. It is safe for concurrent use. A nil
// Table stays empty.
type Table struct {
	mu     sync.Mutex
	meshes lru.Cache[name, []member]
	links  int // sum of the squares of the meshes' numbers of ranks
}

// A name names a mesh: by its job, and by its devices. If no job is configured, the peer takes the place of the job.
type name struct{ job, peer, devices string }

// A member is one rank of a mesh. The zero member is not known.
type member struct {
	listener netip.AddrPort
	numbers  []int64 // by rank: the number by which it introduces itself; used: a connection has come with it
	sum      uint64  // of the record
}

// used stands for a number with which no connection will come any more. A rank connects to another one once.
const used = -1

// A Pair is the ranks of a connection's two ends, and the number of ranks in their mesh.
type Pair struct{ Client, Server, Ranks int }

// Note takes note of a value that the store has for a key. Values of other uses of the store change nothing. A record
// that differs from the one before it is of a new run of the job, so the others of its mesh count no more.
func (t *Table) Note(job, peer, key string, value []byte) {
	devices, rank, ranks, ok := parseKey(key)
	if t == nil || !ok {
		return
	}
	m, ok := parseRecord(value, ranks)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := nameOf(job, peer, devices)
	members, known := t.meshes.Use(n)
	if known && members[rank].sum == m.sum {
		return
	}
	if !known {
		t.links += ranks * ranks
	}
	if !known || members[rank].listener.IsValid() {
		members = make([]member, ranks)
	}
	members[rank] = m
	t.meshes.Put(n, members)
	for t.meshes.Len() > maxMeshes || t.links > maxLinks {
		oldest, members, _ := t.meshes.Oldest()
		t.meshes.Delete(oldest)
		t.links -= len(members) * len(members)
	}
}

// Join returns the ranks of the two ends of a connection that has begun with number. It returns false if they are not
// certain: if no record, or more than one, has that number at the server's address, or if the rank that it stands for
// does not listen at the client's host. It returns the ranks of a connection once only, since a later connection with
// that number at that address is of other processes.
func (t *Table) Join(job, peer string, client, server netip.AddrPort, number int64) (p Pair, ok bool) {
	if t == nil || number < 0 {
		return Pair{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []member
	for n, members := range t.meshes.FromNewest() {
		if n != nameOf(job, peer, n.devices) {
			continue
		}
		for to := range members {
			if members[to].listener != unmapped(server) {
				continue
			}
			for from, x := range members[to].numbers {
				if x != number {
					continue
				}
				if found != nil {
					return Pair{}, false
				}
				found, p = members, Pair{from, to, len(members)}
			}
		}
	}
	if found == nil || p.Client == p.Server || found[p.Client].listener.Addr() != client.Addr().Unmap() {
		return Pair{}, false
	}
	found[p.Server].numbers[p.Client], found[p.Client].numbers[p.Server] = used, used
	return p, true
}

func nameOf(job, peer, devices string) name {
	if job != "" {
		peer = ""
	}
	return name{job, peer, devices}
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// parseKey returns the parts of a record's key.
func parseKey(key string) (devices string, rank, ranks int, ok bool) {
	rest, ok := strings.CutPrefix(key, "cpu:gloo/")
	devices, last, cut := strings.Cut(rest, "/")
	if !ok || !cut || len(key) > MaxKey {
		return "", 0, 0, false
	}
	for id := range strings.SplitSeq(devices, ",") {
		if _, err := strconv.ParseUint(id, 10, 63); err != nil {
			return "", 0, 0, false
		}
		ranks++
	}
	rank, err := strconv.Atoi(last)
	if err != nil || rank < 0 || rank >= ranks || ranks < 2 || ranks > maxRanks || strconv.Itoa(rank) != last {
		return "", 0, 0, false
	}
	return strings.Clone(devices), rank, ranks, true
}

// parseRecord reads the record of a rank, one of ranks.
func parseRecord(b []byte, ranks int) (m member, ok bool) {
	const addressLen = 128 + 8
	r := reader{rest: b}
	r.bytes(min(r.uint64(), maxHost+1))
	length := r.uint64()
	address := r.bytes(addressLen)
	if r.short || len(b) > MaxRecord || length != addressLen || len(r.rest) != 8*ranks {
		return member{}, false
	}
	m = member{listener: parseAddress(address), sum: xxhash.Sum64(b)}
	seen := map[int64]bool{}
	for range ranks {
		x := int64(r.uint64())
		if x < 0 || seen[x] {
			return member{}, false
		}
		seen[x] = true
		m.numbers = append(m.numbers, x)
	}
	return m, m.listener.IsValid()
}

// parseAddress reads a struct sockaddr_storage of Linux. It returns the zero AddrPort if it is of another kind.
func parseAddress(b []byte) netip.AddrPort {
	const inet, inet6 = 2, 10
	port := binary.BigEndian.Uint16(b[2:])
	switch binary.LittleEndian.Uint16(b) {
	case inet:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port)
	case inet6:
		return unmapped(netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), port))
	}
	return netip.AddrPort{}
}

// A reader reads fields from the front of its bytes.
type reader struct {
	rest  []byte
	short bool // a field was beyond the end
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.rest, r.short = nil, true
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.bytes(8)) }

package prober

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/gradproxy/gradproxy/bpf/probe"
)

// A request is one datagram of a socket pair, and its answer the next one the other way. Numbers are big-endian.
//
//	request  op(1) zero(3) process(4) tag(4) far(18), with a descriptor for opLook
//	answer   status(1) zero(3) and, by the op,
//	         opLoad    nothing, with the descriptor of the newest calls' memory (probe.Recent) if there is one
//	         opLook    process(4) pid(4) identity(8) epoch(4) place(4) name
//	         opCalls   calls, each source(8) elements(8) storage(8) ranks(4) freed(4) rank(4) members(4) type(1) operator(1) bucket(1) zero(1)
//	         opCounts  reduces(4) buckets(4) reducer_buckets(4) others(4)
//	         opLiving  processes(4 each)
//	         or, by the status, pid(4) and the words of an error
//
// An address is 16 bytes, IPv4 as ::ffff:a.b.c.d, and a port (2).
type request struct {
	op      op
	process uint32 // the prober's name of a process, for opCalls and opCounts
	tag     uint32 // of opCalls
	far     netip.AddrPort
}

type op byte

const (
	opLoad   op = iota + 1 // load the programs
	opLook                 // look for the process at the other end of a connection, which may see it as one to far
	opCalls                // the calls of a process that have been given a tag
	opCounts               // the counts of a process's calls
	opLiving               // forget the processes that have ended, and name the others
)

type status byte

const (
	statusDone        status = iota
	statusFailed             // the words say why
	statusSocket             // probe.ErrSocket
	statusNotAccepted        // probe.ErrNotAccepted
	statusEnded              // the process's proof has ended, or it is not known
)

const (
	addressLen = 18
	requestLen = 12 + addressLen
	headLen    = 4
	callLen    = 44
	countsLen  = 16

	maxProcesses = 1024 // that a prober knows
	maxCalls     = 256  // in an answer: one for each group and layout
	maxWords     = 1024 // of an error or a name
	maxAnswer    = headLen + maxCalls*callLen
)

var errForm = errors.New("prober: a datagram is out of form")

func (r *request) encode() []byte {
	b := append(make([]byte, 0, requestLen), byte(r.op), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, r.process)
	b = binary.BigEndian.AppendUint32(b, r.tag)
	b = append(b, make([]byte, addressLen)...)
	if r.far.IsValid() {
		a := r.far.Addr().As16()
		copy(b[12:], a[:])
		binary.BigEndian.PutUint16(b[28:], r.far.Port())
	}
	return b
}

// decodeRequest reads a request in its only form.
func decodeRequest(b []byte) (r request, err error) {
	if len(b) != requestLen || b[1] != 0 || b[2] != 0 || b[3] != 0 {
		return r, errForm
	}
	r.op, r.process, r.tag = op(b[0]), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	if r.op < opLoad || r.op > opLiving {
		return r, errForm
	}
	if port := binary.BigEndian.Uint16(b[28:]); port != 0 {
		r.far = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[12:28])).Unmap(), port)
	}
	return r, nil
}

func head(s status) []byte { return []byte{byte(s), 0, 0, 0} }

// failure returns the answer that tells an error about a process.
func failure(s status, pid int, words string) []byte {
	return append(binary.BigEndian.AppendUint32(head(s), uint32(pid)), words[:min(len(words), maxWords)]...)
}

// A refusal is an answer that is an error.
type refusal struct {
	pid   int
	words string
	is    error
}

func (r *refusal) Error() string { return r.words }
func (r *refusal) Unwrap() error { return r.is }

var errEnded = errors.New("prober: the process's proof has ended")

// open returns the body of an answer, or the error that it is.
func open(answer []byte) ([]byte, error) {
	if len(answer) < headLen || answer[1] != 0 || answer[2] != 0 || answer[3] != 0 {
		return nil, errForm
	}
	s, body := status(answer[0]), answer[headLen:]
	if s == statusDone {
		return body, nil
	}
	is, known := map[status]error{statusFailed: nil, statusSocket: probe.ErrSocket, statusNotAccepted: probe.ErrNotAccepted, statusEnded: errEnded}[s]
	if !known || len(body) < 4 {
		return nil, errForm
	}
	return nil, &refusal{int(binary.BigEndian.Uint32(body)), string(body[4:]), is}
}

func appendCall(b []byte, c *probe.Call) []byte {
	b = binary.BigEndian.AppendUint64(b, c.Source)
	b = binary.BigEndian.AppendUint64(b, c.Elements)
	b = binary.BigEndian.AppendUint64(b, c.Storage)
	for _, n := range []uint32{uint32(c.Ranks), c.Freed, uint32(c.Member.Rank), uint32(c.Member.Ranks)} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	bucket := byte(0)
	if c.Bucket {
		bucket = 1
	}
	return append(b, c.Type, c.Op, bucket, 0)
}

// decodeCalls appends the calls of an answer.
func decodeCalls(dst []probe.Call, b []byte) ([]probe.Call, error) {
	if len(b)%callLen != 0 {
		return dst, errForm
	}
	for ; len(b) > 0; b = b[callLen:] {
		dst = append(dst, probe.Call{
			Source: binary.BigEndian.Uint64(b), Elements: binary.BigEndian.Uint64(b[8:]), Storage: binary.BigEndian.Uint64(b[16:]),
			Ranks: int(binary.BigEndian.Uint32(b[24:])), Freed: binary.BigEndian.Uint32(b[28:]),
			Member: probe.Member{Rank: int(binary.BigEndian.Uint32(b[32:])), Ranks: int(binary.BigEndian.Uint32(b[36:]))},
			Type:   b[40], Op: b[41], Bucket: b[42] == 1,
		})
	}
	return dst, nil
}

func encodeCounts(c probe.Counts) []byte {
	b := head(statusDone)
	for _, n := range []uint32{c.Reduces, c.Buckets, c.ReducerBuckets, c.Others} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

func decodeCounts(b []byte) (c probe.Counts, err error) {
	if len(b) != countsLen {
		return c, errForm
	}
	word := func(i int) uint32 { return binary.BigEndian.Uint32(b[4*i:]) }
	return probe.Counts{Reduces: word(0), Buckets: word(1), ReducerBuckets: word(2), Others: word(3)}, nil
}

// A sight is the answer to opLook.
type sight struct {
	process  uint32
	pid      int
	identity uint64
	place    probe.Place
	name     string
}

func (x *sight) encode() []byte {
	b := binary.BigEndian.AppendUint32(head(statusDone), x.process)
	b = binary.BigEndian.AppendUint32(b, uint32(x.pid))
	b = binary.BigEndian.AppendUint64(b, x.identity)
	b = binary.BigEndian.AppendUint32(b, x.place.Epoch)
	b = binary.BigEndian.AppendUint32(b, x.place.Index)
	return append(b, x.name[:min(len(x.name), maxWords)]...)
}

func decodeSight(b []byte) (x sight, err error) {
	if len(b) < 24 {
		return x, errForm
	}
	place := probe.Place{Epoch: binary.BigEndian.Uint32(b[16:]), Index: binary.BigEndian.Uint32(b[20:])}
	return sight{binary.BigEndian.Uint32(b), int(binary.BigEndian.Uint32(b[4:])), binary.BigEndian.Uint64(b[8:]), place, string(b[24:])}, nil
}

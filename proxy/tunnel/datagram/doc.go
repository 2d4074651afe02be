// Package datagram carries records over a network of datagrams, which may lose, double, delay and reorder them. It has
// no sockets, no goroutines and no clock: an Engine is told of each packet that comes and of the time, and says which
// packet leaves next and when. So all of it is tested in virtual time.
//
// The methods are QUIC's, without its streams, since the tunnel has streams of its own: a lost packet holds up only the
// records that had a part in it.
//
//	a packet comes, and leaves     handle.go, next.go
//	packets and acknowledgements   packet.go, ranges.go    after RFC 9000, sections 13 and 19
//	their delay                    ackdelay.go             after RFC 9000, section 13.2
//	round trips, losses, probes    rtt.go, recovery.go     after RFC 9002
//	very many losses               outcome.go
//	rate of delivery               rate.go                 after draft-ietf-ccwg-bbr, section 4.1
//	congestion control             bbr.go                  BBRv3, after draft-ietf-ccwg-bbr
//	size of packets                mtu.go                  after RFC 8899
//	repair of a burst's end        repair.go               an XOR for each ten packets, on paths that lose some
//	marks of congestion            marks.go                after RFC 3168, and RFC 9000, section 13.4
//	records                        record.go, send.go, receive.go
//
// # Packets
//
// A packet is the content of one datagram, which the layer below must encrypt and authenticate. It begins with the low
// 3 bytes, big-endian, of its number, which counts from 0 and is never used twice; some numbers are left out. A
// receiver takes the number that is nearest to the next one it awaits. Frames follow, each a byte and its fields;
// numbers are unsigned varints as encoding/binary has them:
//
//	0  padding     to the end of the packet. If the next byte is 1, three numbers follow: how many packets have come with the marks
//	               ECT(0), ECT(1) and CE. If it is 2, a repair follows: the number of a packet, a mask of packets from that one on,
//	               and the XOR of the lengths (2 bytes, big-endian) and of the bytes of their fragments. Else the bytes mean nothing
//	1  ping        asks for an acknowledgement soon (ackdelay.go)
//	2  ack         largest number, delay in µs, limit, number of further ranges, numbers before the largest in the first range;
//	               and for each further range: numbers missing before the last range, less one, and numbers in the range, less one
//	16 fragment    record number, distance to the fence (flag 4), length of the record, offset, length (not with flag 8), the bytes
//
// To the 16 of a fragment add the order of its record and its flags; with flag 8 the bytes are the rest of the packet.
//
// Records are numbered from 1 in the order in which they were queued. The limit of an ack is the sum of the lengths of
// all records that the other end may have begun to send.
package datagram

// Package tunnel carries many streams of bytes between sites over a few authenticated connections, the carriers.
// Streams outlive carriers. Every byte has a 64-bit offset in its stream, and the sender keeps it until it is
// acknowledged. When a carrier is lost, the unacknowledged bytes that left on it leave again on another carrier. So one
// mechanism spreads a stream over carriers, replaces carriers (a key wears out, a certificate ends), and resumes after
// an outage.
//
// # Sessions
//
// Two sites share one session at a time. Each side names its half of the session by an incarnation, 128 random bits. It
// draws a new incarnation when it starts and when it gives a session up: after Config.Resume without a carrier, or when
// the peer breaks the protocol. A carrier belongs to the session of a pair of incarnations. A carrier with a pair that
// a side does not know ends that side's older session, whose streams are all lost. But if a carrier of the older
// session still answers PING, the new carrier is one of another proxy with the same certificate, and is refused. Only
// the certificate says which site a peer is: see Config.Peers.
//
// # Wire
//
// A carrier is TLS 1.3 with ALPN "gradprox" over TCP (tls.go), DTLS 1.2 over UDP (dtls.go) or, if asked for by name,
// the connection in clear, on loopback only. It carries records. Numbers are big-endian.
//
//	length uint32 | kind uint8 | flags uint8 | stream uint48 | value uint64 | body, length bytes
//
//	kind        value           body
//	 1 HELLO    0               see below; the first record in each direction
//	 2 READY    0               incarnation of the receiver (16 bytes): the carrier is attached
//	 3 END      0               text, up to 1 KiB: the sender gives the session up, and says why
//	 4 DATA     offset          bytes of the stream, up to the receiver's limit; flag 1 FIN: the direction ends after them
//	 5 WINDOW   acknowledged    uint64: credit, the offset up to which DATA may be sent.
//	                            Stream 0: how many streams the receiver may open in all
//	 6 RESET    final offset    uint32: code. The sender aborts both directions; its own ends at that offset
//	 7 DONE     0               the sender has forgotten the stream
//	 8 PING     any             to be answered on the same carrier
//	 9 PONG     that of PING    the sender has taken all records before the PING
//	10 GOAWAY   0               the sender takes no new streams
//	11 LEAVE    0               the sender sends no more DATA on this carrier, and asks for the same
//	12 PAD      0               up to 4 KiB, dropped; sent only to peers whose HELLO says that they take it. See padding.go
//
// Records of TLS all have content: over 64 without any, as key updates are, end the session.
//
// If the HELLO of a session's first carrier says that the peer takes them, DATA, WINDOW and DONE for a stream have a
// short header instead (short.go), but for WINDOW and DONE from a side that pads (padding.go). Its first byte says so,
// where a long header begins with 0. Its numbers are unsigned varints as encoding/binary has them:
//
//	128 + 32 × form + n, uint8 | numbers, n bytes | body
//
//	form 0   DATA: stream, offset, length of the body     form 1   the same with FIN
//	form 2   WINDOW: stream, acknowledged, credit         form 3   DONE: stream
//
// An unknown kind or flag, a length that its kind cannot have, DATA beyond credit, beyond the end of its direction or
// overlapping DATA that came with other bounds, a stream beyond the limit and an acknowledgement of bytes that were not
// sent end the session: nothing can be believed any longer. All of it is checked before anything is allocated.
//
// HELLO is "gradprox", the oldest and the newest version that the sender speaks (uint16 each), and fields:
//
//	id uint16 | length uint16 | value
//
//	1 site name   2 incarnation   3 the receiver's incarnation, if known   4 longest DATA body (uint32, at least 16 KiB)
//	5 streams that the receiver may open at first (uint32)   6 credit that each stream begins with (uint32, at least 16 KiB)
//	7 name of a codec, once for each   8 place of the carrier: slot uint8, flags uint8 (1: replaces a dead one), generation uint64
//	9 the sender takes PAD records (no value)   10 the sender takes short headers (no value)
//
// Fields that are not known are skipped, and so are bytes behind the known part of one. Both sides use the
// newest version that both speak. The dialer sends HELLO; the acceptor HELLO and READY; the dialer READY.
//
// The connection that carries the records is behind the interface Transport. TLS over TCP is one implementation
// (tls.go). The records of a carrier that are for streams need not arrive in the order in which they left; see Link.
//
// # Streams
//
// The side with the smaller incarnation opens streams 2, 4, 6, …, the other 1, 3, 5, …; none twice. There is no
// record for it: DATA (or RESET) of an id not yet seen opens the stream, whichever of its DATA comes first. Its
// first bytes are the opening (uint16 length, bytes), the first bytes of the other direction are the answer
// (uint32 code, 0 for yes; uint16 length, text). So they are replayed, ordered and paced like everything else.
//
// Positions count the bytes of a direction, and its end as one more: WINDOW acknowledges every position before
// its value. DATA is sent again with the same bounds. DATA that was acknowledged is dropped. WINDOW and RESET are
// sent again when the carrier is lost that they left on, and the greatest values count. RESET comes behind the
// bytes that have left, since its final offset says which they are; bytes that have not left are dropped. A side
// forgets a stream when both directions have ended and been acknowledged, or when it has had a RESET, and says
// so by DONE, which acknowledges everything. DONE is kept until a PONG vouches that it has arrived; DATA or RESET
// for a stream that is forgotten is answered by DONE. DONE for a stream that neither was reset nor has ended in both
// directions breaks the protocol. The limit on streams counts every stream that was ever opened and grows as they are
// forgotten, but not before their opening is answered, nor faster than the peer is told that they are. Openings
// beyond a rate wait before they are shown to Config.Accept (openings.go).
//
// # Carriers
//
// A session has up to 16 slots with a carrier each. The one in the lowest slot is the express: it takes small chunks
// (up to 16 KiB) of streams that have little under way, so that small messages do not stand behind bulk in a socket;
// offsets restore the order. The other carriers take chunks of any size, and so does a carrier that is alone. Where a
// round trip takes 4 ms or more, the express gathers small chunks (gather.go): after a packet of DATA it waits for an
// eighth of the round trip, at most 4 ms, for further chunks, if more than a few come. A chunk that comes later leaves
// at once. A WINDOW for few bytes waits up to two round trips, at most 25 ms, for a packet to ride with (lazy.go). If
// two carriers are in one slot, the one of the newer generation stays, and of two of one generation the dialer decides.
// The other carrier leaves: it sends no more DATA, and ends when everything that left on it is acknowledged. A carrier
// that has brought nothing for 15 s is dead (PING every 5 s).
//
// # Memory
//
// Config.Memory bounds the bytes in buffers of all sessions. A stream begins with a credit of 1/2048 of the budget, 16
// to 256 KiB. When its reader takes a whole window within four round trips, the stream gets more credit, up to 32 MiB,
// as long as all credit together stays below 80 % of the budget. Fuller buffers have consequences:
//
//	over 90 %   openings are refused
//	over 95 %   the stream with most bytes unread, or beyond a gap, is reset if its reader has taken nothing for a second
//	at 100 %    a stream with unread bytes that gets more is reset; Write waits until everything written is acknowledged
//	at 110 %    any stream that gets more bytes is reset
//
// Each peer has an even share of the budget, and feels these measures only if it uses as much of its share: one peer
// cannot take the memory that another needs. An idle stream holds no buffer and no goroutine.
//
// # Locks
//
// A goroutine that holds a lock may take only locks that stand below it here:
//
//	Endpoint.mu              the list of peers
//	peer.mu                  the peer's address, its current session and its next
//	Stream.writing, reading  one Write at a time, and one Read
//	session.mu               a session with its carriers and streams
//	recordGate.mu            records of DTLS on their way to a Link
//	datagramLink.mu          a Link over datagrams
//	locks of package udp     connections of datagrams, in the order that its package comment has
//	others                   identities, half-open handshakes, a peer's openings and choice, buffers before TLS, the keys and the memory of
//	                         datagrams: no lock is taken under them
//
// Each lock is a type that says its rank (rank.go), by which all tests of the package watch the order. The workers of
// dtls_cores.go, which seal and open units of large batches of records for all carriers over datagrams, hold no lock of
// these, and goroutines may wait for them under any.
//
// # Files
//
// A file uses only files further up in this list. An integration test holds them to it.
//
// Sessions, carriers and streams are one state under one lock. A session lists its carriers and its streams, which know
// neither each other nor the session. A stream that has bytes to send, or room to grant, enters the session's queues,
// and a carrier is woken. The session has a carrier take streams from these queues, notes for each stream which bytes
// left on it, and takes them back when it is lost. So whatever concerns two of the three is a method of the session. A
// Stream is a stream with its session, for the user; a peer calls its session, which calls no peer: it returns what has
// happened.
//
//	record, short, hello, ids, errors, transport   the wire, and the interface of a carrier's connection; tls, dtls and their files are below it
//	chunk, memory, half, queue, openings, meter …  state that knows no session, takes times and values, and returns decisions
//	near, far                                      this site and a peer as sessions know them
//	carrier, stream, session                       the state under a session's lock
//	enqueue, limit, send, ending, detach           a stream comes into the queues, ends, and a carrier is lost
//	gather, lazy, schedule, writer, alarms         a carrier takes from the queues and writes
//	credit, opening, receive, records              a record has come
//	handle, incoming, life, reader                 a stream for its user; an opening; a session begins and fails; it reads a carrier
//	read, write, open                              a stream is read, written and opened
//	starts, halfopen                               handshakes that begin at a rate, and connections whose handshake is not over
//	home, peer, endpoint                           this site as its peers know it, a peer with its session, and the list of peers
//	answer, rival, silence, watch, handshake, dial a peer's openings, its signs of life, and its carriers
//	relief, sources, choices, accept, stats, tunnel all peers together
package tunnel

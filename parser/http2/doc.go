// Package http2 reads HTTP/2 connections (RFC 9113) byte by byte, for the parsers of frameworks that speak it. It
// separates the content of streams from all other bytes. It changes no byte, holds none back and answers none: frames,
// their lengths and their order stay as they are.
//
// # Wire
//
// The client begins with a preface of 24 bytes. After it, and from the start in the other direction, come frames.
// Integers are big-endian.
//
//	frame   length (3 bytes), type, flags, stream (4 bytes, the first bit is reserved), payload
//	0 DATA           PADDED: pad length (1 byte) before the content, and as many bytes after it
//	1 HEADERS        PADDED likewise; PRIORITY: 5 bytes before the fragment of a header block
//	3 RST_STREAM     ends both directions of the stream
//	5 PUSH_PROMISE   PADDED likewise; 4 bytes before the fragment
//	9 CONTINUATION   the next fragment of a header block; no other frame may come before it
//
// The payloads of all other frames are passed over. A PING or a WINDOW_UPDATE that stands behind part of a tensor is
// kept in its place, so it waits as long as the proxy waits for more of the tensor, and never longer than the stall
// timer: 5 ms where nothing comes; where bytes drip, the first byte after 20 ms ends the wait. Each side's first frame
// is SETTINGS; a server sends its own without waiting for the client's.
//
// # Use
//
// [New] makes the two [Direction]s of a connection, each of them a [parser.Parser]. Its caller gives New a function,
// which gets the header fields of each request and returns an [Exchange] or nil. The Exchange gets the header fields
// that follow, and classifies the content of DATA frames as it comes. Content without an Exchange is opaque.
//
//	open ──▶ Exchange ◀── Headers(side, fields)       response, trailers
//	                  ◀── Data(side, b, rest)         content, in pieces of any size
//	                  ◀── Close()                     both sides have ended, or one has reset the stream
//
// Header blocks are compressed (HPACK, RFC 7541) with a state that every block of a direction changes. So a connection
// can be read only from its first byte on, and every header block is decoded, also that of a stream without an
// Exchange.
//
// # Limits
//
// A direction ends in an error, and travels verbatim from there, if it breaks the protocol, if a header block or the
// list of its fields is larger than 256 KiB, or if its encoder wants a dynamic table of more than 64 KiB. The decoder
// does not check that the other side has allowed the table's size (SETTINGS_HEADER_TABLE_SIZE): a decoder with a larger
// table reads the same fields, since entries are counted from the newest one. Of the streams that are open at the same
// time, the first 4,096 are read. Whatever a peer sends, a direction holds at most one header block, one table and
// these streams.
package http2

// Package handover knows the live connections of a proxy, brings them to rest, and hands them over to the process that
// takes the proxy's place.
//
// The [Table] has a [Seat] for each connection that is carried, counts the openings that are under way, and knows which
// process is being replaced: this one ([HandingOver]) or a peer's (a [Move]). It sees a connection as a [Conn], and
// carries no bytes.
//
// # Rest
//
// A connection comes to rest when a proxy at one of its ends is to be replaced by another process: both senders send
// the bytes that they have read, and a Rest frame behind them; both receivers deliver everything up to that frame.
// Nothing of the connection is under way then, in neither proxy, and its stream ends. It goes on over a new stream, by
// which the side that has opened the connection resumes it: a stream of the same session or of one with the new process
// ([Table.Again]). Slots are declared anew, and values that were shared are put anew where the session is another;
// parsers, residuals and the app's socket stay.
//
// The process that is replaced asks its peers for rest by a stream to each (ask.go), which the peer answers once all
// connections with the process are at rest there too (move.go). The peer's sender comes to rest first: an app that
// writes before it reads takes bytes only once its own have been read, so that sender goes on reading, and keeps the
// bytes that it reads for the next stream.
//
// # Locks
//
// The Table has one lock, since whether a hand-over is done depends on connections, openings and moves at once. Under
// it stand only the locks that a Conn's methods take; proxy/internal/rank has the order, and rank_test.go watches it.
// While the lock is held nothing is called that may wait or that calls back: no stream, no Config function but
// PeerCodecs, no Abort, no log.
package handover

// Package cache holds values of tensors at both ends of a tunnel: blocks of elements, so that the next value of a block
// can be coded as its difference to the last, and a value that several connections carry crosses the WAN once.
//
// A proxy puts values into its peer's store on a stream of its own that belongs to no app, the value stream: there
// nothing ever waits for an app that does not read, and the tunnel orders and replays it like any other. Connections
// then carry a Ref, at once and on any stream; the receiver of a Ref waits for the value while other connections go on.
// Each proxy of a pair opens a value stream to the other and writes on it ([Peer.Put], writer), and reads the one that
// the other has opened (store). Declare and Block mean there the same as on a connection's stream, but Blocks are not
// delivered: they are values, numbered from 1 in their order. Besides, there are control frames:
//
//	Room      = the bytes of values that the other may put here; the first frame
//	Forget    = numbers of values that no Ref will name any more
//	Evict     = slots that no difference will name any more, so that their copies may go
//	Delivered = pairs of a connection and how many Refs more were delivered on it; 0: the connection has ended here
//
// and Want, Kept and Seen, for values that predict the opposite direction (reverse.go, and counterpart.go for the side
// that keeps them). So the writer knows the content of the store, and it alone decides which value is evicted: a value
// lives until another has taken its place in its slot, or its slot was the one used least recently when room was
// needed, and every Ref to it has been delivered. A connection is named by its Tag.
//
// Where a framework sends bytes again, [Peer.PutParts] finds them by their content in the values that the other holds
// (index.go), so that the connection carries parts of values, in whatever pieces the bytes come. Such values are kept
// for a while after others have taken their place (parts.go).
//
// If a value stream is lost (the peer has a new incarnation) its values are lost at both ends: the next are put whole.
// A Ref carries the number of its value stream, its epoch, so that it cannot be taken for one of another stream.
//
// # Locks
//
// A goroutine that holds a lock may take only locks that stand below it here, and one of each:
//
//	Peer.submit  puts frames on the value stream in the order of their numbers; held while the stream's pipe has no room
//	Peer.mu      the writer's slots and entries, the connections' Refs, the content of the next control frames
//	store.mu     the store's entries and room
//	others       Cache.mu, pipes, budgets and pools: no lock of this list is taken under them
//
// rank.go names their ranks, by which tests check the order.
package cache

// Package relay passes bytes on between two TCP connections as they are, as a proxy does with a connection that has no
// peer to go through.
//
// On Linux a few threads wait for all connections (epoll(7)), so that an idle pair costs two descriptors and some 200
// bytes, and no goroutine: the caller gives a function that is called at the end. Bulk goes through the kernel only
// (splice(2)): a pair has a pipe while bytes are in it. Elsewhere it is two goroutines a pair.
//
// A relay promises:
//
//   - Every byte arrives once and in order. On Linux this includes bytes that were sent as urgent (MSG_OOB), which
//     arrive in line. A relay reads no more bytes from one connection than the other takes: beside the kernel's buffers
//     of the two at most a pipe's bytes wait (pipeSize, of the first few wideSize), or the ones that were read at once
//     (bufSize).
//   - Where the kernel has no pipe to give, or only small ones, bytes are copied: nothing but speed is lost.
//   - A FIN is passed on as a FIN, behind the last byte; the other direction goes on for as long as it likes.
//   - A reset is passed on as a reset, behind the bytes that came before it, as far as the other connection takes them.
//
// # Locks
//
// A goroutine that holds a lock may take only locks that stand below it here:
//
//	Relay.mu  the pairs that have not ended, and whether the Relay is closed
//	loop.mu   the pairs of a thread by descriptor, and the requests of others to the thread: no lock is taken under it
//
// Each lock is a type that says its rank (rank.go), by which all tests of the package watch the order. Callbacks of
// Config and Add are called without a lock.
package relay

// Config configures a Relay; the zero Config is a good one.
type Config struct {
	Threads int         // that wait; 0: one a core. On Linux only
	Pipes   int         // at most, of two descriptors each; beyond them bytes are copied. 0: 256. On Linux only
	Moved   func(n int) // called with the bytes that have just been passed on, of any pair; it must not wait. May be nil
}

// An Ending says how a pair has ended.
type Ending struct {
	Sent  [2]int64 // bytes that were passed on: from the first connection to the second, and back
	Reset bool     // one of them was reset, and so was the other
}

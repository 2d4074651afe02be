// Package app is the proxy's end of an app's connection: it reads with few wake-ups and little memory, writes, and
// finds out how the app leaves.
//
//	Conn     the socket, behind poll gates or not; Reset ends it by RST
//	Reader   takes memory only when there are bytes, reads into the caller's memory if it has some (direct read), and has the kernel
//	         (low water) and Go's poller (poll gate) keep silent as long as nobody waits
//	Watcher  tells whether an app leaves while its connection is still being opened
package app

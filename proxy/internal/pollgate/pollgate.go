// Package pollgate keeps a connection's events from Go's poller while nobody waits for them.
//
// Go has its poller told of all events of a connection from its first moment to its last (epoll(7), edge-triggered).
// For a sender that is always ahead each segment is one event, and each wakes a thread, on another core, that finds
// nobody waiting: that costs a proxy which codes gradients a tenth of its time. A poll gate stands between the two: an
// epoll instance of the connection's own, which Go's poller watches. After Conn.Disarm it reports bytes that come only
// while a Read waits.
package pollgate

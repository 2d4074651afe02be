package frame

import "github.com/gradproxy/gradproxy/proxy/tunnel"

// Codes with which the far proxy refuses a connection, as the near one logs and counts them.
const (
	RefusedBadOpening  = tunnel.CodeApp + iota // it does not understand the opening
	RefusedDenied                              // not on the allow-list
	RefusedByServer                            // the app's host answered with RST
	RefusedUnreachable                         // no answer, no route
	RefusedBusy                                // out of memory or descriptors, or it is draining
	RefusedMoving                              // another process is about to take its place: ask that one
	RefusedUnknown                             // it knows no connection at rest of that tag
)

// Codes with which a stream is reset.
const (
	ResetByApp    = tunnel.CodeApp + 64 + iota // the app's connection broke
	ResetByFrames                              // frames did not decode, or a verdict was false
)

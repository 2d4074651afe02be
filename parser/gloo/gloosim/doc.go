// Package gloosim speaks Gloo, the library under torch.distributed's "gloo" backend, in two ways:
//
//   - A [Group] is one rank's end of a real process group. It speaks Gloo's TCP transport byte for byte, so that a
//     reader of its connections cannot tell it from PyTorch. The demo trains on it.
//   - [Run] makes all connections of a job at once, for tests: every rank's part of its collectives, in a random order
//     that could be, with the truth about every message beside it.
//
// Both carry out the same tasks (task.go), a Group in group.go and pair.go, Run in job.go, and know nothing of how
// package gloo finds that truth out. The package is written from Gloo's sources (github.com/facebookincubator/gloo at
// cc44198, May 2025), to which comments refer by file.
//
// A group is a full mesh of connections, one for each pair of ranks. All integers on the wire are little-endian. Of a
// pair, the rank with the greater published address connects (transport/tcp/device.cc, isInitiator), and first writes
// its sequence number, 8 bytes, in one piece. Then both directions carry ops, each a preamble of six u64
// (transport/tcp/pair.h):
//
//	nbytes    48 + the payload that follows
//	opcode    1 SEND_UNBOUND_BUFFER, with payload; 2 NOTIFY_SEND_READY; 3 NOTIFY_RECV_READY
//	slot      which transfer: kind of collective << 56 | tag << 24 (types.h)
//	offset    0
//	length    bytes of the transfer
//	roffset   0
//
// No payload flows uninvited: the sender writes NOTIFY_SEND_READY, the receiver NOTIFY_RECV_READY, in whichever order,
// and a payload follows when both have been written. They are counted for each slot; between slots there is no order.
package gloosim

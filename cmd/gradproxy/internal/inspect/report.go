package inspect

import "github.com/gradproxy/gradproxy/tensor"

// unknown is the protocol of connections that no parser understands.
const unknown = "unknown"

// A Report is printed by inspect --json. Its names are stable.
type Report struct {
	Connections []Connection `json:"connections"` // in the order of their first packets
	Hosts       []HostPair   `json:"hosts"`       // the same, summed up by host and protocol
	Methods     []Method     `json:"methods"`     // of gRPC and HTTP calls with tensors, sorted by the bytes that lossless coding saves
	Policies    []Cost       `json:"policies"`    // the cost of each; lossless first
	WhatIf      *WhatIf      `json:"what_if,omitempty"`
}

// A Connection is one TCP connection.
type Connection struct {
	Client     string    `json:"client"` // ip:port of the end that sent SYN
	Server     string    `json:"server"`
	Protocol   string    `json:"protocol"`       // "unknown" if none
	Name       string    `json:"name,omitempty"` // of an unknown protocol, as far as its first bytes or its port tell
	Complete   bool      `json:"complete"`       // no byte is missing from SYN to close
	FromClient Direction `json:"from_client"`
	FromServer Direction `json:"from_server"`
}

// A Direction is the bytes of one end.
type Direction struct {
	Bytes           int       `json:"bytes"`            // of the TCP stream
	Messages        int       `json:"messages"`         // of the protocol
	PayloadMessages int       `json:"payload_messages"` // of these, the messages that carry bytes for the framework's user
	PayloadBytes    int       `json:"payload_bytes"`
	PayloadSHA256   string    `json:"payload_sha256"` // of all payloads, in stream order, in hexadecimal
	RoleBytes       RoleBytes `json:"role_bytes"`     // of payload_bytes, by the role that they would be coded as

	Lossless int `json:"-"` // size of Bytes under Lossless
}

// RoleBytes counts bytes by role.
type RoleBytes struct {
	Gradient  int `json:"gradient"`
	Aggregate int `json:"aggregate"`
	State     int `json:"state"`
	Exact     int `json:"exact"`
	Unknown   int `json:"unknown"`
}

func (b *RoleBytes) add(r tensor.Role, n int) {
	switch r {
	case tensor.Gradient:
		b.Gradient += n
	case tensor.Aggregate:
		b.Aggregate += n
	case tensor.State:
		b.State += n
	case tensor.Exact:
		b.Exact += n
	default:
		b.Unknown += n
	}
}

// plus returns the sum of both.
func (b RoleBytes) plus(c RoleBytes) RoleBytes {
	return RoleBytes{b.Gradient + c.Gradient, b.Aggregate + c.Aggregate, b.State + c.State, b.Exact + c.Exact, b.Unknown + c.Unknown}
}

// A Cost is the size of all connections under a policy: bytes for the tunnel, with the frames between the proxies,
// without the tunnel's own records, TLS, TCP and IP.
type Cost struct {
	Codec         string    `json:"codec"`     // the policy: CODEC of gradients and state, or CODEC+CODEC of these and aggregates
	RawBytes      int       `json:"raw_bytes"` // of the TCP streams
	Bytes         int       `json:"bytes"`
	Ratio         float64   `json:"ratio"` // RawBytes over Bytes
	Roles         RoleCosts `json:"roles"`
	ShortOfMemory bool      `json:"short_of_memory"` // so Bytes is too large: tensors were forgotten, and travelled exactly
}

// RoleCosts split a Cost by the parser's classes. Blocks that the content check sends exactly count for the
// role that the parser gave them.
type RoleCosts struct {
	Gradient  RoleCost `json:"gradient"`
	Aggregate RoleCost `json:"aggregate"`
	State     RoleCost `json:"state"`
	Exact     RoleCost `json:"exact"`
	Unknown   RoleCost `json:"unknown"`
	Opaque    RoleCost `json:"opaque"` // no tensor: headers, control, and connections of unknown protocols
}

// A RoleCost is a part of a Cost.
type RoleCost struct {
	RawBytes int `json:"raw_bytes"`
	Bytes    int `json:"bytes"`
}

// of returns the part of a role.
func (c *RoleCosts) of(r tensor.Role) *RoleCost {
	switch r {
	case tensor.Gradient:
		return &c.Gradient
	case tensor.Aggregate:
		return &c.Aggregate
	case tensor.State:
		return &c.State
	case tensor.Exact:
		return &c.Exact
	}
	return &c.Unknown
}

// add adds bytes to a part.
func (c *Cost) add(part *RoleCost, raw, wire int64) {
	part.RawBytes += int(raw)
	part.Bytes += int(wire)
	c.Bytes += int(wire)
}

package inspect

import "github.com/gradproxy/gradproxy/tensor"

// unknown is the protocol of connections that no parser understands.
const unknown = "unknown"

// A Report is what inspect --json prints. Its names are stable.
type Report struct {
	Connections []Connection `json:"connections"` // in the order of their first packets
}

// A Connection is one TCP connection.
type Connection struct {
	Client     string    `json:"client"` // ip:port of the end that sent SYN
	Server     string    `json:"server"`
	Protocol   string    `json:"protocol"` // "unknown" if none
	Complete   bool      `json:"complete"` // no byte is missing from SYN to close
	FromClient Direction `json:"from_client"`
	FromServer Direction `json:"from_server"`
}

// A Direction is what one end sent.
type Direction struct {
	Bytes           int       `json:"bytes"`            // of the TCP stream
	Messages        int       `json:"messages"`         // of the protocol
	PayloadMessages int       `json:"payload_messages"` // of these, those that carry bytes for the framework's user
	PayloadBytes    int       `json:"payload_bytes"`
	PayloadSHA256   string    `json:"payload_sha256"` // of all payloads, in stream order, in hexadecimal
	RoleBytes       RoleBytes `json:"role_bytes"`     // of payload_bytes, by what would be coded as what

	Lossless int `json:"-"` // Bytes with payloads coded losslessly
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

package inspect

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// headLen is how many of each side's first bytes are kept to name a protocol that no parser knows.
const headLen = 64

// signatures are the first bytes of protocols that no parser reads; inspect names them. The first match counts.
var signatures = []struct {
	name  string
	bytes string // of the client or of the server
}{
	{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}, // RFC 9113, section 3.4
	{"ssh", "SSH-"}, // RFC 4253, section 4.2
	{"HTTP/1", "HTTP/1."},
	{"NCCL", "\x6c\x9d\x4b\xfc\xf2\xb9\x4a\x56"}, // NCCL_SOCKET_MAGIC, little-endian
	{"Open MPI", "OPAL-TCP-BTL"},                 // of its byte transfer layer over TCP
	{"PyTorch TCPStore", "\x00\xce\xf7\x85\x3c"}, // a query that validates, and its magic number, little-endian
	{"BitTorrent", "\x13BitTorrent protocol"},
	{"Redis", "*1\r\n$"},
	{"rsync", "@RSYNCD:"},
}

// methods begin the requests of HTTP/1 (RFC 9110, section 9).
var methods = []string{"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "CONNECT ", "OPTIONS ", "TRACE ", "PATCH "}

// ports name the protocols of ports whose first bytes say little. They are only tried last.
var ports = map[uint16]string{21: "FTP", 22: "ssh", 53: "DNS", 88: "Kerberos", 111: "portmapper", 389: "LDAP", 443: "TLS", 445: "SMB", 636: "LDAP over TLS", 873: "rsync",
	988: "Lustre", 1883: "MQTT", 2049: "NFS", 2379: "etcd", 3260: "iSCSI", 3300: "Ceph", 5432: "PostgreSQL", 6379: "Redis", 6789: "Ceph", 9092: "Kafka", 11211: "memcached"}

// nameOf guesses the protocol of a connection from the first bytes of its client and its server, and its server's port;
// "": no guess. The bytes are anybody's. A connection without a byte says nothing, whatever its port.
func nameOf(client, server []byte, port uint16) string {
	for _, head := range [][]byte{client, server} {
		switch {
		case isTLS(head):
			return "TLS"
		case isZMTP(head):
			return "ZeroMQ"
		case isSettings(head):
			return "HTTP/2"
		}
		for _, s := range signatures {
			if bytes.HasPrefix(head, []byte(s.bytes)) {
				return s.name
			}
		}
		for _, m := range methods {
			if bytes.HasPrefix(head, []byte(m)) {
				return "HTTP/1"
			}
		}
	}
	if isPostgreSQL(client) {
		return "PostgreSQL"
	}
	if name := ports[port]; name != "" && len(client)+len(server) > 0 {
		return name + ", by its port"
	}
	return ""
}

// isTLS reports whether b begins a TLS record of type handshake with a hello in it (RFC 8446, sections 4 and 5.1).
func isTLS(b []byte) bool {
	return len(b) >= 6 && b[0] == 22 && b[1] == 3 && b[2] <= 4 && binary.BigEndian.Uint16(b[3:]) <= 1<<14 && (b[5] == 1 || b[5] == 2)
}

// isZMTP reports whether b begins a greeting of ZMTP 3 (RFC 23 of ZeroMQ): ten bytes of signature and a version.
func isZMTP(b []byte) bool {
	return len(b) >= 11 && b[0] == 0xff && b[9] == 0x7f && b[10] >= 1 && b[10] <= 3
}

// isSettings reports whether b begins a SETTINGS frame of stream 0, by which a server of HTTP/2 begins (RFC 9113,
// section 6.5): a multiple of six bytes, of settings whose numbers are small.
func isSettings(b []byte) bool {
	return len(b) >= 11 && b[0] == 0 && b[1] == 0 && b[2] > 0 && b[2]%6 == 0 && b[3] == 4 && b[4] == 0 && binary.BigEndian.Uint32(b[5:]) == 0 && b[9] == 0 && b[10] > 0 && b[10] < 17
}

// isPostgreSQL reports whether b begins a startup message of PostgreSQL's protocol 3.0, or its request for TLS.
func isPostgreSQL(b []byte) bool {
	if len(b) < 8 {
		return false
	}
	n, code := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	return n == 8 && code == 80877103 || code == 3<<16 && n < 10_000
}

// described is the name of a connection's protocol for people.
func described(protocol, name string) string {
	if protocol == unknown && name != "" {
		return strings.TrimSpace(name)
	}
	return protocol
}

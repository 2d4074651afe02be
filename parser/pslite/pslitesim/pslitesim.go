// Package pslitesim makes the nodes of ps-lite, the library under MXNet's distributed kvstores: one scheduler, servers
// and workers, which speak its ZeroMQ transport byte for byte, so that a reader of their connections cannot tell them
// from MXNet's. It is written from ps-lite's sources (github.com/dmlc/ps-lite at 34fd45c, which MXNet 1.9 has), to
// which comments refer by file. The content of data messages and commands is the job's own; the demo's package
// paramserver has MXNet's.
//
// Every node listens on one port, on which it only receives, and connects to each node that it talks to, in order to
// send: requests and their answers pass on different connections, opened by different hosts. A message is a meta, a
// protocol buffer, and data frames: keys, values and lengths.
//
// A job starts so: each node connects to the scheduler, without an identity, and registers its address (ADD_NODE). The
// scheduler gives out ids, connects to all and sends them the table of all. Each then connects, as "ps" and its id, to
// the nodes of other roles and to itself. After a barrier of all the work begins. At its end there is a second one, and
// each node tells itself to stop (TERMINATE).
//
// Fields that ps-lite leaves uninitialised in control messages, the group in a barrier's answer and the scheduler's
// customer id, are 0 here.
//
// The demo runs these nodes, and the tests of the parser (package pslite) read metas and messages of this package. The
// package itself is compared with recorded connections of MXNet, byte for byte (capture_test.go, and the one of package
// zmtp). BytePS's packed metas, which no node here sends, are written by hand in the parser's wire_test.go, as are
// frames that libzmq would not write.
package pslitesim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
)

// Groups of nodes, which can be added (ps/base.h).
const (
	GroupScheduler = 1
	GroupServers   = 2
	GroupWorkers   = 4

	groupAll = GroupScheduler + GroupServers + GroupWorkers
)

// SchedulerID is the scheduler's id.
const SchedulerID = 1

// ServerID returns the id of the server of a rank.
func ServerID(rank int) int32 { return int32(8 + 2*rank) }

// WorkerID returns the id of the worker of a rank.
func WorkerID(rank int) int32 { return int32(9 + 2*rank) }

// Rank returns the rank among its like of the server or worker of an id.
func Rank(id int32) int { return int(id-8) / 2 }

// A Config has a node's addresses and settings, with the names of ps-lite's environment variables where it has them.
// Ranks follow the addresses that nodes publish: hosts in falling order, as text, and on one host ports in rising
// order.
type Config struct {
	Workers int // in the job, at least 1; 0: 2 (DMLC_NUM_WORKER)
	Servers int // in the job, at least 1; 0: 1 (DMLC_NUM_SERVER)

	Scheduler string // address that the scheduler publishes, HOST:PORT (DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT)
	Addr      string // address that this node publishes; of the scheduler: Scheduler (DMLC_NODE_HOST, PORT)

	// Listener accepts the connections to Addr. The node closes it.
	Listener net.Listener

	// Dial connects to an address that a node has published, also this node's own; nil: TCP. Conns that it returns are
	// closed by the node. It may be called concurrently.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	ZMTPMinor byte          // see zmtp.Socket; 0: as in MXNet's wheels
	Heartbeat time.Duration // between two heart beats; 0: none (PS_HEARTBEAT_INTERVAL)

	// Patience is how long a node that is lost is dialled again before this one fails too; 0: 10 s. While the job
	// starts it has no limit but the context.
	Patience time.Duration

	// Traffic counts the bytes on the node's connections, all together; nil: nobody asks. Nodes may share it.
	Traffic *zmtp.Counter

	Log *slog.Logger // nil discards
}

const (
	defaultPatience = 10 * time.Second
	redial          = 100 * time.Millisecond // libzmq's default of ZMQ_RECONNECT_IVL
	greeting        = 30 * time.Second       // libzmq's default of ZMQ_HANDSHAKE_IVL
)

func (c Config) withDefaults() Config {
	if c.Workers == 0 {
		c.Workers = 2
	}
	if c.Servers == 0 {
		c.Servers = 1
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	if c.Patience == 0 {
		c.Patience = defaultPatience
	}
	if c.Traffic == nil {
		c.Traffic = new(zmtp.Counter)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// info is a node at an address, before it has registered.
func info(role Role, addr string) (NodeInfo, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return NodeInfo{}, fmt.Errorf("pslitesim: address of the %v: %w", role, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return NodeInfo{}, fmt.Errorf("pslitesim: address of the %v: port %q is no number of 16 bits", role, port)
	}
	n := NodeInfo{Role: role, ID: Unset, Hostname: host, Port: int32(number)}
	if role == Scheduler {
		n.ID = SchedulerID
	}
	return n, nil
}

// addr returns where n is dialled.
func (n *NodeInfo) addr() string { return net.JoinHostPort(n.Hostname, strconv.Itoa(int(n.Port))) }

// A Message is one message between nodes.
type Message struct {
	From int32 // id of the sender
	Meta
	Data [][]byte // frames behind the meta; the receiver's
}

// ErrClosed is why a node has failed after Close.
var ErrClosed = errors.New("pslitesim: node is closed")

// group returns the ids of a group's nodes in the order in which the scheduler tells them (postoffice.cc, node_ids_).
func (c *Config) group(group int32) (ids []int32) {
	if group&GroupWorkers != 0 {
		for rank := range c.Workers {
			ids = append(ids, WorkerID(rank))
		}
	}
	if group&GroupServers != 0 {
		for rank := range c.Servers {
			ids = append(ids, ServerID(rank))
		}
	}
	if group&GroupScheduler != 0 {
		ids = append(ids, SchedulerID)
	}
	return ids
}

// socket returns the description that a node sends of itself on a connection.
func (c *Config) socket(kind, identity string) zmtp.Socket {
	return zmtp.Socket{Type: kind, Identity: identity, Minor: c.ZMTPMinor}
}

package paramserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/recorded"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
)

// A saying is one message with its sender and its receiver; ids are 0 where a node has none yet.
type saying struct {
	from, to int32
	pslitesim.Meta
	data [][]byte
}

// A conversation is all that was said in a job, connection by connection.
type conversation struct {
	sayings     []saying
	connections []string // the two ends and the greeting of each
}

// listenTo reads the connections of a job.
func listenTo(t *testing.T, connections []*recorded.Connection) (c conversation) {
	t.Helper()
	type heard struct {
		peer     zmtp.Socket
		messages [][][]byte
	}
	read := func(stream []byte) (h heard) {
		conn, err := zmtp.Handshake(t.Context(), recorded.Play(stream), zmtp.Socket{Type: zmtp.Router}, nil)
		if err != nil {
			t.Fatal(err)
		}
		h.peer = conn.Peer
		for {
			m, err := conn.ReadMessage()
			if err == io.EOF {
				return h
			}
			if err != nil {
				t.Fatal(err)
			}
			h.messages = append(h.messages, m)
		}
	}
	var clients, servers []heard
	ids := make(map[netip.AddrPort]int32)
	connections = slices.DeleteFunc(slices.Clone(connections), func(c *recorded.Connection) bool {
		// A node that was still connected dialled again, when the listener had already closed.
		_, err := zmtp.Handshake(t.Context(), recorded.Play(c.FromServer), zmtp.Socket{Type: zmtp.Dealer}, nil)
		return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	})
	for _, conn := range connections {
		clients, servers = append(clients, read(conn.FromClient)), append(servers, read(conn.FromServer))
	}
	for _, client := range clients {
		for _, frames := range client.messages {
			m := parse(t, frames)
			if m.Control != nil && m.Control.Command == pslitesim.AddNode {
				for _, n := range m.Control.Nodes {
					if n.ID != pslitesim.Unset {
						ids[netip.AddrPortFrom(netip.MustParseAddr(n.Hostname), uint16(n.Port))] = n.ID
					}
				}
			}
		}
	}
	for i, conn := range connections {
		client, server := clients[i], servers[i]
		var from int32
		if digits, ok := strings.CutPrefix(client.peer.Identity, "ps"); ok {
			fmt.Sscan(digits, &from)
		}
		to := ids[conn.Server]
		c.connections = append(c.connections, fmt.Sprintf("%+v to %d, %+v, which says %d messages", client.peer, to, server.peer, len(server.messages)))
		for _, frames := range client.messages {
			c.sayings = append(c.sayings, saying{from, to, parse(t, frames), frames[1:]})
		}
	}
	slices.Sort(c.connections)
	return c
}

func parse(t *testing.T, frames [][]byte) pslitesim.Meta {
	t.Helper()
	m, err := pslitesim.ParseMeta(frames[0])
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// topics returns the messages from each node to each other, by their topic, since MXNet's own threads shuffle them from
// run to run: registrations, control, commands, and each key. Ports, fields that MXNet leaves uninitialised, and
// timestamps that the threads shuffle are left out.
func (c conversation) topics() map[string][]string {
	topics := make(map[string][]string)
	for _, s := range c.sayings {
		about, m := "commands", s.Meta
		switch {
		case m.Control != nil:
			about = fmt.Sprintf("control message %d", m.Control.Command)
			control := *m.Control
			m.Control = nil
			if control.Command == pslitesim.Barrier && !m.Request {
				control.BarrierGroup = 0
			}
			control.Nodes = slices.Clone(control.Nodes)
			for i, n := range control.Nodes {
				control.Nodes[i].Port = 0
				if n.Role == pslitesim.Scheduler {
					control.Nodes[i].CustomerID = 0
				}
			}
			slices.SortFunc(control.Nodes, func(a, b pslitesim.NodeInfo) int { return int(a.ID - b.ID) })
			if control.Command == pslitesim.AddNode && s.from == 0 {
				about += fmt.Sprint(" of a ", control.Nodes[0].Role)
			}
			if s.from == pslitesim.SchedulerID || control.Command == pslitesim.Heartbeat {
				m.Timestamp = 0
			}
			about += fmt.Sprintf(" %+v", control)
		case len(s.data) > 0:
			about, m.Timestamp = fmt.Sprintf("key % x", s.data[0]), 0
		default: // acknowledgements are of no key
			if !m.SimpleApp {
				about = "acknowledgements"
			}
			m.Timestamp = 0
		}
		text := fmt.Sprintf("%+v", m)
		for _, frame := range s.data {
			text += fmt.Sprintf(" %d bytes %.6x", len(frame), sha256.Sum256(frame))
		}
		topic := fmt.Sprintf("%d to %d, %s", s.from, s.to, about)
		topics[topic] = append(topics[topic], text)
	}
	return topics
}

// timestamps returns the timestamps of a worker's requests.
func (c conversation) timestamps(worker int32) (all []int32) {
	for _, s := range c.sayings {
		if s.from == worker && s.Control == nil {
			all = append(all, s.Timestamp)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// pushes returns a worker's pushes, by key, in order; arrays that are cut over servers are joined.
func (c conversation) pushes(worker int32, servers int) map[int][][]float32 {
	parts := make(map[int]map[int32][]byte) // by key and timestamp
	for server := range servers {
		for _, s := range c.sayings {
			if s.from != worker || s.to != pslitesim.ServerID(server) || len(s.data) == 0 || !s.Push {
				continue
			}
			key := int(binary.LittleEndian.Uint64(s.data[0]) - firstKey(server, servers))
			if parts[key] == nil {
				parts[key] = make(map[int32][]byte)
			}
			parts[key][s.Timestamp] = append(parts[key][s.Timestamp], s.data[1]...)
		}
	}
	pushes := make(map[int][][]float32)
	for key, byTime := range parts {
		var times []int32
		for at := range byTime {
			times = append(times, at)
		}
		slices.Sort(times)
		for _, at := range times {
			b := byTime[at]
			values := make([]float32, len(b)/float32Len)
			decode(values, b)
			pushes[key] = append(pushes[key], values)
		}
	}
	return pushes
}

// optimizer returns the body of command 0; nil if there was none.
func (c conversation) optimizer(t *testing.T) (body []byte) {
	for _, s := range c.sayings {
		if s.SimpleApp && s.Request && s.Head == commandOptimizer {
			if body != nil && !bytes.Equal(body, s.Body) {
				t.Error("two optimizers")
			}
			body = s.Body
		}
	}
	return body
}

// barriers returns how many barriers of the workers there were.
func (c conversation) barriers() (n int) {
	for _, s := range c.sayings {
		if s.Control != nil && s.Control.Command == pslitesim.Barrier && s.Request && s.from == pslitesim.WorkerID(0) && s.Control.BarrierGroup == pslitesim.GroupWorkers {
			n++
		}
	}
	return n
}

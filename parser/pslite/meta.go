package pslite

// A meta is a message's first frame.
type meta struct {
	head      int32 // of data messages: request and element type (head.go); of commands: their number
	command   int32 // control command; 0: none
	nodes     []node
	request   bool
	push      bool
	pull      bool
	simple    bool // a command of the application or its answer
	app       int32
	customer  int32
	timestamp int32   // the requester's count of its requests
	types     [3]byte // of the data frames
	frames    int     // data frames that follow
	packed    bool    // BytePS's structure
}

// A node is one entry of ADD_NODE.
type node struct {
	id       int
	host     string // an IP address or a name
	port     int
	recovery bool // it takes the place of a node that died
}

// maxNodes bounds the nodes of a job.
const maxNodes = 1 << 10

// addNode is the control command of the table of nodes (include/ps/internal/message.h, Control::Command).
const addNode = 2

// optimizer is the number of the command that gives MXNet's servers an optimizer (src/kvstore/kvstore_dist_server.h,
// CommandType::kController).
const optimizer = 0

// unset stands for an integer that has no value, in Protocol Buffers.
const unset = 1<<31 - 1

// A kind is the purpose of a message.
type kind uint8

const (
	control kind = iota
	command      // of the application, or the answer to one
	push         // a request that carries values to the server, with or without a pull
	pull         // a request for values
	answer       // values for the worker
	ack          // of a push
)

// kind decides in the order in which the fields overrule each other.
func (m *meta) kind() kind {
	switch {
	case m.command != 0:
		return control
	case m.simple:
		return command
	case m.request && m.push:
		return push
	case m.request:
		return pull
	case m.pull:
		return answer
	}
	return ack
}

// Types of data frames (include/ps/internal/message.h, DataType).
const (
	typeUint32 = 7
	typeUint64 = 8
	typeFloat  = 9
	typeDouble = 10
	typeOther  = 11 // char, among others: MXNet's and BytePS's vals
)

// setType notes the type of data frame i. It reports false if there is no such type, or no such frame.
func (m *meta) setType(i int, t uint64) bool {
	if i >= len(m.types) || t > typeOther {
		return false
	}
	m.types[i] = byte(t)
	m.frames = i + 1
	return true
}

// sound reports whether m is a meta that ps-lite makes: messages with data have keys and vals at least.
func (m *meta) sound() bool {
	return m.frames != 1 && (m.frames == 0 || m.command == 0 && !m.simple)
}

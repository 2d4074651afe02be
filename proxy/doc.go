// Package proxy carries the connections of the apps beside it to its peers, and connections from its peers to the apps
// beside it. It accepts connections, dials servers, drains and counts. A connection's bytes go through a row of stages,
// once:
//
//	accept ─▶ send.read ─▶ classify ─▶ cut ─▶ choose ─▶ encode ─▶ emit ─▶ tunnel ═══ tunnel ─▶ receive.read ─▶ decode ─▶ deliver ─▶ app
//	                                    └── opaque bytes: a Bytes frame, copied verbatim ─▶ └─────────────────────────────▶
//
// A stage hands the bytes on to the next one. Before that it may ask later stages: cut asks choose how a value travels
// and how its blocks are laid out, and it asks emit for their memory. It may also call the packages below the stages:
// classify calls the parser, and so does deliver at the other proxy, where the parser only learns; choose calls the
// policy, the residuals and the value cache; encode and decode call the coder.
//
// Each direction has a sender (package path/send) beside the app that writes, and a receiver (package path/receive)
// beside the app that reads. Only the sender decides. Frames say how the sender has coded the bytes, and the receiver
// does the reverse. A package may use the packages below it in this list:
//
//	proxy          accept, serve, carry, dial, drain, metrics; connection.go puts the two directions together
//	quota          the parts of processors and memory that each peer's connections and their parsers get
//	handover       the seats of live connections, and their rest while a process is replaced
//	inquiry        questions to a peer, each by a stream of its own
//	trials         codecs that are tried on a sample of the traffic, and the report on them
//	estimate       the sender run over recorded traffic, to count bytes
//	path/send      read ▸ classify ▸ cut ▸ choose ▸ encode ▸ emit
//	path/receive   read ▸ decode ▸ deliver
//	path           the parts that both directions share: Env, made once, and Conn
//	cache          values that both ends hold, so that the next is sent as its difference to the last, or to one of the reverse direction
//	residual       losses of earlier encodings of a tensor, its last value, and both across restarts
//	app            the app's socket
//	tensors        the table of the tensors that are sent
//	shadow         the sample of the values that trials code
//	coder          codecs applied to blocks, for both ends
//	frame          bytes on the wire
//	memory         budgets and buffers
//	policy         the rules that choose how a tensor travels
//	tunnel         streams between sites, over carriers that may be lost
//
// A process that is about to be replaced brings its connections to rest and hands them over (package handover). Each
// connection has a seat in that package from its begin. At rest it asks for its next stream by the seat.
//
// A connection to a server behind no peer bypasses the tunnel (bypass.go).
//
// The path promises:
//
//   - Every byte arrives once and in order. Bytes that no parser understands, and blocks that a codec does not take,
//     travel as they are.
//   - Opaque bytes never wait, except for a tensor's block before them. A block waits only for its own rest, and for a
//     few bytes that surely follow it. If the app may be waiting for an answer, the wait ends after 5 ms without a
//     byte, or with the first byte after 20 ms.
//   - A frame that does not decode resets the connection: the app sees an error, never garbage. An app's FIN and RST
//     arrive as FIN and RST; the end of the tunnel is a RST.
//   - Memory is bounded. The bytes that were read, and the blocks, take their memory from a budget (package memory). A
//     connection for which the budget has none goes on with a few spare bytes: its sender sends bytes verbatim, its
//     receiver handles one block at a time. Residuals and shared values have bounds of their own, Config.Residuals and
//     Config.Values.
package proxy

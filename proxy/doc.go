// Package proxy carries the connections of apps to the proxies of peers, and theirs to the apps beside it. It accepts
// connections, dials servers, drains and counts; a connection's bytes go through a row of stages, once:
//
//	accept ─▶ send.read ─▶ classify ─▶ cut ─▶ choose ─▶ encode ─▶ emit ─▶ tunnel ═══ tunnel ─▶ receive.read ─▶ decode ─▶ deliver ─▶ app
//	                                    └── opaque bytes: a Bytes frame, copied verbatim ─▶ └─────────────────────────────▶
//
// A stage hands the bytes on to the next one. Before that it may ask the stages after it: cut asks choose how a value
// travels and how its blocks are laid out, and emit for their memory. It also asks the rooms below the stages, which
// return to it: classify asks the parser, and so does deliver at the other proxy, where the parser only learns; choose
// asks the policy, the residuals and the value cache; encode and decode ask the coder.
//
// Each direction has a sender (package path/send) beside the app that writes and a receiver (package path/receive)
// beside the app that reads. Only the sender decides. Frames say how it has coded the bytes, and the receiver does the
// reverse. A room may use the rooms below it:
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
// A process that is about to be replaced brings its connections to rest and hands them over (package handover): a
// connection has a seat there from its begin, and asks it, at rest, for the next stream.
//
// A connection to a server behind no peer bypasses the tunnel (bypass.go).
//
// The path promises:
//
//   - Every byte arrives once and in order. Bytes that no parser understands, and all blocks that a codec does not
//     take, travel as they are.
//   - Opaque bytes never wait, but for a tensor's block before them. A block waits for its own rest only, and for
//     little that surely follows it: where its sender may be waiting for an answer, at most 20 ms, and until the next
//     byte.
//   - A frame that does not decode resets the connection: the app sees an error, never garbage. An app's FIN and RST
//     arrive as FIN and RST; the end of the tunnel is a RST.
//   - Memory is bounded: bytes that were read and blocks take theirs from a budget (package memory), and a connection
//     that gets none goes on with few spare bytes: a sender lets bytes travel verbatim, a receiver handles one block at
//     a time. Residuals and shared values have bounds of their own, Config.Residuals and Config.Values.
package proxy

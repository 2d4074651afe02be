// Package proxy is the path of a connection between an app and the proxy of the peer:
//
//	app ─▶ Parser.Next ─▶ Policy.Choose ─▶ cut blocks ─▶ Encoder.Append ─▶ frames ─▶ tunnel ═══ tunnel ─▶ frames ─▶ Decoder.Decode ─▶ app
//	          └────────── opaque bytes: a Bytes frame, copied verbatim ───────▶ └──────────────────────────▶
//
// Each direction has a sender (send.go) beside the app that writes and a receiver (receive.go) beside the app that
// reads; a connection (connection.go) is one of each. Only the sender decides. Frames (frame.go) say what was done, and
// the receiver does it.
//
// What outlives a value: senders remember of tensors that may lose something what is owed to them and their last value
// (memory.go; of sparse ones by row, rowmemory.go), also across restarts (saved.go). And two proxies share values (values.go): what
// one puts (sharer.go, puts.go) the other holds (holder.go, lend.go), so that the next value is sent as its difference to the last, or
// to what came the opposite way (opposite.go), and what several connections carry crosses the WAN once.
//
// What the path promises:
//
//   - Every byte arrives once and in order. Bytes that no parser understands, and all that a codec does not take,
//     travel as they are.
//   - Opaque bytes never wait, but for a tensor's block before them. A block waits for its own rest only, and for little that
//     surely follows it: where its sender may be waiting for an answer, at most stallMost.
//   - A frame that does not decode resets the connection: the app sees an error, never garbage. An app's FIN and RST
//     arrive as what they were; the end of the tunnel is a RST.
//   - Memory is bounded: what is read and what blocks hold comes from a budget (budget.go), and whoever gets none goes on
//     with little, spare bytes: a sender lets bytes travel verbatim, a receiver handles one block at a time. What is
//     remembered has bounds of its own, Config.Residuals and Config.Values.
package proxy

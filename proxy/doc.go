// Package proxy is the path of a connection between an app and the proxy of the peer:
//
//	app ─▶ Parser.Next ─▶ Policy.Choose ─▶ cut blocks ─▶ Encoder.Append ─▶ frames ─▶ tunnel ═══ tunnel ─▶ frames ─▶ Decoder.Decode ─▶ app
//	          └────────── opaque bytes: a Bytes frame, copied verbatim ───────▶ └──────────────────────────▶
//
// Each direction has a sender (send.go) beside the app that writes and a receiver (receive.go) beside the app that
// reads; a connection (connection.go) is one of each. Only the sender decides. Frames (frame.go) say what was done, and
// the receiver does it.
//
// What the path promises:
//
//   - Every byte arrives once and in order. Bytes that no parser understands, and all that a codec does not take,
//     travel as they are.
//   - Opaque bytes never wait, but for a tensor's block before them. A block waits for its own rest only: where its
//     sender may be waiting for an answer, at most stallMost.
//   - A frame that does not decode resets the connection: the app sees an error, never garbage. An app's FIN and RST
//     arrive as what they were; the end of the tunnel is a RST.
//   - Memory is bounded: what is read and what blocks hold comes from a budget (budget.go), and whoever gets none goes on
//     with little, spare bytes: a sender lets bytes travel verbatim, a receiver handles one block at a time.
package proxy

package parser

// A Counter is a Parser that counts the messages of its protocol, for reports on streams. Its answers do not depend on
// how the stream is cut.
type Counter interface {
	Parser
	// Messages returns the number of messages whose headers have been understood, and how many of them have a payload,
	// an empty one included: bytes that the framework carries for its user. It is 0, 0 until the protocol is
	// recognized.
	Messages() (all, payloads int)
	// Recognized reports whether the bytes so far prove the protocol. A handshake without a message can be enough.
	Recognized() bool
}

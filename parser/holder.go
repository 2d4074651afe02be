package parser

// A Holder is a Parser that tells how much memory its state takes, so that a program with many connections can bound it.
type Holder interface {
	Parser
	// Held returns about how many bytes the Parser holds for as long as it is used. What the two directions of a connection share is told
	// by one of them; what connections share is left out if it is bounded for all of them together. Held is called between two calls
	// of Next, and must be quick.
	Held() int
}

// Held returns how many bytes p holds, as far as it tells: 0 if it is no [Holder].
func Held(p Parser) int {
	if h, ok := p.(Holder); ok {
		return h.Held()
	}
	return 0
}

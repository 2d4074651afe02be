package parser

// A Sized is a Parser that tells how much memory its state takes, so that a program with many connections can bound it.
type Sized interface {
	Parser
	// Held returns about how many bytes the Parser holds for as long as it is used. State that the two directions of a
	// connection share is told by one of them; state that connections share is left out if it is bounded for all of
	// them together. Held is called between two calls of Next, and must be quick.
	Held() int
}

// Held returns how many bytes p holds, as far as it tells: 0 if it is no [Sized].
func Held(p Parser) int {
	if h, ok := p.(Sized); ok {
		return h.Held()
	}
	return 0
}

// Held implements Sized.
func (f *first) Held() (n int) {
	for _, p := range f.left {
		n += Held(p)
	}
	return n
}

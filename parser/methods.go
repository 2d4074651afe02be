package parser

// A Dispatched is a Parser whose streams carry calls of named methods.
type Dispatched interface {
	Parser
	// Method returns the path of the method to whose call the last segment of Next belongs, as
	// "/package.Service/Method"; "": the segment belongs to none.
	Method() string
}

// MethodOf returns the method of p's last segment: "" if p is not [Dispatched].
func MethodOf(p Parser) string {
	if d, ok := p.(Dispatched); ok {
		return d.Method()
	}
	return ""
}

// Method implements Dispatched.
func (f *first) Method() string {
	if len(f.left) == 1 {
		return MethodOf(f.left[0])
	}
	return ""
}

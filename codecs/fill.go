package codecs

// A Filled is a Method whose encodings have a code for each value, also where values are zero. Transports may leave
// such codes out (FillOf).
type Filled interface {
	Method

	// Fill returns the byte that zeros are coded as, and every how many words of 4 bytes a scale stands in their place,
	// which is zero where all its values are; 0: scales are like codes, or stand at no such places.
	Fill() (code byte, period int)
}

// FillOf returns the results of Fill for the method of c; ok is false if it is not Filled.
func FillOf(c Codec) (code byte, period int, ok bool) {
	v, _ := c.(values)
	return v.filled.code, v.filled.period, v.filled.ok
}

// A filled has the results of FillOf. Values asks the method for them once: they are needed for every block, at which
// time the caches have its elements and little else.
type filled struct {
	code   byte
	period int
	ok     bool
}

func filledOf(m Method) filled {
	f, ok := m.(Filled)
	if !ok {
		return filled{}
	}
	code, period := f.Fill()
	return filled{code, period, true}
}

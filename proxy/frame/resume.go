package frame

import "fmt"

// AppendResume appends the opening of a stream that resumes a connection at rest.
func AppendResume(dst []byte, t Tag) []byte { return t.Append(append(dst, OpeningResume)) }

// ParseResume reads the bytes that AppendResume has made, and returns the tag as its reader means it. Bytes behind are
// of a later version and skipped.
func ParseResume(b []byte) (Tag, error) {
	r := Fields{B: b}
	if v := r.Byte(); v != OpeningResume {
		return Tag{}, fmt.Errorf("%w: version %d resumes no connection", ErrOpening, v)
	}
	t := r.Tag()
	if r.Short || t.Number == 0 {
		return Tag{}, fmt.Errorf("%w: the tag of the connection is missing", ErrOpening)
	}
	return t, nil
}

package all

import (
	"errors"
	"strings"
)

// Pair splits "CODEC" or "CODEC+CODEC", as policies of a demo, an inspection and a test are written. second is "" if
// there is one codec only. The codecs themselves are not checked: that is New's.
func Pair(text string) (first, second string, err error) {
	first, second, both := strings.Cut(text, "+")
	if first == "" || both && second == "" {
		return "", "", errors.New("write CODEC or CODEC+CODEC")
	}
	return first, second, nil
}

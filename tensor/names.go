package tensor

// name returns the name of a value of a fixed list.
func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "invalid"
}

// find returns the value that has a name, and false if there is none.
func find(names []string, s string) (int, bool) {
	for i, n := range names {
		if n == s {
			return i, true
		}
	}
	return 0, false
}

package all

import "testing"

// Every protocol has a name of its own, and each call returns new values.
func TestProtocols(t *testing.T) {
	seen := map[string]bool{}
	again := Protocols()
	for i, p := range Protocols() {
		if name := p.String(); name == "" || seen[name] {
			t.Errorf("protocol %d is called %q", i, name)
		} else {
			seen[name] = true
		}
		if p == again[i] {
			t.Errorf("%v is shared", p)
		}
	}
}

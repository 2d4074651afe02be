package reference_test

import (
	"bytes"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/reference"
)

func TestCopy(t *testing.T) {
	c := reference.NewCopy(4, 1)
	check := func(version uint64, memory int, value string) {
		t.Helper()
		if c.Version() != version || c.Memory() != memory || string(c.AppendTo([]byte("+"))) != "+"+value {
			t.Errorf("version %d, %d bytes, %q; want %d, %d, %q", c.Version(), c.Memory(), c.AppendTo(nil), version, memory, value)
		}
	}
	check(0, 0, "")
	b := []byte("abcd")
	c.Set(b)
	b[0] = 'x'
	check(1, 4, "abcd")
	c.Set([]byte("efgh"))
	check(2, 8, "efgh")
	c.Set([]byte("ijkl"))
	check(3, 8, "ijkl")
	c.Drop()
	check(0, 0, "")
	c.Set([]byte("mnop"))
	check(1, 4, "mnop")
}

func TestCopyOfNothing(t *testing.T) {
	c := reference.NewCopy(0, 0)
	c.Set(nil)
	if c.Version() != 1 || !bytes.Equal(c.AppendTo(nil), nil) {
		t.Errorf("an empty value is not held")
	}
}

func TestCopyOfAnotherSize(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a value of another size was taken")
		}
	}()
	reference.NewCopy(4, 0).Set([]byte("abc"))
}

// Setting a copy again takes no new memory.
func TestCopyNoAllocation(t *testing.T) {
	c, b := reference.NewCopy(4096, 2), make([]byte, 4096)
	for range 3 {
		c.Set(b)
	}
	if a := testing.AllocsPerRun(20, func() { c.Set(b) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

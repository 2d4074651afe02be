package frame

import (
	"errors"
	"testing"
)

// A tag is read as its reader means it: whose number it is changes between the two sides.
func TestResume(t *testing.T) {
	for _, tag := range []Tag{{1, true}, {1, false}, {1 << 40, true}} {
		got, err := ParseResume(append(AppendResume(nil, tag), "of a later version"...))
		if want := (Tag{tag.Number, !tag.Mine}); err != nil || got != want {
			t.Errorf("%v is read as %v, %v, want %v", tag, got, err, want)
		}
	}
	for _, b := range []string{"", "\x04", "\x04\x00", "\x04\x80", "\x01\x05"} {
		if tag, err := ParseResume([]byte(b)); !errors.Is(err, ErrOpening) {
			t.Errorf("%q is read as %v, %v, want that it is a bad opening", b, tag, err)
		}
	}
}

func FuzzResume(f *testing.F) {
	f.Add(AppendResume(nil, Tag{5, true}))
	f.Add([]byte{OpeningResume})
	f.Fuzz(func(t *testing.T, b []byte) {
		tag, err := ParseResume(b)
		if err != nil {
			return
		}
		if again, err := ParseResume(AppendResume(nil, Tag{tag.Number, !tag.Mine})); err != nil || again != tag {
			t.Fatalf("%v was written and read as %v, %v", tag, again, err)
		}
	})
}

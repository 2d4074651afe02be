package codecs

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// read reads the parameters of an imaginary codec and writes its text anew.
func read(text string) (string, error) {
	a, err := ParseText(text)
	if err != nil {
		return "", err
	}
	n := a.Int("n", 256, 1, 4096)
	s := a.Float("s", 1, 1, 2)
	below := a.FloatBelow("below", 1, 1, 2)
	mode := a.Choice("mode", "dense", "sparse")
	if err := a.Err(); err != nil {
		return "", err
	}
	return FormatText(a.Name, Param{"n", n, 256}, Param{"s", s, 1.0}, Param{"below", below, 1.0}, Param{"mode", mode, "dense"}), nil
}

func TestTextLeavesOutDefaults(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"3lc", "3lc"},
		{"3lc()", "3lc"},
		{"3lc(s=1)", "3lc"},
		{"3lc(s=1.750)", "3lc(s=1.75)"},
		{"3lc(below=1.9999999)", "3lc(below=1.9999999)"},
		{"3lc(mode=sparse,s=1.75,n=16)", "3lc(n=16,s=1.75,mode=sparse)"},
		{" 3lc ( s = 1.5 , n=256 ) ", "3lc(s=1.5)"},
		{"a-b_c(s=15e-1)", "a-b_c(s=1.5)"},
	} {
		if got, err := read(c.text); got != c.want || err != nil {
			t.Errorf("%q: %q, %v; want %q", c.text, got, err, c.want)
		}
	}
}

// Every bad text is an ErrText that quotes the text and names the mistake.
func TestBadTextsSayWhat(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"", "it begins with"},
		{"(s=1)", "it begins with"},
		{"3LC", "it begins with"},
		{"top k", "it begins with"},
		{"3lc(s=1", "end with ')'"},
		{"3lc(s=1)x", "end with ')'"},
		{"3lc(s)", "parameter 1"},
		{"3lc(s=)", "parameter 1"},
		{"3lc(s=1,)", "parameter 2"},
		{"3lc(s=1,=2)", "parameter 2"},
		{"3lc(s=1=2)", "parameter 1"},
		{"3lc((s=1))", "parameter 1"},
		{"3lc(s=1 2)", "parameter 1"},
		{"3lc(s=1,s=1)", "s is given twice"},
		{"3lc(q=1)", "no parameter q"},
		{"3lc(s=3)", "s is 3; write a number from 1 to 2"},
		{"3lc(s=NaN)", "s is NaN"},
		{"3lc(below=2)", "below is 2; write a number of at least 1 and less than 2"},
		{"3lc(below=1.99999999)", "less than 2"}, // 2 as a float32
		{"3lc(below=0.5)", "of at least 1"},
		{"3lc(below=NaN)", "below is NaN"},
		{"3lc(s=one)", "s is one"},
		{"3lc(n=1.5)", "n is 1.5; write an integer from 1 to 4096"},
		{"3lc(n=0)", "n is 0"},
		{"3lc(n=99999999999999999999)", "n is 9"},
		{"3lc(mode=both)", "write one of dense, sparse"},
	} {
		_, err := read(c.text)
		if !errors.Is(err, ErrText) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v; want an ErrText that says %q", c.text, err, c.says)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: an error of several lines: %v", c.text, err)
		}
	}
}

// A getter's value may be used before the error is asked for.
func TestGettersStayInBounds(t *testing.T) {
	a, err := ParseText("x(n=-1,s=9,mode=q)")
	if err != nil {
		t.Fatal(err)
	}
	if n, s, m := a.Int("n", 2, 1, 4), a.Float("s", 1, 0, 2), a.Choice("mode", "a"); n != 2 || s != 1 || m != "a" {
		t.Errorf("got %v %v %v, want the defaults", n, s, m)
	}
}

func FuzzParseText(f *testing.F) {
	for _, s := range []string{"lossless", "3lc(s=1.75)", "fastsgd(b=1.1,tau=128,l=2)", "x(", "x(a=b=c)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		canonical, err := read(text)
		if err != nil {
			if !errors.Is(err, ErrText) {
				t.Fatalf("%q: %v is not an ErrText", text, err)
			}
			return
		}
		if again, err := read(canonical); again != canonical || err != nil {
			t.Fatalf("%q became %q became %q, %v", text, canonical, again, err)
		}
	})
}

func TestFormatTextTypes(t *testing.T) {
	if got := FormatText("x", Param{"inf", math.Inf(1), 0.0}, Param{"small", 1e-9, 0.0}); got != "x(inf=+Inf,small=1e-09)" {
		t.Error(got)
	}
}

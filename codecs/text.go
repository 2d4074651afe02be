package codecs

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Args are the parameters of a codec's text, "name(k=v,...)", while its package reads them: each getter names a
// parameter, its default and its bounds, and [Args.Err] then reports the first mistake, such as a parameter that no
// getter has named. The getters return values in their bounds even after an error.
type Args struct {
	Name   string
	text   string
	params []argument
	err    error
}

type argument struct {
	name, value string
	read        bool
}

// ParseText splits a codec's text into its name and parameters. Spaces around names, values, commas and parentheses are
// allowed; empty parentheses are as none. The error wraps ErrText.
func ParseText(text string) (*Args, error) {
	a := &Args{text: text}
	name, list, open := strings.Cut(strings.TrimSpace(text), "(")
	if a.Name = strings.TrimSpace(name); !word(a.Name) {
		return nil, a.bad("it begins with %q; write a codec's name, or name(k=v,...)", a.Name)
	}
	if !open {
		return a, nil
	}
	list, closed := strings.CutSuffix(list, ")")
	if !closed {
		return nil, a.bad("it does not end with ')'; write %s(k=v,...)", a.Name)
	}
	if strings.TrimSpace(list) == "" {
		return a, nil
	}
	for i, p := range strings.Split(list, ",") {
		name, value, _ := strings.Cut(p, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !word(name) || value == "" || strings.ContainsAny(value, "()= \t\r\n"):
			return nil, a.bad("parameter %d is %q; write name=value", i+1, strings.TrimSpace(p))
		case slices.ContainsFunc(a.params, func(q argument) bool { return q.name == name }):
			return nil, a.bad("%s is given twice; remove one", name)
		}
		a.params = append(a.params, argument{name: name, value: value})
	}
	return a, nil
}

// word reports whether s can name a codec or parameter: lower-case letters, digits, '-' and '_', one at least.
func word(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// Int returns the integer parameter name, def if it is not given; it must be in [low, high].
func (a *Args) Int(name string, def, low, high int) int {
	s, given := a.get(name)
	if !given {
		return def
	}
	v, err := strconv.Atoi(s)
	if err != nil || v < low || v > high {
		a.fail("%s is %s; write an integer from %d to %d", name, s, low, high)
		return def
	}
	return v
}

// Float returns the real parameter name, def if it is not given; it must be in [low, high].
func (a *Args) Float(name string, def, low, high float64) float64 {
	s, given := a.get(name)
	if !given {
		return def
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || v < low || v > high {
		a.fail("%s is %s; write a number from %v to %v", name, s, low, high)
		return def
	}
	return v
}

// FloatBelow returns the real parameter name, def if it is not given; it must be in [low, high) as a float32.
func (a *Args) FloatBelow(name string, def, low, high float64) float64 {
	s, given := a.get(name)
	if !given {
		return def
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= low && float32(v) < float32(high)) {
		a.fail("%s is %s; write a number of at least %v and less than %v", name, s, low, high)
		return def
	}
	return v
}

// Choice returns the parameter name, choices[0] if it is not given; it must be one of choices.
func (a *Args) Choice(name string, choices ...string) string {
	s, given := a.get(name)
	if !given {
		return choices[0]
	}
	if !slices.Contains(choices, s) {
		a.fail("%s is %s; write one of %s", name, s, strings.Join(choices, ", "))
		return choices[0]
	}
	return s
}

// Is reports whether the parameter name is given as value. Where it is not, another getter must name the parameter.
func (a *Args) Is(name, value string) bool {
	for i := range a.params {
		if p := &a.params[i]; p.name == name && p.value == value {
			p.read = true
			return true
		}
	}
	return false
}

// Err reports the first parameter that its getter refused, or that no getter has named. It wraps ErrText.
func (a *Args) Err() error {
	if a.err != nil {
		return a.err
	}
	for _, p := range a.params {
		if !p.read {
			return a.bad("%s has no parameter %s; remove it", a.Name, p.name)
		}
	}
	return nil
}

func (a *Args) get(name string) (value string, given bool) {
	for i := range a.params {
		if p := &a.params[i]; p.name == name {
			p.read = true
			return p.value, true
		}
	}
	return "", false
}

func (a *Args) fail(format string, v ...any) {
	if a.err == nil {
		a.err = a.bad(format, v...)
	}
}

func (a *Args) bad(format string, v ...any) error {
	return fmt.Errorf("%w %q: %s", ErrText, a.text, fmt.Sprintf(format, v...))
}

// A Param is a parameter as [FormatText] writes it.
type Param struct {
	Name       string
	Value, Def any // of one comparable type: a string, an integer, a float or a fmt.Stringer
}

// FormatText returns the shortest text of a codec: parameters that have their default are left out.
func FormatText(name string, params ...Param) string {
	var list []string
	for _, p := range params {
		if p.Value != p.Def {
			list = append(list, fmt.Sprintf("%s=%v", p.Name, p.Value))
		}
	}
	if list == nil {
		return name
	}
	return name + "(" + strings.Join(list, ",") + ")"
}

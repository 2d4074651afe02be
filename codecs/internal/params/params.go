// Package params describes the parameters of a codec as a table, from which come the defaults and bounds of its Config,
// the reading of its text and the text itself.
package params

import (
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
)

// A Table lists the parameters of a codec in the order of its text. Each is a field of the codec's Config, and a zero
// field stands for the default.
type Table[Config any] struct {
	Name   string
	Params []Param[Config]
}

// A Param is one parameter of a Config.
type Param[Config any] struct {
	read     func(c *Config, a *codecs.Args) // sets the field from a text
	complete func(c *Config) error           // replaces a zero field by the default and checks the bounds
	param    func(c *Config) codecs.Param    // the field as codecs.FormatText writes it
}

// Complete replaces zero fields by their defaults. The error wraps codecs.ErrText: a field is out of its bounds.
func (t Table[Config]) Complete(c *Config) error {
	for _, p := range t.Params {
		if err := p.complete(c); err != nil {
			return fmt.Errorf("%w: %s: %w", codecs.ErrText, t.Name, err)
		}
	}
	return nil
}

// FromArgs reads the parameters of a text and makes the codec of them. The error wraps codecs.ErrText.
func (t Table[Config]) FromArgs(a *codecs.Args, build func(Config) (codecs.Codec, error)) (codecs.Codec, error) {
	c, err := t.Parse(a)
	if err != nil {
		return nil, err
	}
	return build(c)
}

// Parse reads the parameters of a text. The error wraps codecs.ErrText.
func (t Table[Config]) Parse(a *codecs.Args) (c Config, err error) {
	for _, p := range t.Params {
		p.read(&c, a)
	}
	return c, a.Err()
}

// Text returns the text of a complete Config, without the parameters that have their defaults.
func (t Table[Config]) Text(c Config) string { return codecs.FormatText(t.Name, t.List(c)...) }

// List returns the parameters of a complete Config as codecs.FormatText writes them.
func (t Table[Config]) List(c Config) []codecs.Param {
	list := make([]codecs.Param, len(t.Params))
	for i, p := range t.Params {
		list[i] = p.param(&c)
	}
	return list
}

// Int is an integer parameter in [low, high].
func Int[Config any](name string, def, low, high int, field func(*Config) *int) Param[Config] {
	return number(name, "an integer", def, low, high, (*codecs.Args).Int, field)
}

// Float is a real parameter in [low, high].
func Float[Config any](name string, def, low, high float64, field func(*Config) *float64) Param[Config] {
	return number(name, "a number", def, low, high, (*codecs.Args).Float, field)
}

// Seed is the parameter seed of methods that draw at random, 1 to 2^31-1.
func Seed[Config any](field func(*Config) *int) Param[Config] {
	return Int("seed", 1, 1, math.MaxInt32, field)
}

func number[Config any, N int | float64](name, kind string, def, low, high N, get func(*codecs.Args, string, N, N, N) N, field func(*Config) *N) Param[Config] {
	return Param[Config]{
		read: func(c *Config, a *codecs.Args) { *field(c) = get(a, name, def, low, high) },
		complete: func(c *Config) error {
			v := field(c)
			if *v == 0 {
				*v = def
			}
			if !(*v >= low && *v <= high) {
				return fmt.Errorf("%s is %v; write %s from %v to %v", name, *v, kind, low, high)
			}
			return nil
		},
		param: func(c *Config) codecs.Param { return codecs.Param{Name: name, Value: *field(c), Def: def} },
	}
}

// Switch is a parameter with two values: off, the default, and on.
func Switch[Config any](name, off, on string, field func(*Config) *bool) Param[Config] {
	values := map[bool]string{false: off, true: on}
	return Param[Config]{
		read:     func(c *Config, a *codecs.Args) { *field(c) = a.Choice(name, off, on) == on },
		complete: func(*Config) error { return nil },
		param:    func(c *Config) codecs.Param { return codecs.Param{Name: name, Value: values[*field(c)], Def: off} },
	}
}

// Choice is a parameter whose values have names; the zero value is the default and has the first name.
func Choice[Config any, E ~uint8](name string, names []string, field func(*Config) *E) Param[Config] {
	of := make(map[E]string)
	for i, n := range names {
		of[E(i)] = n
	}
	return Named(name, of, names, field)
}

// Named is a parameter whose values have names, the default first. A zero field stands for the default.
func Named[Config any, E comparable](name string, of map[E]string, names []string, field func(*Config) *E) Param[Config] {
	values := make(map[string]E)
	for v, n := range of {
		values[n] = v
	}
	return Param[Config]{
		read: func(c *Config, a *codecs.Args) { *field(c) = values[a.Choice(name, names...)] },
		complete: func(c *Config) error {
			v := field(c)
			if _, ok := of[*v]; ok {
				return nil
			}
			if got := *v; got != *new(E) {
				return fmt.Errorf("%s is %v; write one of %q", name, got, names)
			}
			*v = values[names[0]]
			return nil
		},
		param: func(c *Config) codecs.Param { return codecs.Param{Name: name, Value: of[*field(c)], Def: names[0]} },
	}
}

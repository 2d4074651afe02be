package main

import (
	"encoding/json"
	"fmt"
	"math"
)

// A Table is one of a paper's tables, measured again. The JSON names are stable.
type Table struct {
	Paper string `json:"paper"`
	Table string `json:"table"`
	Rows  []Row  `json:"rows"`
	// Counted is the number of rows that are not Calibrated, and Held the number of these that hold.
	Counted int `json:"counted"`
	Held    int `json:"held"`

	Title string   `json:"-"`
	Setup []string `json:"-"` // lines: the data and the setting of the figures here
	Quick bool     `json:"-"`
}

// A Row is one figure of a table.
type Row struct {
	Label    string  `json:"label"`
	Quantity string  `json:"quantity"`
	Paper    float64 `json:"paper"`
	Here     float64 `json:"here"`
	Band             // "low" and "high"
	Holds    bool    `json:"holds"`
	Why      string  `json:"why"` // where it does not hold; else ""
	// Calibrated says that the row holds by construction, so that it shows nothing by holding and is not counted: the
	// figure here was made from the paper's own, is a formula instead of a measurement, has a setting chosen for it, or
	// follows from another row.
	Calibrated bool `json:"calibrated"`
}

// A Band is where the figure here must lie for the row to hold, the ends included.
type Band struct {
	Low  End `json:"low"`
	High End `json:"high"`
}

// An End is one end of a band. In JSON, which has no infinity, it is null where the band has no such end.
type End float64

// MarshalJSON writes a number or null.
func (e End) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(e), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(e))
}

// between is a band that does not depend on the paper's figure.
func between(low, high float64) Band { return Band{End(low), End(high)} }

// minimum and maximum are bands with one end.
func minimum(low float64) Band  { return between(low, math.Inf(1)) }
func maximum(high float64) Band { return between(math.Inf(-1), high) }

// Holds reports whether v lies in b. NaN lies in none.
func (b Band) Holds(v float64) bool { return v >= float64(b.Low) && v <= float64(b.High) }

// String is the band as text tables show it.
func (b Band) String() string {
	low, high := float64(b.Low), float64(b.High)
	switch {
	case math.IsInf(high, 1):
		return "at least " + figure(low)
	case math.IsInf(low, -1):
		return "at most " + figure(high)
	}
	return figure(low) + " to " + figure(high)
}

// A claim is a figure of a paper and the condition under which it holds here.
type claim struct {
	label, quantity string
	paper           float64
	band            Band
	why             string // the reason, if it does not hold
	calibrated      bool   // it holds by construction
}

// within is the band from the paper's figure over factor to the figure times factor.
func (c claim) within(factor float64) claim {
	c.band = between(c.paper/factor, c.paper*factor)
	return c
}

// near is the band of figures that differ from the paper's by at most d.
func (c claim) near(d float64) claim {
	c.band = between(c.paper-d, c.paper+d)
	return c
}

// add judges the figure here.
func (t *Table) add(c claim, here float64) {
	r := Row{Label: c.label, Quantity: c.quantity, Paper: c.paper, Here: here, Band: c.band, Holds: c.band.Holds(here), Calibrated: c.calibrated}
	if !r.Holds {
		r.Why = fmt.Sprintf("%s is not %s", figure(here), c.band)
		if c.why != "" {
			r.Why = c.why
		}
	}
	if !r.Calibrated {
		t.Counted++
		if r.Holds {
			t.Held++
		}
	}
	t.Rows = append(t.Rows, r)
}

// setup adds a line to the setup.
func (t *Table) setup(format string, a ...any) { t.Setup = append(t.Setup, fmt.Sprintf(format, a...)) }

// figure writes three or four digits that count.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 100:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

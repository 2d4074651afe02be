package main

import (
	"strings"
	"testing"
)

// A row behind direct by more than the bar is bold, a control has no trainings of the same time, and what a recording
// does not have yet is said.
func TestGridTable(t *testing.T) {
	row := func(environment, way string, inSteps float64, inTime ...float64) gridRow {
		r := gridRow{Environment: environment, Model: "conv", Way: way}
		r.SameSteps = trained{Steps: 300, StepBytes: 1000, Accuracy: []float64{inSteps}, Mean: inSteps}
		if inTime != nil {
			r.SameTime = trained{Steps: 40, Accuracy: inTime, Mean: inTime[0]}
		}
		return r
	}
	table := gridTable(grid{Seconds: 8, Rows: []gridRow{
		row("mxnet", "3lc", 0.796, 0.71), row("mxnet", "direct", 0.8, 0.7), row("mxnet", "3lc(s=auto)", 0.794, 0.69), row("mxnet", "3lc(s=1.9)-", 0.7),
		row("jax", "direct", 0.8), row("jax", "int4", 0.81, 0.6),
	}})
	for _, want := range []string{
		"| mxnet conv | direct | 1 |  | 300 | 80.00 % |  | 40 | 70.00 % |  |",
		"| mxnet conv | `3lc` | 1 | 1.00x | 300 | 79.60 % | -0.40 | 40 | 71.00 % | +1.00 |",
		"| mxnet conv | `3lc(s=auto)` | 1 | 1.00x | 300 | 79.40 % | **-0.60** | 40 | 69.00 % | **-1.00** |",
		"| mxnet conv | `3lc(s=1.9)`, no feedback: the control | 1 | 1.00x | 300 | 70.00 % | **-10.00** |  |  |  |",
		"| jax conv | `int4` | 1 | 1.00x | 300 | 81.00 % | +1.00 | 40 | 60.00 % |  |",
		"\nNot recorded yet for as much time: jax conv.\n",
		"mxnet conv lossless, mxnet conv `int4`, mxnet transformer, mxnet embedding.",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

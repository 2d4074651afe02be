package main

import (
	"fmt"
	"slices"
	"strings"
)

// Grid is the measurement of accuracy --grid: small models of several frameworks, each on several ways. A recording may
// be unfinished.
type grid struct {
	Seeds    int       `json:"seeds"`
	Seconds  int       `json:"seconds"` // of the trainings of the same time
	RateMbps int       `json:"rate_mbps"`
	RTTms    int       `json:"rtt_ms"`
	Rows     []gridRow `json:"rows"`
}

// A gridRow is the trainings of a model with a framework on a way.
type gridRow struct {
	Environment string  `json:"environment"`
	Model       string  `json:"model"`
	Way         string  `json:"way"`
	Control     bool    `json:"negative_control"`
	SameSteps   trained `json:"same_steps"`
	SameTime    trained `json:"same_time"` // Accuracy is nil if there were none
}

// Trained is the trainings of all seeds, as means.
type trained struct {
	Steps     float64   `json:"steps"`
	StepBytes float64   `json:"wan_step_bytes"`
	Accuracy  []float64 `json:"accuracy"` // of each seed
	Mean      float64   `json:"mean_accuracy"`
}

// The jobs and ways of a whole recording, in the order of the table.
var (
	gridJobs = []string{"torch215 conv", "torch215 transformer", "torch215 embedding", "jax conv", "jax transformer", "jax embedding", "mxnet conv", "mxnet transformer", "mxnet embedding"}
	gridWays = []string{"direct", "lossless", "int4", "3lc", "3lc(s=auto)", "3lc+int4", "3lc(s=1.9)-"}
)

// barPoints is how many percentage points a way may be behind the direct one.
const barPoints = 0.5

func (g grid) row(job, way string) (r gridRow, ok bool) {
	i := slices.IndexFunc(g.Rows, func(r gridRow) bool { return r.Environment+" "+r.Model == job && r.Way == way })
	if i < 0 {
		return r, false
	}
	return g.Rows[i], true
}

// gridTable has a row for each job and way that has been recorded, and says below which ones have not. Points beyond
// the bar are bold.
func gridTable(g grid) string {
	rows := [][]string{{"job", "way", "kB a step", "fewer", "steps", "accuracy", "points", fmt.Sprintf("steps in %d s", g.Seconds), "accuracy", "points"}}
	var missing, untimed []string
	for _, job := range gridJobs {
		first, ok := g.row(job, "direct")
		if !ok {
			missing = append(missing, job)
			continue
		}
		for _, way := range gridWays {
			if r, ok := g.row(job, way); ok {
				rows = append(rows, r.cells(job, first))
				if len(r.SameTime.Accuracy) == 0 && !strings.HasSuffix(way, "-") && !slices.Contains(untimed, job) {
					untimed = append(untimed, job)
				}
			} else if way != "3lc+int4" || !strings.HasPrefix(job, "mxnet") { // a server's workers send each other no sums
				name, _, _ := strings.Cut(gridWayName(way), ",")
				missing = append(missing, job+" "+name)
			}
		}
	}
	table := markdown("llrrrrrrrr", rows)
	if len(missing) > 0 {
		table += "\nNot recorded yet: " + strings.Join(missing, ", ") + ".\n"
	}
	if len(untimed) > 0 {
		table += "\nNot recorded yet for as much time: " + strings.Join(untimed, ", ") + ".\n"
	}
	return table
}

// cells are the row of the table; first is the direct one.
func (r gridRow) cells(job string, first gridRow) []string {
	s, t := r.SameSteps, r.SameTime
	cells := []string{job, gridWayName(r.Way), fmt.Sprintf("%.0f", s.StepBytes/1e3), "", fmt.Sprintf("%.0f", s.Steps), fmt.Sprintf("%.2f %%", 100*s.Mean), "", "", "", ""}
	if len(t.Accuracy) > 0 {
		cells[7], cells[8] = fmt.Sprintf("%.0f", t.Steps), fmt.Sprintf("%.2f %%", 100*t.Mean)
	}
	if r.Way == first.Way {
		return cells
	}
	cells[3], cells[6] = factor(first.SameSteps.StepBytes/s.StepBytes), points(s, first.SameSteps)
	if len(t.Accuracy) > 0 && len(first.SameTime.Accuracy) > 0 {
		cells[9] = points(t, first.SameTime)
	}
	return cells
}

// gridWayName names a way as the tables do.
func gridWayName(way string) string {
	if codec, control := strings.CutSuffix(way, "-"); control {
		return "`" + codec + "`, no feedback: the control"
	}
	if way == "direct" || way == "lossless" {
		return way
	}
	return "`" + way + "`"
}

// points writes how many percentage points a is better than the direct one, in bold if it is behind by more than the
// bar.
func points(a, direct trained) string {
	d := 100 * (a.Mean - direct.Mean)
	if d < -barPoints {
		return fmt.Sprintf("**%+.2f**", d)
	}
	return fmt.Sprintf("%+.2f", d)
}

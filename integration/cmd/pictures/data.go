package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/scatter"
)

// Data is all measurements, a field for each file of docs/data. The names of the JSON are chosen by the commands that
// wrote the files; only the parts that are shown are read.
type data struct {
	WAN      wan
	Servers  servers // times on slow links
	Learning servers // accuracy and bytes with several seeds
	TF       servers // the same of TensorFlow
	Flower   servers // the same of Flower, in rounds
	NVFlare  servers // the same of NVFlare, whose clients send differences
	Rates    []timed
	Accuracy accuracy // a small model with several seeds
	Ring     accuracy // the model of WAN with one seed
	Grid     grid
	Codecs   struct{ Rows []coded } // gradproxy bench codecs on recorded sequences
	Other    other
	Tunnel   tunnel
}

// Wan is the measurement of wantable: the time of a DDP step.
type wan struct {
	Framework  string `json:"framework"`
	Parameters int    `json:"parameters"`
	Training   []leg  `json:"training"`
}

// A leg is a training on one way over one link.
type leg struct {
	RateMbps     int     `json:"rate_mbps"`
	RTTms        int     `json:"rtt_ms"`
	Way          string  `json:"way"`
	StepBytes    float64 `json:"wan_step_bytes"`
	StepSeconds  float64 `json:"step_seconds"`
	Ratio        float64 `json:"ratio"`
	Speedup      float64 `json:"speedup"`
	Identical    bool    `json:"replicas_identical"`
	SameAsDirect bool    `json:"same_as_direct"`
}

// Servers is the measurement of servertable: whole trainings on a parameter server.
type servers struct {
	Framework  string    `json:"framework"`
	Parameters int       `json:"parameters"`
	Workers    int       `json:"workers"`
	Steps      int       `json:"steps"`
	RTTms      int       `json:"rtt_ms"`
	Rows       []serving `json:"rows"`
	Sizes      []struct {
		Push float64 `json:"push_bytes"`
		Pull float64 `json:"pull_bytes"`
	} `json:"sizes"` // of each step
}

// Timed is a measurement of servertable over links of several rates.
type timed struct {
	name string // of the file, without "-rates.json"
	servers
}

// A serving is a row of servertable: the trainings on one way over one link.
type serving struct {
	RateMbps     int     `json:"rate_mbps"`
	Way          string  `json:"way"`
	Steps        int     `json:"steps"`
	Whole        bool    `json:"whole"`
	Seeds        int     `json:"seeds"`
	StepSeconds  float64 `json:"step_seconds"`
	Speedup      float64 `json:"speedup"`
	Push         float64 `json:"push_bytes"`
	Pull         float64 `json:"pull_bytes"`
	WAN          float64 `json:"wan_step_bytes"`
	Accuracy     float64 `json:"accuracy"`
	Points       float64 `json:"points"`
	Identical    bool    `json:"workers_identical"`
	SameAsDirect bool    `json:"same_as_direct"`
}

// Accuracy is the measurement of the command of that name: a DDP job after as many steps. The first variant is the
// direct one.
type accuracy struct {
	Parameters int       `json:"parameters"`
	Steps      int       `json:"steps"`
	Seeds      int       `json:"seeds"`
	Variants   []variant `json:"variants"`
}

// A variant is a way across the WAN, with means over whole trainings.
type variant struct {
	Name      string `json:"name"`
	SameSteps struct {
		StepBytes float64   `json:"wan_step_bytes"`
		Mean      float64   `json:"mean_accuracy"`
		Points    float64   `json:"points"`
		Identical bool      `json:"replicas_identical"`
		Distance  []float64 `json:"replica_distance"`
	} `json:"same_steps"`
}

// variant returns the variant of that name, or a zero one.
func (a accuracy) variant(name string) variant {
	i := slices.IndexFunc(a.Variants, func(v variant) bool { return v.Name == name })
	if i < 0 {
		return variant{}
	}
	return a.Variants[i]
}

// fewer returns how many times fewer bytes than direct a way has on the link, over a whole training.
func (a accuracy) fewer(name string) float64 {
	return a.Variants[0].SameSteps.StepBytes / max(1, a.variant(name).SameSteps.StepBytes)
}

// Coded is a row of gradproxy bench codecs.
type coded struct {
	scatter.Row
	BitsPerValue float64 `json:"bits_per_value"`
}

// plotted returns the rows for the picture of all codecs, in which a sequence has its name without that of its file's
// type.
func (d data) plotted() []scatter.Row {
	var rows []scatter.Row
	for _, r := range d.Codecs.Rows {
		r.Data = strings.TrimSuffix(r.Data, ".npy")
		rows = append(rows, r.Row)
	}
	return rows
}

// Tunnel has the rows of benchtunnel.
type tunnel struct {
	Rows []struct {
		ID   string  `json:"id"`
		Here float64 `json:"here"`
	} `json:"rows"`
}

// here returns the figure of the row of that name.
func (t tunnel) here(id string) float64 {
	for _, r := range t.Rows {
		if r.ID == id {
			return r.Here
		}
	}
	panic("docs/data/tunnel.json has no row " + id)
}

// Other is figures that tests and benchmarks print, written down by hand.
type other struct {
	OutageSeconds      float64 `json:"outage_seconds"`       // how long the link swallowed everything
	OutageDelaySeconds float64 `json:"outage_delay_seconds"` // how much longer the job took
}

// read reads the files of docs/data.
func read(dir string) (d data, err error) {
	for name, into := range map[string]any{"wan.json": &d.WAN, "servers.json": &d.Servers, "learning.json": &d.Learning, "tensorflow.json": &d.TF, "flower.json": &d.Flower, "nvflare-accuracy.json": &d.NVFlare, "accuracy.json": &d.Accuracy, "ring.json": &d.Ring, "grid.json": &d.Grid, "codecs.json": &d.Codecs, "other.json": &d.Other, "tunnel.json": &d.Tunnel} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			return d, fmt.Errorf("%s: %w", name, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*-rates.json"))
	if err != nil {
		return d, err
	}
	for _, file := range files {
		r := timed{name: strings.TrimSuffix(filepath.Base(file), "-rates.json")}
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &r.servers)
		}
		if err != nil {
			return d, fmt.Errorf("%s: %w", file, err)
		}
		d.Rates = append(d.Rates, r)
	}
	if len(d.WAN.Training) == 0 || len(d.Learning.Rows) == 0 || len(d.Codecs.Rows) == 0 || len(d.Accuracy.Variants) == 0 || len(d.Ring.Variants) == 0 || len(d.Grid.Rows) == 0 {
		return d, fmt.Errorf("%s: a measurement is empty", dir)
	}
	return d, nil
}

// shownRTT is the round-trip time of the links that pictures and the README show, in ms.
const shownRTT = 20

// ways returns the ways of the DDP measurement, in its order.
func (w wan) ways() (ways []string) {
	for _, l := range w.Training {
		if !slices.Contains(ways, l.Way) {
			ways = append(ways, l.Way)
		}
	}
	return ways
}

// leg returns the training on a way over a link, or a zero leg.
func (w wan) leg(mbps, rtt int, way string) leg {
	i := slices.IndexFunc(w.Training, func(l leg) bool { return l.RateMbps == mbps && l.RTTms == rtt && l.Way == way })
	if i < 0 {
		return leg{}
	}
	return w.Training[i]
}

// ratio returns the mean of how many times fewer bytes a way takes than the direct one, over all links.
func (w wan) ratio(way string) (mean float64) {
	n := 0.0
	for _, l := range w.Training {
		if l.Way == way {
			mean += l.Ratio
			n++
		}
	}
	return mean / max(n, 1)
}

// row returns the row of a way over a link of that rate, or over any link if mbps is 0; a zero row if there is none.
func (s servers) row(mbps int, way string) serving {
	i := slices.IndexFunc(s.Rows, func(r serving) bool { return (mbps == 0 || r.RateMbps == mbps) && r.Way == way })
	if i < 0 {
		return serving{}
	}
	return s.Rows[i]
}

// fewer returns how many times fewer bytes than direct a way has on the link, over whole trainings.
func (s servers) fewer(way string) float64 { return s.row(0, "direct").WAN / max(1, s.row(0, way).WAN) }

//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// A measurement is the settings and the results. The JSON names are stable.
type measurement struct {
	Environment  string   `json:"environment"` // of integration/env/install.sh
	Framework    string   `json:"framework"`   // its version
	Parameters   int      `json:"parameters"`  // of the model, float32
	Hidden       string   `json:"hidden"`
	Ranks        int      `json:"ranks"`
	Batch        int      `json:"batch"` // images a rank and step
	LearningRate float64  `json:"learning_rate"`
	Apart        bool     `json:"apart"` // each rank has the images of its own classes
	Seeds        int      `json:"seeds"`
	Ways         []string `json:"ways"`
	Steps        int      `json:"steps"`           // on the fast link; 0: none
	FastMbps     int      `json:"train_rate_mbps"` // of the fast link
	FastRTTms    int      `json:"train_rtt_ms"`
	Seconds      int      `json:"seconds"`   // on the slow link; 0: none
	RateMbps     int      `json:"rate_mbps"` // of the slow link
	RTTms        int      `json:"rtt_ms"`

	Variants []variant    `json:"variants"`
	Bars     program.Bars `json:"bars"`
	Holds    bool         `json:"holds"` // all bars

	trainer trainer
}

// A variant is a way across the WAN and the results of its trainings.
type variant struct {
	Name      string `json:"name"`
	Control   bool   `json:"negative_control"`
	SameSteps learnt `json:"same_steps"` // after as many steps as the direct run, on the fast link
	SameTime  learnt `json:"same_time"`  // after as many seconds as the direct run, on the slow link

	word   string // of --ways
	config testbed.Config
	way    testbed.Way
}

// defaultWays are compared by default. The last is the control.
const defaultWays = "direct 3lc 3lc+int4 3lc(s=1.9)-"

// variants returns the ways that are compared, where a job's tensors travel by that protocol: pslite, or "" for rings.
// With pslite a way's codec is that of the weights that come back as well, for which 3lc(s=auto) sends as much as 3lc;
// a control's is not.
func variants(ways []string, protocol string) (all []variant) {
	for _, name := range ways {
		v := variant{Name: name, word: name, way: testbed.Way(name), config: testbed.Way(name).Config()}
		if codec, control := strings.CutSuffix(name, "-"); control {
			v = variant{Name: codec + ", no feedback", word: name, Control: true, way: testbed.Way(codec), config: testbed.Config{Loss: testbed.Loss{Gradients: codec, NoFeedback: true}}}
		}
		if loss := &v.config.Loss; protocol != "" && loss.Gradients != "" {
			loss.Protocol = protocol
			if !v.Control {
				loss.State = strings.Replace(loss.Gradients, "(s=auto)", "", 1)
			}
		}
		all = append(all, v)
	}
	return all
}

// measure fills in the variants. dir is for the program under test and for weights.
func (m *measurement) measure(ctx context.Context, program, dir string) (err error) {
	m.Variants = variants(m.Ways, "")
	m.trainer = trainer{program: program, dir: dir, environment: m.Environment, ranks: m.Ranks, seeds: m.Seeds,
		args: []string{"--hidden", m.Hidden, "--batch", strconv.Itoa(m.Batch), "--lr", strconv.FormatFloat(m.LearningRate, 'g', -1, 64)}}
	if m.Apart {
		m.trainer.args = append(m.trainer.args, "--apart")
	}
	if m.trainer.gradproxy, err = testbed.Build(ctx, dir); err != nil {
		return err
	}
	for i := range m.Variants {
		v := &m.Variants[i]
		if m.Steps > 0 {
			if v.SameSteps, err = m.trainer.learn(ctx, v, testbed.Path(m.FastMbps, m.FastRTTms), "--steps", strconv.Itoa(m.Steps)); err != nil {
				return fmt.Errorf("%s, %d steps: %w", v.Name, m.Steps, err)
			}
		}
		if m.Seconds > 0 {
			if v.SameTime, err = m.trainer.learn(ctx, v, testbed.Path(m.RateMbps, m.RTTms), "--seconds", strconv.Itoa(m.Seconds)); err != nil {
				return fmt.Errorf("%s, %d seconds: %w", v.Name, m.Seconds, err)
			}
		}
	}
	direct := m.Variants[0].SameSteps
	if m.Steps == 0 {
		direct = m.Variants[0].SameTime
	}
	m.Framework, m.Parameters = direct.version, direct.parameters
	return nil
}

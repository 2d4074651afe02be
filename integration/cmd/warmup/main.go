// Command warmup shows whether a short training with a parameter server gains by the additions of Deep Gradient
// Compression (arXiv:1712.01887, section 3) to a codec with error feedback: warm-up, which sends the first gradients
// finer, and momentum correction with factor masking, where workers apply the momentum before they encode and the
// server applies none. A proxy cannot do the latter: the job's optimizer has the momentum. Run it from anywhere:
//
//	go run ./integration/cmd/warmup --json docs/data/warmup.json
//
// A convolutional network trains on Fashion-MNIST on simulated workers in this process, by SGD with momentum and a rate
// that falls to a hundredth along a cosine. Pulls are exact. The same command gives the same figures every time.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/cluster"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/data"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/learn"
)

// A measurement is the settings and the results. The JSON names are stable.
type measurement struct {
	Workers  int     `json:"workers"`
	Batch    int     `json:"batch"` // images a worker and step
	Rate     float64 `json:"learning_rate"`
	Momentum float64 `json:"momentum"`
	Steps    int     `json:"steps"`
	Seeds    int     `json:"seeds"`
	Rows     []row   `json:"rows"`
}

// A row is the trainings of all seeds on one way.
type row struct {
	Codec     string    `json:"codec"` // of pushes; "": none
	Early     string    `json:"early"` // likewise, in the first EarlyPart of the steps; "": none
	EarlyPart float64   `json:"early_part"`
	Correct   bool      `json:"momentum_correction"`
	Ratio     float64   `json:"ratio"`    // bytes of the gradients over bytes of the pushes, in the whole training
	Accuracy  []float64 `json:"accuracy"` // of each seed
	Mean      float64   `json:"mean_accuracy"`
	Points    float64   `json:"points"` // percentage points: Mean less that of the first row
}

// ways are compared, the first with the others.
func ways() (rows []row) {
	rows = []row{{}, {Codec: "int4"}}
	for _, codec := range []string{"3lc", "topk"} {
		rows = append(rows,
			row{Codec: codec},
			row{Codec: codec, EarlyPart: 0.1},
			row{Codec: codec, EarlyPart: 0.1, Early: "int4"},
			row{Codec: codec, EarlyPart: 0.3, Early: "int4"},
			row{Codec: codec, Correct: true},
			row{Codec: codec, EarlyPart: 0.1, Early: "int4", Correct: true})
	}
	return rows
}

func main() {
	m := measurement{Workers: 2, Batch: 32, Rate: 0.02, Momentum: 0.9, Rows: ways()}
	var out, dir string
	flag.IntVar(&m.Steps, "steps", 300, "steps of a training")
	flag.IntVar(&m.Seeds, "seeds", 3, "seeds, from 1")
	flag.StringVar(&dir, "data", "", "folder with fashion-mnist; default: where Debian's package dataset-fashion-mnist has it")
	flag.StringVar(&out, "json", "", "also write the measurement to this file")
	flag.Parse()
	program.Main("warmup", func(ctx context.Context) error {
		if err := m.measure(ctx, dir); err != nil {
			return err
		}
		fmt.Print(m.markdown())
		return program.WriteJSON(out, m)
	})
}

// measure trains on every way with every seed, on all cores.
func (m *measurement) measure(ctx context.Context, dir string) error {
	set, test, err := data.Fashion(dir)
	if err != nil {
		return err
	}
	data.Standardize(&set, &test)
	outcomes := make([]cluster.Outcome, len(m.Rows)*m.Seeds)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range outcomes {
		g.Go(func() error {
			r, seed := &m.Rows[i/m.Seeds], uint64(i%m.Seeds+1)
			j, err := m.job(r, seed)
			if err != nil {
				return err
			}
			j.Model, j.Set, j.Test = learn.NewCNN(seed, set.Side, channels, classes), set, test
			outcomes[i], err = cluster.Train(ctx, j)
			fmt.Fprintf(os.Stderr, "%s, seed %d: accuracy %.4f\n", r.name(), seed, outcomes[i].Accuracy)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range m.Rows {
		m.Rows[i].sum(outcomes[i*m.Seeds:(i+1)*m.Seeds], m.Rows[0].Mean)
	}
	return nil
}

// The network: channels of the two layers of filters, and classes of images.
var channels = [2]int{8, 16}

const classes = 10

// bypass is the number of values from which on a tensor is coded: biases are not.
const bypass = 64

// job returns a row's training, without its data.
func (m *measurement) job(r *row, seed uint64) (j cluster.Job, err error) {
	j = cluster.Job{Workers: m.Workers, Batch: m.Batch, Steps: m.Steps, Rate: m.Rate, Momentum: m.Momentum, Seed: seed,
		Bypass: bypass, EarlySteps: int(r.EarlyPart * float64(m.Steps)), Correct: r.Correct}
	if j.Push, err = wire(r.Codec); err == nil {
		j.Early, err = wire(r.Early)
	}
	return j, err
}

// wire returns the Wire of a codec with feedback; "": that of none.
func wire(codec string) (w cluster.Wire, err error) {
	if codec != "" {
		w.Feedback = true
		w.Codec, err = all.New(codec)
	}
	return w, err
}

// sum sums up the outcomes of all seeds; direct is the mean accuracy of the first row.
func (r *row) sum(outcomes []cluster.Outcome, direct float64) {
	var pushed cluster.Traffic
	for _, o := range outcomes {
		r.Accuracy = append(r.Accuracy, o.Accuracy)
		r.Mean += o.Accuracy / float64(len(outcomes))
		pushed.Add(o.Pushed)
	}
	r.Ratio = pushed.Ratio()
	if direct > 0 {
		r.Points = 100 * (r.Mean - direct)
	}
}

// name returns the words for the row's way.
func (r *row) name() string {
	name := r.Codec
	if name == "" {
		name = "exact"
	}
	if r.EarlyPart > 0 {
		early := r.Early
		if early == "" {
			early = "exact"
		}
		name += fmt.Sprintf(", %s for the first %.0f %%", early, 100*r.EarlyPart)
	}
	if r.Correct {
		name += ", momentum correction"
	}
	return name
}

// markdown prints the table.
func (m *measurement) markdown() string {
	table := program.NewTable("pushes", "#fewer bytes", "#accuracy", "#points")
	for i := range m.Rows {
		r := &m.Rows[i]
		points := ""
		if i > 0 {
			points = fmt.Sprintf("%+.2f", r.Points)
		}
		table.Row(r.name(), fmt.Sprintf("%.1fx", r.Ratio), fmt.Sprintf("%.2f %%", 100*r.Mean), points)
	}
	return fmt.Sprintf("%d steps, means of %d seeds.\n\n%v", m.Steps, m.Seeds, table)
}

//go:build linux

package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/bpf"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

var wordFile = flag.String("word", "", "file for the measurements of TestUsersWord, which then runs all its jobs; \"\": it runs one")

// wordSeeds is the number of runs of each job on the user's word, each with a seed of its own.
const wordSeeds = 3

// A wordJob is a job of torch_sums.py that sums something else than gradients too.
type wordJob struct {
	Case        string `json:"case"`
	Environment string `json:"environment"`
	Ranks       int    `json:"ranks"`
	Codec       string `json:"codec"` // of gradients, on the user's word
}

// wordJobs are jobs in which a sum that is no gradient lost something in the first releases, and jobs like them.
func wordJobs() (all []wordJob) {
	add := func(environment string, ranks int, codec string, cases ...string) {
		for _, c := range cases {
			all = append(all, wordJob{c, environment, ranks, codec})
		}
	}
	add("torch215", 2, "3lc",
		"ema-5", "ema-10", "ema-50", "ema-unused", "ema-unused-10", "ema-mean", "lm-ema-5", "lm-weights-10", "weights-1", "buckets-sum", "parameters", "average-10",
		"momentum", "lm-momentum", "max", "fisher", "integers",
		"lm-local-5", "lm-local-50", "lm-flat-20", "sgd-20", "adam-20", "local-20", "lora", "byhand", "then-averages", "then-averages-fast", "diloco",
		"activations", "preactivations", "static")
	add("torch215", 2, "int4", "ema-10", "momentum", "max")
	add("torch113", 2, "3lc", "ema-10", "momentum", "max", "fisher")
	add("torch215", 3, "3lc", "ema-10", "average-10", "weights-1", "momentum", "lm-momentum", "max", "fisher", "lora", "sgd-20", "adam-20", "byhand",
		"activations", "preactivations")
	return all
}

// A wordRow has the sums of one kind of a job.
type wordRow struct {
	wordJob
	Kind    string  `json:"kind"`
	Runs    int     `json:"runs"`    // on the user's word, as all down to Coded
	Found   int     `json:"found"`   // runs in which a proxy found a sum that is no gradient
	Sums    int     `json:"sums"`    // of the kind
	Inexact int     `json:"inexact"` // of these, at the rank that has most
	Worst   float64 `json:"worst"`   // error of one of them, over its norm
	Coded   float64 `json:"coded"`   // bytes that lost something, of sums of any kind

	ProvedSums    int `json:"proved_sums"` // of the kind, where the processes are seen
	ProvedInexact int `json:"proved_inexact"`
}

// On the user's word alone, where nobody sees the processes, the content check finds most sums that are no gradients,
// also in a ring of three. With -word this measures how many it does not find, and that none of them loses anything
// where the processes are seen.
func TestUsersWord(t *testing.T) {
	t.Parallel()
	if *wordFile == "" {
		row := onWord(t, wordJob{"average-10", "torch215", 3, "3lc"}, 7)["weights"]
		if row.Sums == 0 || row.Inexact != 0 || row.Found == 0 || row.Coded == 0 {
			t.Errorf("%+v: want weights that are exact, and found, after gradients that lost something", row)
		}
		return
	}
	if _, err := os.Stat(filepath.Dir(*wordFile)); err != nil {
		t.Fatalf("-word: %v: name a file in a folder that is there; %s is meant from the folder integration", err, *wordFile)
	}
	proved := map[string]map[string]testbed.Checks{}
	for _, j := range wordJobs() {
		key := fmt.Sprintf("%s/%d", j.Environment, j.Ranks)
		if proved[key] != nil {
			continue
		}
		proved[key] = map[string]testbed.Checks{}
		t.Run("proved/"+key, func(t *testing.T) { proved[key] = whereSeen(t, j.Environment, j.Ranks) })
	}
	rows := []wordRow{}
	for _, j := range wordJobs() {
		t.Run(fmt.Sprintf("word/%s/%s/%d/%s", j.Case, j.Environment, j.Ranks, j.Codec), func(t *testing.T) {
			kinds := map[string]wordRow{}
			for seed := range wordSeeds {
				for kind, r := range onWord(t, j, seed+7) {
					r.Worst = max(r.Worst, kinds[kind].Worst)
					r.Runs, r.Found, r.Sums = r.Runs+kinds[kind].Runs, r.Found+kinds[kind].Found, r.Sums+kinds[kind].Sums
					r.Inexact, r.Coded = r.Inexact+kinds[kind].Inexact, r.Coded+kinds[kind].Coded
					kinds[kind] = r
				}
			}
			for _, kind := range slices.Sorted(maps.Keys(kinds)) {
				row, seen := kinds[kind], proved[fmt.Sprintf("%s/%d", j.Environment, j.Ranks)][j.Case+"/"+kind]
				row.ProvedSums, row.ProvedInexact = seen.Sums, seen.Inexact
				rows = append(rows, row)
				t.Logf("%+v", row)
			}
		})
	}
	text, err := json.MarshalIndent(rows, "", "  ")
	if err == nil {
		err = os.WriteFile(*wordFile, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// onWord runs a job on the user's word, and returns its sums by kind.
func onWord(t *testing.T, j wordJob, seed int) map[string]wordRow {
	t.Helper()
	config := testbed.Way(j.Codec).Config()
	config.Loss.Sums = "gradients"
	job := sumsJob(t, j.Environment, j.Ranks, j.Case, "--seed", fmt.Sprint(seed))
	w := newGateways(t, j.Ranks, fast)
	ps := startProxies(t, w, config)
	results := runJob(t, w, job)
	coded, err := ps.Sent(deadline(t, time.Minute), "gradient", j.Codec)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]wordRow{}
	for name, checks := range worstOf(results) {
		_, kind, _ := strings.Cut(name, "/")
		row := wordRow{wordJob: j, Kind: kind, Runs: 1, Sums: checks.Sums, Inexact: checks.Inexact, Worst: checks.Worst, Coded: coded}
		if strings.Contains(ps.Warnings(), "a sum of the job is no gradient") {
			row.Found = 1
		}
		rows[kind] = row
	}
	return rows
}

// whereSeen runs all jobs of an environment and a number of ranks where their processes are seen, as one job. It fails
// the test if a sum that is no gradient of DDP is inexact, and returns the sums by case and kind.
func whereSeen(t *testing.T, environment string, ranks int) map[string]testbed.Checks {
	t.Helper()
	require.Named(t, "bpf", bpf.Permitted() == nil, "run the tests with all capabilities")
	var cases []string
	for _, j := range wordJobs() {
		if j.Environment == environment && j.Ranks == ranks && !slices.Contains(cases, j.Case) {
			cases = append(cases, j.Case)
		}
	}
	config := testbed.Way("3lc+int4").Config()
	config.Loss.Sums = "proved"
	w := newWAN(t, ranks, fast)
	ps := startProxies(t, w, config)
	ctx := deadline(t, 30*time.Minute)
	results := runProbedJob(t, ctx, w, ps, sumsJob(t, environment, ranks, strings.Join(cases, ",")))
	wantSumsExact(t, results)
	wantProved(t, ctx, ps, testbed.Way("3lc").Config(), results) // sums that are nearly all zero go through no int4, since lossless coding makes them smaller
	sums := worstOf(results)
	t.Logf("%+v", sums)
	return sums
}

// worstOf returns the sums by case and kind: all ranks have the same ones, of which each may have found others inexact.
func worstOf(results []testbed.Result) map[string]testbed.Checks {
	all := map[string]testbed.Checks{}
	for _, r := range results {
		for name, c := range r.Kinds {
			was := all[name]
			all[name] = testbed.Checks{Sums: c.Sums, Inexact: max(c.Inexact, was.Inexact), Worst: max(c.Worst, was.Worst)}
		}
	}
	return all
}

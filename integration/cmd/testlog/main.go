// Testlog prints the output of `go test -json` as go test itself prints it: a line for each package, and the output of
// failed ones. It also records how long packages and tests took and which failed, prints the slowest of a whole run, and the
// failed tests that may be run again.
//
//	go test -json ./... | testlog -record FILE -run NAME
//	testlog -record FILE -slowest 10
//	testlog -record FILE -failed NAME
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	record := flag.String("record", "", "`file` to which the seconds are appended")
	run := flag.String("run", "", "`name` of the run, for the list of the slowest")
	slowest := flag.Int("slowest", 0, "print the `number` slowest packages and tests of all runs in the file, then the last run's packages")
	failed := flag.String("failed", "", "print each package of the run of this `name` that failed, and a pattern for its failed tests")
	flag.Parse()
	if err := work(*record, *run, *slowest, *failed); err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(1)
	}
}

func work(record, run string, slowest int, failed string) error {
	if slowest > 0 || failed != "" {
		text, err := os.ReadFile(record)
		if err != nil {
			return err
		}
		all, err := parse(string(text))
		if err != nil {
			return err
		}
		if failed != "" {
			return again(os.Stdout, all, failed)
		}
		report(os.Stdout, all, slowest)
		return nil
	}
	results, err := read(os.Stdin, os.Stdout, run)
	if err != nil || record == "" {
		return err
	}
	file, err := os.OpenFile(record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for _, r := range results {
		if err := json.NewEncoder(file).Encode(r); err != nil {
			return err
		}
	}
	return file.Close()
}

// An event is a line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// A result is the time of a package, or of one of its tests.
type result struct {
	Run, Package, Test string
	Seconds            float64
	Line               string // go test's own, of a package
	Failed             bool   `json:",omitempty"`
	Fatal              bool   `json:",omitempty"` // the output has a data race, a panic or a fatal error of Go's
}

// read copies events to w as text and returns the results.
func read(r io.Reader, w io.Writer, run string) ([]result, error) {
	var results []result
	output := map[string]map[string]*strings.Builder{} // by package and test
	in := bufio.NewScanner(r)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Fprintln(w, in.Text()) // of the go command
			continue
		}
		if e.Package == "" { // of the compiler
			fmt.Fprint(w, e.Output)
			continue
		}
		tests := output[e.Package]
		if tests == nil {
			tests = map[string]*strings.Builder{}
			output[e.Package] = tests
		}
		switch e.Action {
		case "output":
			if tests[e.Test] == nil {
				tests[e.Test] = new(strings.Builder)
			}
			tests[e.Test].WriteString(e.Output)
		case "pass", "skip", "fail":
			if e.Test != "" {
				if e.Action != "fail" {
					delete(tests, e.Test)
				}
				results = append(results, result{Run: run, Package: e.Package, Test: e.Test, Seconds: e.Elapsed, Failed: e.Action == "fail"})
				continue
			}
			r := result{Run: run, Package: e.Package, Seconds: e.Elapsed, Line: closing(tests[""]), Failed: e.Action == "fail"}
			if r.Failed {
				var text strings.Builder
				dump(&text, tests)
				fmt.Fprint(w, text.String())
				r.Fatal = fatal.MatchString(text.String())
			} else {
				fmt.Fprintln(w, r.Line)
			}
			results = append(results, r)
			delete(output, e.Package)
		}
	}
	for name, tests := range output { // of packages without a verdict
		dump(w, tests)
		results = append(results, result{Run: run, Package: name, Failed: true, Fatal: true})
	}
	return results, in.Err()
}

// dump prints the output of tests that have failed or not ended, then the package's own.
func dump(w io.Writer, tests map[string]*strings.Builder) {
	var names []string
	for name := range tests {
		if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range append(names, "") {
		if tests[name] != nil {
			fmt.Fprint(w, tests[name])
		}
	}
}

// closing returns go test's own line about a package, the last of its output.
func closing(output *strings.Builder) string {
	if output == nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(output.String(), "\n"), "\n")
	return lines[len(lines)-1]
}

// fatal fits the output of a failure that no second run excuses.
var fatal = regexp.MustCompile(`(?m)^(WARNING: DATA RACE|panic: |fatal error: )`)

// parse returns the results of a record.
func parse(record string) (all []result, err error) {
	in := json.NewDecoder(strings.NewReader(record))
	for in.More() {
		var r result
		if err := in.Decode(&r); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// again prints a line for each package of a run that failed: its import path, and a pattern for the tests that failed. It is an error if a package failed in a way
// that a second run of these tests cannot excuse: it was not built, or did not end, or a data race, a panic or a fatal error of Go's was found.
func again(w io.Writer, all []result, run string) error {
	tests := map[string][]string{}
	for _, r := range all {
		switch {
		case r.Run != run || !r.Failed || strings.Contains(r.Test, "/"):
		case r.Test != "":
			tests[r.Package] = append(tests[r.Package], r.Test)
		case r.Fatal || len(tests[r.Package]) == 0: // a package's own result comes after the results of its tests
			return fmt.Errorf("%s: %s failed, and not by its tests alone", run, r.Package)
		default:
			fmt.Fprintf(w, "%s ^(%s)$\n", r.Package, strings.Join(tests[r.Package], "|"))
		}
	}
	return nil
}

// report prints the slowest packages and tests of a record, then the lines of the last run's packages.
func report(w io.Writer, all []result, n int) {
	var packages, tests []result
	for _, r := range all {
		switch {
		case r.Test == "":
			packages = append(packages, r)
		case !strings.Contains(r.Test, "/"):
			tests = append(tests, r)
		}
	}
	list := func(kind string, all []result) {
		fmt.Fprintf(w, "the slowest %s:\n", kind)
		slowest := slices.Clone(all)
		slices.SortStableFunc(slowest, func(a, b result) int { return int(1000 * (b.Seconds - a.Seconds)) })
		for _, r := range slowest[:min(n, len(slowest))] {
			fmt.Fprintf(w, "%8.1f s  %s  (%s)\n", r.Seconds, strings.TrimSpace(r.Package+" "+r.Test), r.Run)
		}
	}
	list("packages", packages)
	list("tests", tests)
	for _, p := range packages {
		if last := packages[len(packages)-1]; p.Run == last.Run {
			fmt.Fprintln(w, p.Line)
		}
	}
}

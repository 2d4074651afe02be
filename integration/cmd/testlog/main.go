// Testlog prints the output of `go test -json` as go test itself prints it: a line for each package, and the output of
// failed ones. It also records how long packages and tests took and which failed, prints the slowest of a whole run,
// and the failed tests that may be run again.
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
	Fatal              bool   `json:",omitempty"` // of a package that failed in a way that no second run excuses
}

// A listing is the output of a package until its verdict.
type listing struct {
	tests   map[string]*strings.Builder // output by test; "": the package's own
	running map[string]bool             // tests without a verdict
	fatal   map[string]bool             // tests with such output
}

// read copies events to w as text and returns the results.
func read(r io.Reader, w io.Writer, run string) ([]result, error) {
	var results []result
	listings := map[string]*listing{}
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
		l := listings[e.Package]
		if l == nil {
			l = &listing{map[string]*strings.Builder{}, map[string]bool{}, map[string]bool{}}
			listings[e.Package] = l
		}
		switch e.Action {
		case "run":
			l.running[e.Test] = true
		case "output":
			l.add(e.Test, e.Output)
		case "pass", "skip", "fail":
			failed := e.Action == "fail"
			if e.Test == "" {
				results = append(results, l.end(w, result{Run: run, Package: e.Package, Seconds: e.Elapsed, Failed: failed}))
				delete(listings, e.Package)
				continue
			}
			delete(l.running, e.Test)
			if !failed && !l.fatal[e.Test] {
				delete(l.tests, e.Test)
			}
			results = append(results, result{Run: run, Package: e.Package, Test: e.Test, Seconds: e.Elapsed, Failed: failed})
		}
	}
	for name, l := range listings { // without a verdict
		dump(w, l.tests)
		results = append(results, result{Run: run, Package: name, Failed: true, Fatal: true})
	}
	return results, in.Err()
}

// add notes output. A data race is told to the test that has said something last, which may be another one than the
// test that then fails.
func (l *listing) add(test, text string) {
	if l.tests[test] == nil {
		l.tests[test] = new(strings.Builder)
	}
	l.tests[test].WriteString(text)
	if fatal.MatchString(text) {
		l.fatal[test] = true
	}
}

// end prints the output of a failed package, or go test's own line about one that passed, and completes its result.
func (l *listing) end(w io.Writer, r result) result {
	r.Line = closing(l.tests[""])
	if !r.Failed {
		fmt.Fprintln(w, r.Line)
		return r
	}
	dump(w, l.tests)
	r.Fatal = len(l.fatal)+len(l.running) > 0
	return r
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

// fatal fits a line of output of a failure that no second run excuses. A test may repeat the output of a process that
// it started, with blanks before it.
var fatal = regexp.MustCompile(`(?m)WARNING: DATA RACE|race detected during execution of test|` +
	`^\s*(panic: |fatal error: |signal: |SIGQUIT|exit status [2-9]|FAIL: the order of locks|\*\*\* Test killed)`)

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

// again prints a line for each package of a run that failed: its import path, and a pattern for the tests that failed.
// It is an error if there is none, or if a package failed in a way that a second run of these tests cannot excuse: it
// was not built, did not end, or some of its tests did not, or its output is fatal.
func again(w io.Writer, all []result, run string) error {
	tests := map[string][]string{}
	packages := 0
	for _, r := range all {
		switch {
		case r.Run != run || !r.Failed || strings.Contains(r.Test, "/"):
		case r.Test != "":
			tests[r.Package] = append(tests[r.Package], r.Test)
		case r.Fatal || len(tests[r.Package]) == 0: // the package's own result comes after its tests' results
			return fmt.Errorf("%s: %s failed, and not by its tests alone", run, r.Package)
		default:
			fmt.Fprintf(w, "%s ^(%s)$\n", r.Package, strings.Join(tests[r.Package], "|"))
			packages++
		}
	}
	if packages == 0 {
		return fmt.Errorf("%s failed, and no package of it did", run)
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

// Command vulns looks in the Go project's database for known vulnerabilities of the modules and of the standard library
// that the program calls, by govulncheck. It takes the database from the module golang.org/x/vulndb, so it works
// wherever modules can be had. Run it from the root of the checkout:
//
//	go run ./integration/cmd/vulns
//
// A vulnerability of a module that some function of the program reaches makes the exit code 1, unless exceptions has a
// reason for it. One of the standard library is a line that says which Go to build with, since the machine's Go
// decides: --strict makes it a failure too. Where the database or the scanner cannot be had, the command says so, and
// the exit code is 3.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The command fetches these.
const (
	scanner  = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"
	database = "golang.org/x/vulndb@latest"
)

// exceptions are vulnerabilities that some call reaches and that harm nobody here, with the reason.
var exceptions = map[string]string{
	"GO-2026-4479": "random nonces of pion/dtls/v2's own AES-GCM suites: no such suite is on offer or taken (TestDTLSRefuses of proxy/tunnel)",
}

// errAbsent: nothing was looked for.
var errAbsent = errors.New("NOT CHECKED for known vulnerabilities")

func main() {
	strict := flag.Bool("strict", false, "fail by vulnerabilities of the standard library too")
	flag.Parse()
	switch err := run(context.Background(), os.Stdout, *strict); {
	case errors.Is(err, errAbsent):
		fmt.Fprintf(os.Stderr, "vulns: %v\n", err)
		os.Exit(3)
	case err != nil:
		fmt.Fprintf(os.Stderr, "vulns: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, strict bool) error {
	fetched, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", database).Output()
	var module struct{ Dir, Version, Error string }
	if json.Unmarshal(fetched, &module) != nil || module.Dir == "" {
		return fmt.Errorf("%w: %s cannot be had: %v %s", errAbsent, database, err, module.Error)
	}
	dir, err := os.MkdirTemp("", "vulns-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	install := exec.CommandContext(ctx, "go", "install", scanner)
	install.Env = append(os.Environ(), "GOBIN="+dir)
	if said, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s cannot be had: %w: %s", errAbsent, scanner, err, said)
	}
	report, err := scan(ctx, filepath.Join(dir, "govulncheck"), filepath.Join(module.Dir, "data", "osv"))
	if err != nil {
		return err
	}
	found, err := read(bytes.NewReader(report))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "database of %s\n", module.Version)
	return judge(out, found, strict)
}

// scan has a scanner that is there look through the program, and returns its report. A scan that fails is a failure:
// else a program that it cannot read would pass.
func scan(ctx context.Context, scanner, database string) (report []byte, err error) {
	cmd := exec.CommandContext(ctx, scanner, "-format", "json", "-db", "file://"+database, "./cmd/gradproxy")
	var said strings.Builder
	cmd.Stderr = &said
	if report, err = cmd.Output(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(scanner), err, strings.TrimSpace(said.String()))
	}
	return report, nil
}

// A finding is a vulnerability and the deepest level at which the program has to do with it.
type finding struct {
	id, summary  string
	module       string
	fixed        string // version; "": none
	called       bool   // by the program, through other functions or itself
	inStandard   bool
	imported     bool // the package is, at least
	versionThere string
}

// read returns the findings of govulncheck's JSON, by id.
func read(r io.Reader) ([]finding, error) {
	all, summaries := map[string]finding{}, map[string]string{}
	for d := json.NewDecoder(r); ; {
		var message struct {
			OSV     *struct{ ID, Summary string }
			Finding *struct {
				OSV   string
				Fixed string `json:"fixed_version"`
				Trace []struct{ Module, Version, Package, Function string }
			}
		}
		if err := d.Decode(&message); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("report of govulncheck: %w", err)
		}
		if o := message.OSV; o != nil {
			summaries[o.ID] = o.Summary
		}
		if f := message.Finding; f != nil && len(f.Trace) > 0 {
			x, at := all[f.OSV], f.Trace[0]
			x.id, x.module, x.fixed, x.versionThere, x.inStandard = f.OSV, at.Module, f.Fixed, at.Version, at.Module == "stdlib"
			x.called, x.imported = x.called || at.Function != "", x.imported || at.Package != ""
			all[f.OSV] = x
		}
	}
	var list []finding
	for _, id := range slices.Sorted(maps.Keys(all)) {
		f := all[id]
		f.summary = summaries[id]
		list = append(list, f)
	}
	return list, nil
}

// judge writes a line for each finding that is called, and returns an error for the ones that must not be there.
func judge(out io.Writer, found []finding, strict bool) error {
	var bad []string
	met := map[string]bool{}
	for _, f := range found {
		if !f.called {
			continue
		}
		fixed := "no fix"
		if f.fixed != "" {
			fixed = "mended in " + f.fixed
		}
		verdict := "FAILS"
		switch reason := exceptions[f.id]; {
		case reason != "":
			verdict, met[f.id] = "no harm: "+reason, true
		case f.inStandard && !strict:
			verdict = "build with a newer Go"
		default:
			bad = append(bad, f.id)
		}
		fmt.Fprintf(out, "%s %s %s (%s): %s: %s\n", f.id, f.module, f.versionThere, fixed, f.summary, verdict)
	}
	for id := range exceptions {
		if !met[id] {
			fmt.Fprintf(out, "%s is called no more: take it out of exceptions\n", id)
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("the program calls code with known vulnerabilities: %s", strings.Join(bad, ", "))
	}
	return nil
}

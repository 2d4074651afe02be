package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// report is govulncheck's output for four vulnerabilities: a module's that is called, one with a reason, one in a
// package that is only imported, and one of the standard library.
const report = `{"config":{"scanner_name":"govulncheck"}}
{"osv":{"id":"GO-1","summary":"evil"}}
{"finding":{"osv":"GO-1","fixed_version":"v2.0.0","trace":[{"module":"example.org/m","version":"v1.0.0"}]}}
{"finding":{"osv":"GO-1","fixed_version":"v2.0.0","trace":[{"module":"example.org/m","version":"v1.0.0","package":"example.org/m","function":"F"},{"module":"us","function":"main"}]}}
{"finding":{"osv":"GO-2026-4479","trace":[{"module":"github.com/pion/dtls/v2","version":"v2.2.12","package":"p","function":"F"}]}}
{"finding":{"osv":"GO-2","fixed_version":"v3.0.0","trace":[{"module":"example.org/n","version":"v1.0.0","package":"example.org/n"}]}}
{"finding":{"osv":"GO-3","fixed_version":"v1.99.0","trace":[{"module":"stdlib","version":"v1.26.0","package":"net/http","function":"Serve"}]}}
`

// Called vulnerabilities of modules fail, of the standard library with strict only; one that is not called, or has a
// reason, never fails.
func TestJudge(t *testing.T) {
	found, err := read(strings.NewReader(report))
	if err != nil || len(found) != 4 {
		t.Fatalf("%d findings, %v", len(found), err)
	}
	for strict, want := range map[bool]string{false: ": GO-1", true: ": GO-1, GO-3"} {
		var out strings.Builder
		if err := judge(&out, found, strict); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("strict=%v: %v, want an error that ends with %q", strict, err, want)
		}
		if text := out.String(); strings.Contains(text, "GO-2 ") || !strings.Contains(text, "GO-1 example.org/m v1.0.0 (mended in v2.0.0): evil: FAILS") {
			t.Error(text)
		}
	}
	var out strings.Builder
	if err := judge(&out, found[2:], false); err != nil {
		t.Errorf("without a called one of a module: %v", err)
	}
	if err := judge(&out, nil, true); err != nil || !strings.Contains(out.String(), "GO-2026-4479 is called no more") {
		t.Errorf("an exception that nothing needs is not named: %v\n%s", err, out.String())
	}
}

// A scanner that fails is not one that is absent: the program has not been looked through.
func TestFailedScan(t *testing.T) {
	scanner := filepath.Join(t.TempDir(), "govulncheck")
	if err := os.WriteFile(scanner, []byte("#!/bin/sh\necho 'no required module provides package' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := scan(t.Context(), scanner, t.TempDir())
	if err == nil || errors.Is(err, errAbsent) || !strings.Contains(err.Error(), "no required module provides package") {
		t.Errorf("%v", err)
	}
}

// A report that is cut off is an error, not a clean bill.
func TestCutReport(t *testing.T) {
	if _, err := read(strings.NewReader(report[:len(report)-20])); err == nil {
		t.Error("a report without its end is taken for a whole one")
	}
}

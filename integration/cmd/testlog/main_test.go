package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"good says this\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood","Elapsed":2.5}
{"Action":"output","Package":"m/a","Output":"PASS\n"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t3.000s\n"}
{"Action":"pass","Package":"m/a","Elapsed":3}
{"Action":"output","Package":"m/b","Test":"TestBad","Output":"    b_test.go:3: bad says this\n"}
{"Action":"output","Package":"m/b","Test":"TestBad","Output":"--- FAIL: TestBad (1.00s)\n"}
{"Action":"fail","Package":"m/b","Test":"TestBad","Elapsed":1}
{"Action":"output","Package":"m/b","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"m/b","Output":"FAIL\tm/b\t4.000s\n"}
{"Action":"fail","Package":"m/b","Elapsed":4}
{"ImportPath":"m/c","Action":"build-output","Output":"c.go:1:1: syntax error\n"}
{"Action":"output","Package":"m/c","Output":"FAIL\tm/c [build failed]\n"}
{"Action":"fail","Package":"m/c","Elapsed":0}
FAIL
`

func TestTextOfEvents(t *testing.T) {
	var text strings.Builder
	results, err := read(strings.NewReader(events), &text, "plain")
	if err != nil {
		t.Fatal(err)
	}
	want := `ok  	m/a	3.000s
    b_test.go:3: bad says this
--- FAIL: TestBad (1.00s)
panic: test timed out
FAIL	m/b	4.000s
c.go:1:1: syntax error
FAIL	m/c [build failed]
FAIL
`
	if text.String() != want {
		t.Errorf("printed\n%swant\n%s", text.String(), want)
	}
	for _, want := range []result{
		{Run: "plain", Package: "m/a", Test: "TestGood", Seconds: 2.5},
		{Run: "plain", Package: "m/b", Test: "TestBad", Seconds: 1, Failed: true},
		{Run: "plain", Package: "m/b", Seconds: 4, Line: "FAIL\tm/b\t4.000s", Failed: true, Fatal: true},
		{Run: "plain", Package: "m/c", Line: "FAIL\tm/c [build failed]", Failed: true},
	} {
		if !slices.Contains(results, want) {
			t.Errorf("%v does not hold %v", results, want)
		}
	}
}

func TestReport(t *testing.T) {
	const record = `{"Run":"plain","Package":"m/a","Seconds":3,"Line":"ok a"}
{"Run":"race","Package":"m/a","Test":"TestGood","Seconds":25}
{"Run":"race","Package":"m/a","Test":"TestGood/part","Seconds":24}
{"Run":"race","Package":"m/a","Seconds":30,"Line":"ok a with race"}
`
	all, err := parse(record)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	report(&text, all, 1)
	want := `the slowest packages:
    30.0 s  m/a  (race)
the slowest tests:
    25.0 s  m/a TestGood  (race)
ok a with race
`
	if text.String() != want {
		t.Errorf("printed\n%swant\n%s", text.String(), want)
	}
}

// A second run can make good the failures of tests alone.
func TestFailedTests(t *testing.T) {
	bad := result{Run: "plain", Package: "m/a", Test: "TestBad", Failed: true}
	part := result{Run: "plain", Package: "m/a", Test: "TestBad/part", Failed: true}
	worse := result{Run: "plain", Package: "m/a", Test: "TestWorse", Failed: true}
	good := result{Run: "plain", Package: "m/a", Test: "TestGood"}
	other := result{Run: "race", Package: "m/a", Test: "TestOther", Failed: true}
	whole := result{Run: "plain", Package: "m/a", Failed: true}
	dead := result{Run: "plain", Package: "m/a", Failed: true, Fatal: true}
	for _, c := range []struct {
		all  []result
		want string // "": an error
	}{
		{[]result{good, part, bad, worse, other, whole}, "m/a ^(TestBad|TestWorse)$\n"},
		{[]result{bad, dead}, ""},
		{[]result{good, whole}, ""},
		{[]result{other, whole}, ""},
		{[]result{good}, ""}, // the go command was killed, say
	} {
		var text strings.Builder
		if err := again(&text, c.all, "plain"); (err != nil) != (c.want == "") || err == nil && text.String() != c.want {
			t.Errorf("%v: %q, %v, want %q", c.all, text.String(), err, c.want)
		}
	}
}

// A data race, a panic, a crash and a violated order of locks show in the output, also in the output of a process that
// a test repeats.
func TestFatal(t *testing.T) {
	for text, want := range map[string]bool{
		"=== RUN TestA\nWARNING: DATA RACE\nWrite at":                                     true,
		"        WARNING: DATA RACE":                                                      true,
		"    testing.go:1617: race detected during execution of test\n":                   true,
		"panic: runtime error: index out of range":                                        true,
		"fatal error: concurrent map writes\n":                                            true,
		"signal: killed\n":                                                                true,
		"exit status 3\n":                                                                 true,
		"exit status 1\n":                                                                 false,
		"FAIL: the order of locks (proxy/internal/rank) was violated: a before b\n":       true,
		"    a_test.go:1: the job ended by a panic: of the peer, with an exit status 2\n": false,
	} {
		if fatal.MatchString(text) != want {
			t.Errorf("%q: fatal %v, want %v", text, !want, want)
		}
	}
}

// The report of a data race is printed, and makes the failure of its package fatal, whichever test it is told to. So
// does a test that has not ended.
func TestFatalOfParallelTests(t *testing.T) {
	for name, c := range map[string]struct{ events, say string }{
		"a race told to a test that passes": {`{"Action":"run","Package":"m/a","Test":"TestA"}
{"Action":"run","Package":"m/a","Test":"TestB"}
{"Action":"output","Package":"m/a","Test":"TestB","Output":"WARNING: DATA RACE\n"}
{"Action":"pass","Package":"m/a","Test":"TestB","Elapsed":1}
{"Action":"fail","Package":"m/a","Test":"TestA","Elapsed":1}
{"Action":"fail","Package":"m/a","Elapsed":1}
`, "WARNING: DATA RACE\n"},
		"a test that does not end": {`{"Action":"run","Package":"m/a","Test":"TestA"}
{"Action":"fail","Package":"m/a","Test":"TestA","Elapsed":1}
{"Action":"run","Package":"m/a","Test":"TestB"}
{"Action":"output","Package":"m/a","Test":"TestB","Output":"B begins\n"}
{"Action":"fail","Package":"m/a","Elapsed":1}
`, "B begins\n"},
	} {
		var text strings.Builder
		results, err := read(strings.NewReader(c.events), &text, "race")
		if err != nil {
			t.Fatal(err)
		}
		if err := again(io.Discard, results, "race"); err == nil || !strings.Contains(text.String(), c.say) {
			t.Errorf("%s: excused, or not told: %v\n%s", name, err, &text)
		}
	}
}

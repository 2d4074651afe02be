package main

import (
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
	if want := (result{"plain", "m/a", "TestGood", 2.5, ""}); !slices.Contains(results, want) {
		t.Errorf("%v does not hold %v", results, want)
	}
}

func TestReport(t *testing.T) {
	const record = `{"Run":"plain","Package":"m/a","Seconds":3,"Line":"ok a"}
{"Run":"race","Package":"m/a","Test":"TestGood","Seconds":25}
{"Run":"race","Package":"m/a","Test":"TestGood/part","Seconds":24}
{"Run":"race","Package":"m/a","Seconds":30,"Line":"ok a with race"}
`
	var text strings.Builder
	if err := report(&text, record, 1); err != nil {
		t.Fatal(err)
	}
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

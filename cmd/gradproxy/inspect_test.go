package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/inspect"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/capture/capturetest"
)

// The output of inspect --json has the documented names, all of them and no other.
func TestInspectJSON(t *testing.T) {
	client, server := netip.MustParseAddrPort("10.0.0.1:4000"), netip.MustParseAddrPort("10.0.0.2:5000")
	file := filepath.Join(t.TempDir(), "job.pcap")
	capture := capturetest.Write([]capturetest.Conn{{Client: client, Server: server}},
		[]capturetest.Chunk{{From: parser.Client, Bytes: []byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n")}})
	if err := os.WriteFile(file, capture, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := inspectCommand()
	c.SetArgs([]string{"--json", "--sums", "gradients", "--ranks", "2", "--codec", "int8", file})
	c.SetOut(&out)
	if err := c.ExecuteContext(context.Background()); err != nil {
		t.Fatal(err)
	}
	const empty = `"payload_messages":0,"payload_bytes":0,"payload_sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"role_bytes":{"gradient":0,"aggregate":0,"state":0,"exact":0,"unknown":0}`
	const none = `{"raw_bytes":0,"bytes":0}`
	const cost = `"raw_bytes":33,"bytes":33,"ratio":1,"short_of_memory":false,"roles":{"gradient":` + none + `,"aggregate":` + none + `,
		"state":` + none + `,"exact":` + none + `,"unknown":` + none + `,"opaque":{"raw_bytes":33,"bytes":33}}`
	var got, want any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	if err := json.Unmarshal([]byte(`{"connections":[{"client":"10.0.0.1:4000","server":"10.0.0.2:5000","protocol":"unknown","name":"HTTP/1","complete":true,
		"from_client":{"bytes":33,"messages":0,`+empty+`},"from_server":{"bytes":0,"messages":0,`+empty+`}}],
		"hosts":[{"client":"10.0.0.1","server":"10.0.0.2","ports":[5000],"protocol":"unknown","name":"HTTP/1","connections":1,
		"from_client_bytes":33,"from_server_bytes":0,"lossless_bytes":33}],"methods":[],
		"policies":[{"codec":"lossless",`+cost+`},{"codec":"int8",`+cost+`}]}`), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %s", out.Bytes())
	}
	stdin, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	defer func(before *os.File) { os.Stdin = before }(os.Stdin)
	os.Stdin = stdin
	named := out.String()
	out.Reset()
	c.SetArgs([]string{"-"}) // as tcpdump -w - writes it; other flags stay as they were
	if err := c.ExecuteContext(context.Background()); err != nil || out.String() != named {
		t.Errorf("- : %v, %s", err, out.Bytes())
	}
}

// An interrupted inspect reports on the part of a pipe that it has read, and says so if it has read nothing. The report
// on a part of a file comes with an error, since inspect could have read the whole file.
func TestInterruptedInspectReports(t *testing.T) {
	packed, err := os.Open("internal/inspect/testdata/torch215.pcap.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		ctx, interrupt := context.WithCancel(t.Context())
		from, to := io.Pipe()
		go func() {
			to.Write(text[:len(text)/2]) // it ends in the middle of a packet
			interrupt()
		}()
		report, err := inspectUntil(ctx, "-", from, inspect.Config{})
		if err != nil || len(report.Connections) == 0 {
			t.Fatalf("%+v, %v", report, err)
		}
		to.Close()
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	from, to := io.Pipe()
	defer to.Close()
	if report, err := inspectUntil(ctx, "-", from, inspect.Config{}); report != nil || err == nil || err.Error() != "inspect: interrupted" {
		t.Errorf("%+v, %v", report, err)
	}
}

// A report on a file that was not read to its end is no report on the file.
func TestInterruptedFileIsAnError(t *testing.T) {
	r := readUntil(t.Context(), strings.NewReader("capture"))
	if text, err := io.ReadAll(r); err != nil || string(text) != "capture" || r.cut {
		t.Errorf("%q, %v, cut: %v", text, err, r.cut)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	from, to := io.Pipe()
	defer to.Close()
	go func() { to.Write([]byte("cap")); interrupt() }()
	r = readUntil(ctx, from)
	if text, err := io.ReadAll(r); err != nil || string(text) != "cap" || !r.cut {
		t.Errorf("%q, %v, cut: %v", text, err, r.cut)
	}
}

func TestInspectErrors(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("hello ", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{[]string{text}, "neither pcap nor pcapng", false},
		{[]string{text + "x"}, "no such file", true},
		{[]string{"--sums", "weights", text}, "--sums weights", true},
		{[]string{"--ranks", "1", text}, "--ranks 1", true},
		{[]string{"--what-if", "--link", "fast", text}, "--link fast: write a rate and a round-trip time, such as 100M/40ms", true},
		{[]string{"--link", "1M/-4ms", text}, "--link 1M/-4ms: ", true},
		{[]string{"--link", "0/4ms", text}, "--link 0/4ms: ", true},
		{[]string{"--link", "5/4ms", text}, "--link 5/4ms: the rate has no unit: write 5M for megabits per second, or 5bit", true},
		{[]string{"--link", "100M/", text}, "--link 100M/: write a rate and a round-trip time, such as 100M/40ms", true},
		{[]string{"--what-if", "--currency", "euros", text}, `--currency: "euros" is not a currency: write its code of three capital letters, such as USD`, true},
		{[]string{"--html", "-", text}, "--html -: name a file", true},
		{[]string{"--site", "10.0.0.0/8,here", text}, `--site 10.0.0.0/8,here: "here" is not a network`, true},
		{[]string{"--price", "-1", text}, "--price -1: write the price of a gigabyte", true},
		{[]string{"--price", "NaN", text}, "--price NaN: ", true},
		{[]string{"--codec", "int9", text}, "--codec: policy \"int9\": ", true},
		{[]string{"--codec", "int8+", text}, "write CODEC for gradients, or CODEC+CODEC", true},
		{[]string{}, "0 files given, one is needed: write gradproxy inspect FILE.pcap", true},
	} {
		cmd := inspectCommand()
		cmd.SetArgs(c.args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		var out bytes.Buffer
		cmd.SetOut(&out)
		err := cmd.ExecuteContext(context.Background())
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || out.Len() > 0 {
			t.Errorf("%q: %v, want one line with %q", c.args, err, c.want)
		}
		if _, usage := err.(*usageError); usage != c.usage {
			t.Errorf("%q: an error of usage: %v, want %v", c.args, usage, c.usage)
		}
	}
}

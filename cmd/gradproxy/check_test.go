package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// Check takes the files of both sites, says that they fit, and fails with one line for each thing that does not.
func TestCheckBothSites(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.Write(pki.Options{Dir: dir, Domain: "lab", Sites: []string{"paris", "tokyo"}}); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	paris := write("paris.yaml", `site: paris
peers: [{name: tokyo, dial: "tokyo.example:7443", networks: [10.2.0.0/16], may_dial: ["10.1.0.0/16:1024-65535"]}]
intercept: {mode: redirect}
`)
	tokyo := write("tokyo.yaml", `site: tokyo
peers: [{name: paris, networks: [10.1.0.0/16], may_dial: ["10.2.0.0/16:1024-65535"]}]
intercept: {mode: redirect}
`)
	narrow := write("narrow.yaml", `site: tokyo
peers: [{name: paris, networks: [10.1.0.0/16], may_dial: ["10.9.0.0/16:1024-65535"]}]
intercept: {mode: redirect}
`)
	for _, x := range []struct {
		args []string
		code int
		said string
	}{
		{[]string{paris}, 0, "paris.yaml: ok: site paris"},
		{[]string{"-c", paris}, 0, "paris.yaml: ok: site paris"},
		{[]string{paris, tokyo}, 0, "the 2 sites fit together"},
		{[]string{paris, narrow}, 2, "peers[0].networks[0]: connections to 10.2.0.0/16 are taken here, and refused by tokyo"},
		{[]string{paris, narrow}, 2, "peers[0].may_dial[0]: 10.9.0.0/16:1024-65535 is of use to nobody"},
		{[]string{paris, filepath.Join(dir, "none.yaml")}, 2, "there is no such file"},
		{nil, 2, "no file given"},
	} {
		var out, err bytes.Buffer
		code := execute(t.Context(), append([]string{"check"}, x.args...), &out, &err)
		if said := out.String() + err.String(); code != x.code || !strings.Contains(said, x.said) {
			t.Errorf("%q: exit code %d, want %d, with %q:\n%s", x.args, code, x.code, x.said, said)
		}
	}
	var out, err bytes.Buffer
	var got checkedTogether
	if code := execute(t.Context(), []string{"check", "--json", paris, narrow}, &out, &err); code != 2 {
		t.Errorf("exit code %d", code)
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.OK || len(got.Files) != 2 || !got.Files[0].OK || len(got.Errors) != 1 || len(got.Warnings) != 1 {
		t.Errorf("%v: %s", err, out.String())
	}
}

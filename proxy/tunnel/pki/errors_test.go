package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fails fails unless err is one line that begins with the package's name and contains every one of want.
func fails(t *testing.T, what string, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	if !strings.HasPrefix(err.Error(), "pki: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %q is not one line of this package", what, err)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q says nothing of %q", what, err, w)
		}
	}
}

// made returns a directory with an authority of "lab" and one site, paris.
func made(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := Write(Options{Dir: dir, Domain: "lab", Sites: []string{"paris"}, Now: now}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Files that are not an authority's certificate with its key are refused with the file's name and a remedy, and nothing
// is written.
func TestWrongAuthorityFiles(t *testing.T) {
	key := func(k any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, file string
		content    []byte
		want       string
	}{
		{"empty certificate", "ca.pem", nil, "find any PEM"},
		{"garbage for a certificate", "ca.pem", []byte("garbage\n"), "find any PEM"},
		{"a broken certificate", "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), "x509"},
		{"empty key", "ca.key", nil, "find any PEM"},
		{"a broken key", "ca.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), "parse private key"},
		{"another key", "ca.key", key(other), "does not match"},
	} {
		dir := made(t)
		if err := os.WriteFile(filepath.Join(dir, c.file), c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := Write(Options{Dir: dir, Sites: []string{"tokyo"}, Now: now})
		fails(t, c.name, err, filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"), c.want, "use another directory")
		if _, err := os.Lstat(filepath.Join(dir, "tokyo.pem")); len(files) != 0 || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: wrote %v", c.name, files)
		}
	}
}

// Places that cannot be written to are named.
func TestWrongDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		_, err := Write(Options{Dir: dir, Domain: "lab", Sites: []string{"paris"}})
		fails(t, dir, err, file, "not a directory")
	}
}

// An authority's end is said, with the day and a remedy.
func TestExpiredAuthority(t *testing.T) {
	_, err := Write(Options{Dir: made(t), Sites: []string{"tokyo"}, Now: now.Add(caValid + time.Hour)})
	fails(t, "after its end", err, "authority of lab", now.Add(caValid).Format(time.DateOnly), "make a new one")
}

// Names become parts of ids and of file names: a name that could be anything else there is refused, for sites and
// domains.
func TestNames(t *testing.T) {
	for _, name := range []string{"a", "0", "a-b_c.d", "a..b", strings.Repeat("a", 64)} {
		if err := checkName("site", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "-", "_a", "a_", "-a", "a.", "A", "ä", "a b", "a/b", "../a", `a\b`, "a\n", "a\x00", "a:1", "a@b", "a%2f", "*", strings.Repeat("a", 65)} {
		dir := t.TempDir()
		_, err := Write(Options{Dir: dir, Domain: "lab", Sites: []string{name}})
		fails(t, name, err, `site "`, "use 1 to 64 lower-case letters")
		_, err = Write(Options{Dir: dir, Domain: name, Sites: []string{"a"}})
		if name == "" {
			fails(t, name, err, "no trust domain")
		} else {
			fails(t, name, err, `trust domain "`, "use 1 to 64 lower-case letters")
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%q: wrote %v, %v", name, entries, err)
		}
	}
}

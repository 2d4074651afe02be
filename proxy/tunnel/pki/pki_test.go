package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func names(files []string) string {
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	return strings.Join(names, " ")
}

// load reads a site's pair and verifies it as a peer would at that time.
func load(t *testing.T, dir, site string, at time.Time, usage x509.ExtKeyUsage) (*x509.Certificate, error) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, site+".pem"), filepath.Join(dir, site+".key"))
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}})
	return pair.Leaf, err
}

// One call makes an authority and its sites, a later one adds a site that the others' authority vouches for.
func TestSitesNowAndLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	files, err := Write(Options{Dir: dir, Domain: "lab.example", Sites: []string{"paris", "tokyo"}, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(files), "ca.key ca.pem paris.key paris.pem tokyo.key tokyo.pem"; got != want {
		t.Errorf("wrote %s, not %s", got, want)
	}
	later := now.AddDate(0, 1, 0)
	files, err = Write(Options{Dir: dir, Sites: []string{"berlin"}, Now: later, Valid: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(files), "berlin.key berlin.pem"; got != want {
		t.Errorf("wrote %s, not %s", got, want)
	}
	for site, ends := range map[string]time.Time{"paris": now.Add(siteValid), "berlin": later.Add(24 * time.Hour)} {
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			leaf, err := load(t, dir, site, later, usage)
			if err != nil {
				t.Errorf("%s: %v", site, err)
			}
			if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://lab.example/"+site || leaf.IsCA {
				t.Errorf("%s: URIs %v, authority %v", site, leaf.URIs, leaf.IsCA)
			}
			if !leaf.NotAfter.Equal(ends) {
				t.Errorf("%s: ends %v, not %v", site, leaf.NotAfter, ends)
			}
		}
		if _, err := load(t, dir, site, ends.Add(time.Second), x509.ExtKeyUsageClientAuth); err == nil {
			t.Errorf("%s: valid after its end", site)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(e.Name()) == ".key" && fi.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), fi.Mode())
		}
	}
	if len(entries) != 8 {
		t.Errorf("%d files: %v", len(entries), entries)
	}
}

// A certificate does not outlive the authority.
func TestEndsWithTheAuthority(t *testing.T) {
	a, err := NewAuthority("lab", now)
	if err != nil {
		t.Fatal(err)
	}
	cert, _, err := a.Issue("paris", now.Add(caValid-time.Hour), siteValid)
	if err != nil || !cert.NotAfter.Equal(a.cert.NotAfter) {
		t.Errorf("ends %v, %v; the authority ends %v", cert.NotAfter, err, a.cert.NotAfter)
	}
	if _, _, err := a.Issue("paris", now.Add(caValid+time.Hour), siteValid); err == nil || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("err %v", err)
	}
}

// Nothing is written over, and nothing is written at all if something is wrong.
func TestWritesAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := Write(Options{Dir: dir, Domain: "lab", Sites: []string{"paris"}}); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	key, ca := read("paris.key"), read("ca.pem")
	for want, o := range map[string]Options{
		"paris.key exists":           {Sites: []string{"tokyo", "paris"}},
		`is for trust domain "lab"`:  {Sites: []string{"tokyo"}, Domain: "other"},
		"no site given":              {},
		`site "Tokyo"`:               {Sites: []string{"Tokyo"}},
		`site "../tokyo"`:            {Sites: []string{"../tokyo"}},
		`site "ca": the name`:        {Sites: []string{"ca"}},
		`"tokyo": the name is taken`: {Sites: []string{"tokyo", "tokyo"}},
		"must be positive":           {Sites: []string{"tokyo"}, Valid: -1},
	} {
		o.Dir = dir
		if files, err := Write(o); err == nil || !strings.Contains(err.Error(), want) || len(files) != 0 {
			t.Errorf("%q: wrote %v, err %v", want, files, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 4 {
		t.Errorf("files: %v", entries)
	}
	if files, err := Write(Options{Dir: dir, Sites: []string{"paris"}, Force: true}); err != nil || names(files) != "paris.key paris.pem" {
		t.Errorf("wrote %v, %v", files, err)
	}
	if read("paris.key") == key || read("ca.pem") != ca {
		t.Error("Force wrote over the authority, or not over the site")
	}
	if fi, err := os.Stat(filepath.Join(dir, "paris.key")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
}

func TestBrokenAuthority(t *testing.T) {
	if _, err := Write(Options{Dir: t.TempDir(), Sites: []string{"paris"}}); err == nil || !strings.Contains(err.Error(), "no trust domain") {
		t.Errorf("err %v", err)
	}
	for remove, want := range map[string]string{"ca.key": "only one is there", "ca.pem": "only one is there"} {
		dir := t.TempDir()
		if _, err := Write(Options{Dir: dir, Domain: "lab", Sites: []string{"paris"}}); err != nil {
			t.Fatal(err)
		}
		os.Remove(filepath.Join(dir, remove))
		if _, err := Write(Options{Dir: dir, Domain: "lab", Sites: []string{"tokyo"}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v", remove, err)
		}
	}
	dir := t.TempDir() // a site's certificate in the authority's place
	if _, err := Write(Options{Dir: dir, Domain: "lab", Sites: []string{"paris"}}); err != nil {
		t.Fatal(err)
	}
	for _, ext := range []string{".pem", ".key"} {
		if err := os.Rename(filepath.Join(dir, "paris"+ext), filepath.Join(dir, "ca"+ext)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Write(Options{Dir: dir, Sites: []string{"tokyo"}}); err == nil || !strings.Contains(err.Error(), "is not an authority") {
		t.Errorf("err %v", err)
	}
}

// An authority vouches for its own domain only.
func TestOtherDomain(t *testing.T) {
	a, err := NewAuthority("lab", now)
	if err != nil {
		t.Fatal(err)
	}
	a.Domain = "other"
	cert, _, err := a.Issue("paris", now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err == nil || !strings.Contains(err.Error(), "not permitted") {
		t.Errorf("err %v", err)
	}
	if !slices.Equal(a.cert.PermittedURIDomains, []string{"lab"}) {
		t.Errorf("permitted %v", a.cert.PermittedURIDomains)
	}
}

// A peer whose clock is ten minutes behind takes a certificate that was made just now.
func TestClocksApart(t *testing.T) {
	dir := t.TempDir()
	if _, err := Write(Options{Dir: dir, Domain: "lab", Sites: []string{"paris"}, Now: now}); err != nil {
		t.Fatal(err)
	}
	for _, behind := range []time.Duration{0, 10 * time.Minute, 55 * time.Minute} {
		if _, err := load(t, dir, "paris", now.Add(-behind), x509.ExtKeyUsageServerAuth); err != nil {
			t.Errorf("a clock that is %v behind: %v", behind, err)
		}
	}
}

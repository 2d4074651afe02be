package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Any number of sites at once, and one more each time later: each key and serial number is its own, each certificate
// names its own site, and all come from one authority.
func TestAnyNumberOfSites(t *testing.T) {
	for _, n := range []int{1, 2, 30} {
		dir := t.TempDir()
		var sites []string
		for i := range n {
			sites = append(sites, fmt.Sprintf("site-%d", i))
		}
		files, err := Write(Options{Dir: dir, Domain: "lab", Sites: sites, Now: now})
		if err != nil || len(files) != 2+2*n {
			t.Fatalf("%d files for %d sites, %v", len(files), n, err)
		}
		for i := range 3 {
			later := fmt.Sprintf("later-%d", i)
			if files, err := Write(Options{Dir: dir, Domain: "lab", Sites: []string{later}, Now: now}); err != nil || len(files) != 2 {
				t.Fatalf("%v for %s, %v", files, later, err)
			}
			sites = append(sites, later)
		}
		seen := map[string]string{}
		for _, site := range sites {
			leaf, err := load(t, dir, site, now, x509.ExtKeyUsageServerAuth)
			if err != nil {
				t.Errorf("%s: %v", site, err)
			}
			if leaf.URIs[0].String() != ID("lab", site) || leaf.Subject.CommonName != site || len(leaf.DNSNames)+len(leaf.IPAddresses) != 0 {
				t.Errorf("%s: URIs %v, subject %v, names %v", site, leaf.URIs, leaf.Subject, leaf.DNSNames)
			}
			for what, v := range map[string]string{"key": string(leaf.RawSubjectPublicKeyInfo), "serial number": leaf.SerialNumber.String()} {
				if other, ok := seen[what+v]; ok {
					t.Errorf("%s has the %s of %s", site, what, other)
				}
				seen[what+v] = site
			}
		}
	}
}

// A site is believed from a little before it was made to its end, for clocks that differ, and not a second more.
func TestValidity(t *testing.T) {
	dir := made(t)
	for at, ok := range map[time.Time]bool{
		now.Add(-backdate - time.Second): false, now.Add(-backdate): true, now: true,
		now.Add(siteValid): true, now.Add(siteValid + time.Second): false,
	} {
		if _, err := load(t, dir, "paris", at, x509.ExtKeyUsageClientAuth); (err == nil) != ok {
			t.Errorf("at %v: %v", at, err)
		}
	}
}

// Another authority of the same domain, with the same names, is not believed; nor is a site's certificate as an
// authority's, nor an authority below this one.
func TestWrongAuthority(t *testing.T) {
	dir, other := made(t), made(t)
	for _, ext := range []string{".pem", ".key"} {
		if err := os.Rename(filepath.Join(other, "paris"+ext), filepath.Join(dir, "forged"+ext)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := load(t, dir, "forged", now, x509.ExtKeyUsageClientAuth); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("err %v", err)
	}
	a, err := LoadAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	paris, key, err := a.Issue("paris", now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	below := &Authority{"lab", paris, key}
	leaf, _, err := below.Issue("tokyo", now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	roots, chain := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(a.cert)
	chain.AddCert(paris)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err == nil {
		t.Error("a site signs for another one")
	}
	template := *a.cert
	template.SerialNumber = serial()
	if below.cert, err = sign(&template, a.cert, key, a.key); err != nil {
		t.Fatal(err)
	}
	if leaf, _, err = below.Issue("tokyo", now, time.Hour); err != nil {
		t.Fatal(err)
	}
	chain.AddCert(below.cert)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err == nil || !strings.Contains(err.Error(), "too many intermediates") {
		t.Errorf("an authority below this one signs for a site: %v", err)
	}
}

// The files serve a handshake in which both sides prove their identities, as they were written and with the site that
// was added later.
func TestHandshake(t *testing.T) {
	dir := made(t)
	if _, err := Write(Options{Dir: dir, Sites: []string{"tokyo"}, Now: now}); err != nil {
		t.Fatal(err)
	}
	config := func(site string) *tls.Config {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, site+".pem"), filepath.Join(dir, site+".key"))
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
		if err != nil || !roots.AppendCertsFromPEM(ca) {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
			RootCAs: roots, InsecureSkipVerify: true, Time: func() time.Time { return now }}
	}
	a, b := net.Pipe()
	server := tls.Server(b, config("tokyo"))
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	client := tls.Client(a, config("paris"))
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := server.ConnectionState().VerifiedChains[0][0].URIs[0].String(); got != "spiffe://lab/paris" {
		t.Errorf("the client is %s", got)
	}
	a.Close()
	b.Close()
}

// Keys are their owner's whatever the process would allow others; nothing but the files that were asked for is left in
// the directory.
func TestModes(t *testing.T) {
	dir := made(t)
	if _, err := Write(Options{Dir: dir, Sites: []string{"paris", "tokyo"}, Now: now, Force: true}); err != nil {
		t.Fatal(err)
	}
	want := map[string]os.FileMode{"ca.key": 0o600, "ca.pem": 0o644, "paris.key": 0o600, "paris.pem": 0o644, "tokyo.key": 0o600, "tokyo.pem": 0o644}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(want) {
		t.Errorf("%v, %v", entries, err)
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode() != want[e.Name()] {
			t.Errorf("%s has mode %v, not %v", e.Name(), fi.Mode(), want[e.Name()])
		}
	}
}

// A file that is there stays, whatever it is and whichever of a site's two it is, and the error names it; a link is not
// followed.
func TestExistingFilesStay(t *testing.T) {
	for _, name := range []string{"tokyo.pem", "tokyo.key"} {
		for _, link := range []bool{false, true} {
			dir := made(t)
			path, elsewhere := filepath.Join(dir, name), filepath.Join(dir, "elsewhere")
			var err error
			if link {
				err = os.Symlink(elsewhere, path) // to nothing
			} else {
				err = os.WriteFile(path, []byte("mine"), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			files, err := Write(Options{Dir: dir, Sites: []string{"berlin", "tokyo"}, Now: now})
			fails(t, name, err, path+" exists: remove it, or write over it with --force")
			if entries, _ := os.ReadDir(dir); len(files) != 0 || len(entries) != 5 {
				t.Errorf("wrote %v; %v", files, entries)
			}
			if b, err := os.ReadFile(path); !link && (err != nil || string(b) != "mine") {
				t.Errorf("%s is %q, %v", path, b, err)
			}
			if _, err := Write(Options{Dir: dir, Sites: []string{"tokyo"}, Now: now, Force: true}); err != nil {
				t.Errorf("by force: %v", err)
			}
			if _, err := os.Lstat(elsewhere); err == nil {
				t.Error("the link was followed")
			}
			if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() || name == "tokyo.key" && fi.Mode().Perm() != 0o600 {
				t.Errorf("by force %s is %v, %v", name, fi.Mode(), err)
			}
		}
	}
}

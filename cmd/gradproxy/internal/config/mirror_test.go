package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

const (
	parisFile = `site: paris
peers:
  - {name: tokyo, dial: "tokyo.example:7443", networks: [10.2.0.0/16], may_dial: ["10.1.0.0/16:1024-65535"]}
intercept: {mode: redirect}
forward: [{listen: "127.0.0.1:9000", target: "10.2.0.5:9000"}]
jobs: [{name: resnet, networks: [10.0.0.0/8], ranks: 2}]
`
	tokyoFile = `site: tokyo
peers:
  - {name: paris, networks: [10.1.0.0/16], may_dial: ["10.2.0.0/16:1024-65535"]}
intercept: {mode: redirect}
jobs: [{name: resnet, networks: [10.0.0.0/8], ranks: 2}]
`
)

// twoFiles returns the configurations of paris and tokyo, with these replacements (old and new, in turn) in either.
func twoFiles(t *testing.T, paris, tokyo []string) []*Config {
	t.Helper()
	var all []*Config
	for _, x := range []struct {
		file, text string
		changes    []string
	}{{"paris.yaml", parisFile, paris}, {"tokyo.yaml", tokyoFile, tokyo}} {
		for i := 0; i+1 < len(x.changes); i += 2 {
			if !strings.Contains(x.text, x.changes[i]) {
				t.Fatalf("%s has no %q", x.file, x.changes[i])
			}
			x.text = strings.Replace(x.text, x.changes[i], x.changes[i+1], 1)
		}
		c, problems := parse(x.file, []byte(x.text), known())
		if len(problems.Errors()) > 0 {
			t.Fatal(problems)
		}
		all = append(all, c)
	}
	return all
}

// Two sites that mirror each other have no problem. Each setting of one that the other does not mirror is named, once,
// at the file and the key.
func TestTogether(t *testing.T) {
	no := []string{}
	for name, x := range map[string]struct {
		paris, tokyo []string
		want         []string // parts of the only problem; none: there is no problem
	}{
		"mirrors": {no, no, nil},
		"another carrier": {[]string{"site: paris\n", "site: paris\ntunnel: {carrier: dtls}\n"}, no,
			[]string{"paris.yaml:2: tunnel.carrier: dtls at one site and nothing at the other, "}},
		"carriers that differ": {[]string{"site: paris\n", "site: paris\ntunnel: {carrier: dtls}\n"}, []string{"site: tokyo\n", "site: tokyo\ntunnel: {carrier: tls}\n"},
			[]string{"paris.yaml:2: tunnel.carrier: dtls here, and tls at tokyo: no tunnel comes up"}},
		"a carrier that is chosen": {[]string{"site: paris\n", "site: paris\ntunnel: {carrier: dtls}\n"}, []string{"site: tokyo\n", "site: tokyo\ntunnel: {carrier: auto}\n"}, nil},
		"the same carrier":         {[]string{"site: paris\n", "site: paris\ntunnel: {carrier: dtls}\n"}, []string{"site: tokyo\n", "site: tokyo\ntunnel: {carrier: dtls}\n"}, nil},
		"narrow may_dial": {no, []string{"10.2.0.0/16:1024-65535", "10.2.0.0/16:1024-50000"},
			[]string{"paris.yaml:3: peers[0].networks[0]: of the connections to 10.2.0.0/16 on ports 1024-65535", "tokyo refuses some", `"10.2.0.0/16:1024-65535"`}},
		"may_dial of no use": {[]string{`"10.1.0.0/16:1024-65535"`, `"10.1.0.0/16:1024-65535", "10.7.0.0/16:80"`}, no,
			[]string{"paris.yaml:3: peers[0].may_dial[1]: 10.7.0.0/16:80 is of use to nobody"}},
		"nobody dials": {[]string{`dial: "tokyo.example:7443", `, ""}, no,
			[]string{"paris.yaml:3: peers[0].dial: it is missing, and tokyo.yaml has none for paris either"}},
		"dials a closed door": {no, []string{"site: tokyo", "site: tokyo\ntunnel: {listen: \"off\"}", "{name: paris,", `{name: paris, dial: "p:7443",`},
			[]string{"paris.yaml:3: peers[0].dial: tokyo listens nowhere"}},
		"another port": {[]string{"tokyo.example:7443", "tokyo.example:7444"}, no,
			[]string{"paris.yaml:3: peers[0].dial: port 7444, but tokyo listens on [::]:7443"}},
		"forward that is refused": {[]string{"10.2.0.5:9000", "10.2.0.5:22"}, no,
			[]string{"paris.yaml:5: forward[0].target: 10.2.0.5:22 is not in may_dial of tokyo for paris", `"10.2.0.5/32:22"`}},
		"times differ":                 {[]string{"site: paris", "site: paris\nrefused_retry: 5s"}, no, []string{"paris.yaml:2: refused_retry: 5s here, 30s at tokyo"}},
		"resume differs":               {no, []string{"site: tokyo", "site: tokyo\ntunnel: {resume: 1m}"}, []string{"tunnel.resume: 10m0s here, 1m0s at tokyo"}},
		"one site has tls by its name": {no, []string{"site: tokyo", "site: tokyo\ntunnel: {carrier: tls}"}, nil},
		"no references":                {no, []string{"site: tokyo", "site: tokyo\nreferences: 0"}, []string{"references: of use to nobody with tokyo"}},
		"job missing":                  {no, []string{"jobs: [{name: resnet, networks: [10.0.0.0/8], ranks: 2}]\n", ""}, []string{"paris.yaml:6: jobs[0]: tokyo has no job resnet"}},
		"job described otherwise": {no, []string{"ranks: 2", "ranks: 3"},
			[]string{"paris.yaml:6: jobs[0]: tokyo describes job resnet otherwise in line 5 of tokyo.yaml"}},
		"not a peer there": {no, []string{"name: paris", "name: osaka"}, []string{"tokyo.yaml:3: peers: paris (paris.yaml) is not among them, but names tokyo"}},
	} {
		t.Run(name, func(t *testing.T) {
			problems := Together(twoFiles(t, x.paris, x.tokyo))
			if len(x.want) == 0 && len(problems) == 0 {
				return
			}
			if len(problems) != 1 || len(x.want) == 0 {
				t.Fatalf("%d problems:\n%v", len(problems), problems)
			}
			for _, part := range x.want {
				if !strings.Contains(problems[0].Error(), part) {
					t.Errorf("%v\nlacks %q", problems[0], part)
				}
			}
		})
	}
}

// Networks that were exchanged, and networks whose connections the other side refuses, are errors.
func TestTogetherRefused(t *testing.T) {
	all := Together(twoFiles(t, []string{"networks: [10.2.0.0/16]", "networks: [10.1.0.0/16, 10.2.0.0/16]"}, []string{})).Errors()
	for _, part := range []string{"are they exchanged?", "refused by tokyo, whose may_dial for paris allows none"} {
		if !strings.Contains(all.Error(), part) {
			t.Errorf("no error says %q:\n%v", part, all)
		}
	}
}

// A certificate of another authority, and one of another id, are errors at the site that would refuse it.
func TestVouch(t *testing.T) {
	now := time.Now()
	dir, other := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, other} {
		if _, err := pki.Write(pki.Options{Dir: d, Domain: "lab", Sites: []string{"paris", "tokyo"}, Now: now}); err != nil {
			t.Fatal(err)
		}
	}
	both := twoFiles(t, nil, nil)
	identify := func() {
		for i, site := range []string{"paris", "tokyo"} {
			both[i].Tunnel.Cert, both[i].Tunnel.Key, both[i].Tunnel.CA = filepath.Join(dir, site+".pem"), filepath.Join(dir, site+".key"), filepath.Join(dir, "ca.pem")
			both[i].Peers[0].ID = ""
			if problems := both[i].Identify(now); len(problems) > 0 {
				t.Fatal(problems)
			}
		}
	}
	identify()
	if problems := Vouch(both, now); len(problems) > 0 {
		t.Errorf("good files: %v", problems)
	}
	both[1].Tunnel.Cert = filepath.Join(other, "tokyo.pem")
	if problems := Vouch(both, now); len(problems) != 1 || problems[0].File != "paris.yaml" || !strings.Contains(problems[0].Message, "does not vouch for") {
		t.Errorf("another authority: %v", problems)
	}
	identify()
	both[0].Peers[0].ID = "spiffe://lab/osaka"
	if problems := Vouch(both, now); len(problems) != 1 || !strings.Contains(problems[0].Message, "is that of spiffe://lab/tokyo") {
		t.Errorf("another id: %v", problems)
	}
	identify()
	if err := os.Remove(both[1].Tunnel.Cert); err != nil {
		t.Fatal(err)
	}
	if problems := Vouch(both, now); len(problems) > 0 {
		t.Errorf("a file that is missing, which Identify reports: %v", problems)
	}
}

// A certificate that an authority vouches for by way of another one, which is in the site's file as well, is good:
// tunnels show both.
func TestVouchByAChain(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	type pair struct {
		cert *x509.Certificate
		key  *ecdsa.PrivateKey
	}
	issue := func(number int64, by *pair, change func(*x509.Certificate)) *pair {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(number), Subject: pkix.Name{SerialNumber: fmt.Sprint(number)}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(365 * 24 * time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
		change(template)
		made := &pair{template, key}
		if by == nil {
			by = made
		}
		der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
		if err == nil {
			made.cert, err = x509.ParseCertificate(der)
		}
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	write := func(name, kind string, contents ...[]byte) string {
		var text []byte
		for _, b := range contents {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b})...)
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	root := issue(1, nil, func(*x509.Certificate) {})
	between := issue(2, root, func(*x509.Certificate) {})
	both := twoFiles(t, nil, nil)
	for i, c := range both {
		leaf := issue(3+int64(i), between, func(x *x509.Certificate) {
			x.IsCA, x.KeyUsage, x.ExtKeyUsage = false, x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
			x.URIs = []*url.URL{{Scheme: "spiffe", Host: "lab", Path: "/" + c.Site}}
		})
		key, err := x509.MarshalPKCS8PrivateKey(leaf.key)
		if err != nil {
			t.Fatal(err)
		}
		c.Tunnel.Cert = write(c.Site+".pem", "CERTIFICATE", leaf.cert.Raw, between.cert.Raw)
		c.Tunnel.Key, c.Tunnel.CA = write(c.Site+".key", "PRIVATE KEY", key), write("ca.pem", "CERTIFICATE", root.cert.Raw)
	}
	for _, c := range both {
		if problems := c.Identify(now); len(problems) > 0 {
			t.Error(problems)
		}
	}
	if problems := Vouch(both, now); len(problems) > 0 {
		t.Error(problems)
	}
}

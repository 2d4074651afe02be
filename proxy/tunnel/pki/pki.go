// Package pki makes the certificates of a set of sites: one authority, and for each site a key and a
// certificate that names it by a SPIFFE id (https://spiffe.io, SPIFFE-ID and X509-SVID standards).
//
// All keys are ECDSA P-256. The authority may sign sites of its own trust domain only (name constraint on
// URIs) and no further authorities. A site's certificate has its id as the only URI, serves as client and as
// server, and has no DNS name.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"time"
)

const (
	caValid   = 10 * 365 * 24 * time.Hour
	siteValid = 365 * 24 * time.Hour
	backdate  = time.Hour // for clocks that are behind
)

// An Authority signs certificates of sites.
type Authority struct {
	Domain string // trust domain
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

// NewAuthority makes an authority for a trust domain, valid for ten years from now.
func NewAuthority(domain string, now time.Time) (*Authority, error) {
	if err := checkName("trust domain", domain); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "gradproxy authority of " + domain},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caValid),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		URIs:                  []*url.URL{{Scheme: "spiffe", Host: domain}},

		PermittedURIDomains:         []string{domain},
		PermittedDNSDomainsCritical: true, // of all name constraints, despite its name
	}
	cert, err := sign(template, template, key, key)
	if err != nil {
		return nil, err
	}
	return &Authority{domain, cert, key}, nil
}

// Issue makes a key and a certificate for a site, valid from now, for that long but no longer than the
// authority itself.
func (a *Authority) Issue(site string, now time.Time, valid time.Duration) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	if err := checkName("site", site); err != nil {
		return nil, nil, err
	}
	if now.After(a.cert.NotAfter) {
		return nil, nil, fmt.Errorf("pki: the authority of %s has expired on %s: make a new one", a.Domain, a.cert.NotAfter.Format(time.DateOnly))
	}
	id, err := url.Parse(ID(a.Domain, site))
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %w", err)
	}
	ends := now.Add(valid)
	if ends.After(a.cert.NotAfter) {
		ends = a.cert.NotAfter
	}
	cert, err := sign(&x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: site},
		NotBefore:             now.Add(-backdate),
		NotAfter:              ends,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{id},
	}, a.cert, key, a.key)
	return cert, key, err
}

// sign returns template as a certificate of key, signed by the parent's key.
func sign(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		return nil, fmt.Errorf("pki: signing %q: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("pki: signing %q: %w", template.Subject.CommonName, err)
	}
	return cert, nil
}

// serial returns a random number of 127 bits.
func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

// ID returns the SPIFFE id of a site: "spiffe://DOMAIN/SITE".
func ID(domain, site string) string { return "spiffe://" + domain + "/" + site }

// checkName checks a name that becomes a part of ids and of file names.
func checkName(what, name string) error {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
	}
	if name == "" || len(name) > 64 || strings.Trim(name, "-_.") != name || strings.IndexFunc(name, func(r rune) bool { return !ok(r) }) >= 0 {
		return fmt.Errorf("pki: %s %q: use 1 to 64 lower-case letters and digits, with '-', '_' and '.' between them", what, name)
	}
	return nil
}

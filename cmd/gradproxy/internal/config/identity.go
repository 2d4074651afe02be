package config

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// expiresSoon is how long before its end a certificate is worth a warning.
const expiresSoon = 14 * 24 * time.Hour

// Identify reads the certificate files, as the tunnel will, and gives each peer without an id the one that it has in
// this site's trust domain. It leaves c as it was if there are errors.
func (c *Config) Identify(now time.Time) Problems {
	var problems Problems
	if c.Tunnel.Insecure {
		return nil // no one proves an identity
	}
	say := func(warning bool, key, format string, args ...any) {
		problems = append(problems, Problem{File: c.File, Line: c.Tunnel.line, Where: "tunnel." + key,
			Message: fmt.Sprintf(format, args...), Warning: warning})
	}
	var bad [3]bool
	for i, f := range []struct{ key, path string }{{"cert", c.Tunnel.Cert}, {"key", c.Tunnel.Key}, {"ca", c.Tunnel.CA}} {
		info, err := os.Stat(f.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			say(false, f.key, "%s does not exist: make it with gradproxy cert, or name another file", f.path)
		case err != nil:
			say(false, f.key, "%v", err)
		case f.key == "key" && info.Mode().Perm()&0o077 != 0 && !forGroup(info):
			say(true, f.key, "%s may be read by others (mode %#o): chmod 600 it", f.path, info.Mode().Perm())
		}
		bad[i] = err != nil
	}
	if c.Tunnel.CRL != "" {
		if f, err := os.Open(c.Tunnel.CRL); err != nil {
			say(false, "crl", "%v: have the authority sign a list, or leave crl out", err)
		} else {
			f.Close()
		}
	}
	var leaf *x509.Certificate // nil: there is no good one
	if !bad[0] && !bad[1] {
		var err error
		if leaf, err = c.own(now, say); err != nil {
			say(false, "cert", "%v", err)
		} else {
			for i := range c.Peers {
				c.Peers[i].ID = cmp.Or(c.Peers[i].ID, pki.ID(leaf.URIs[0].Host, c.Peers[i].Name))
			}
		}
	}
	if !bad[2] {
		roots := x509.NewCertPool()
		if pem, err := os.ReadFile(c.Tunnel.CA); err != nil {
			say(false, "ca", "%v: let the user that runs gradproxy read it", err)
		} else if !roots.AppendCertsFromPEM(pem) {
			say(false, "ca", "%s has no PEM certificate: copy the ca.pem that gradproxy cert made", c.Tunnel.CA)
		} else if leaf != nil && now.After(leaf.NotBefore) && now.Before(leaf.NotAfter) {
			_, chain := certificates(c.Tunnel.Cert)
			if err := vouches(roots, leaf, chain, now); err != nil {
				say(false, "ca", "%s does not vouch for %s (%v): a peer with the same file refuses this site; use the files that one gradproxy cert made, or add this site's authority to that file,"+
					" where peers have another", c.Tunnel.CA, c.Tunnel.Cert, err)
			}
		}
	}
	return problems
}

// own checks this site's certificate and returns it. It has one SPIFFE id.
func (c *Config) own(now time.Time, say func(warning bool, key, format string, args ...any)) (*x509.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.Tunnel.Cert, c.Tunnel.Key)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: let the user that runs gradproxy read it", err)
	case err != nil:
		return nil, fmt.Errorf("%s with %s: %w: name the pair that gradproxy cert made", c.Tunnel.Cert, c.Tunnel.Key, err)
	}
	leaf := pair.Leaf
	if len(leaf.URIs) != 1 || leaf.URIs[0].Scheme != "spiffe" || leaf.URIs[0].Host == "" {
		return nil, fmt.Errorf("%s does not name exactly one SPIFFE id: make it with gradproxy cert", c.Tunnel.Cert)
	}
	if !leaf.IsCA && (!slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) || !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth)) {
		say(true, "cert", "%s does not name both extended key usages, clientAuth and serverAuth: peers refuse it where it serves as the other; make it with gradproxy cert", c.Tunnel.Cert)
	}
	switch id := leaf.URIs[0].String(); {
	case now.After(leaf.NotAfter):
		say(false, "cert", "%s has expired on %s: make a new one with gradproxy cert --force", c.Tunnel.Cert, leaf.NotAfter.Format(time.DateTime))
	case now.Before(leaf.NotBefore):
		say(false, "cert", "%s is valid only from %s: is the clock right?", c.Tunnel.Cert, leaf.NotBefore.Format(time.DateTime))
	case now.Add(expiresSoon).After(leaf.NotAfter):
		say(true, "cert", "%s expires on %s: make a new one with gradproxy cert --force; it is read without a restart", c.Tunnel.Cert, leaf.NotAfter.Format(time.DateTime))
	case id != pki.ID(leaf.URIs[0].Host, c.Site):
		say(true, "cert", "%s is that of %s, while this site is %s: peers know it by the certificate", c.Tunnel.Cert, id, c.Site)
	}
	return leaf, nil
}

// certificates returns the certificates of a file as a tunnel shows them: the site's own, nil if there is none, and
// those between it and the authority.
func certificates(file string) (leaf *x509.Certificate, chain *x509.CertPool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil
	}
	chain = x509.NewCertPool()
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			return leaf, chain
		case leaf == nil:
			leaf = c
		default:
			chain.AddCert(c)
		}
	}
	return leaf, chain
}

// vouches returns an error unless one of the roots vouches for a certificate, by way of the others of its file.
func vouches(roots *x509.CertPool, leaf *x509.Certificate, chain *x509.CertPool, now time.Time) error {
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

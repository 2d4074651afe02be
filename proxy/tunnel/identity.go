package tunnel

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// Identity names PEM files: the site's certificate (chain), its key, and the authorities that peers'
// certificates come from. A file that becomes unreadable leaves the identity as it was, and a warning.
type Identity struct {
	Cert, Key, CA string
	// CRL is a file of revocation lists of the authorities (RFC 5280, PEM or DER); "": none. It is read again like the
	// others.
	CRL string
}

// loaded is the content of an Identity's files when they were last read. It does not change.
type loaded struct {
	cert    tls.Certificate
	roots   *x509.CertPool
	revoked map[revocation]bool
}

// A revocation names a certificate by its authority and its number, as revocation lists do.
type revocation struct{ issuer, serial string }

// An identityStore reads the files of an Identity, and again when they have changed.
type identityStore struct {
	files Identity
	log   *slog.Logger
	now   atomic.Pointer[loaded]

	mu      innermostLock
	checked time.Time
	read    [4]stamp // of the files that now holds
	failed  [4]stamp // of the last that could not be read: one warning each

	looked  atomic.Int64 // when latest last had the files looked at, by Unix time in ns
	looking atomic.Bool  // that look is not over
}

// A stamp tells two contents of a file apart.
type stamp struct {
	modified time.Time
	size     int64
}

func (s *identityStore) stamps() (t [4]stamp) {
	for i, name := range []string{s.files.Cert, s.files.Key, s.files.CA, s.files.CRL} {
		if fi, err := os.Stat(name); err == nil {
			t[i] = stamp{fi.ModTime(), fi.Size()}
		}
	}
	return t
}

// load reads the files.
func (s *identityStore) load() error {
	stamps := s.stamps()
	cert, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
	if err != nil {
		return fmt.Errorf("tunnel: certificate %s with key %s: %w", s.files.Cert, s.files.Key, err)
	}
	authorities, err := os.ReadFile(s.files.CA)
	if err != nil {
		return fmt.Errorf("tunnel: authorities: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return fmt.Errorf("tunnel: authorities %s: no PEM certificate in it", s.files.CA)
	}
	revoked, err := s.revocations(authorities)
	if err != nil {
		return fmt.Errorf("tunnel: revocation list %s: %w", s.files.CRL, err)
	}
	s.read = stamps
	s.now.Store(&loaded{cert, roots, revoked})
	return nil
}

// revocations reads the revocation lists. One of the authorities must have signed each list. A list whose next update
// is due counts as well: ending all tunnels for it would harm jobs more than the list can help.
func (s *identityStore) revocations(authorities []byte) (map[revocation]bool, error) {
	if s.files.CRL == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.files.CRL)
	if err != nil {
		return nil, err
	}
	lists := blocks(text, "X509 CRL")
	if len(lists) == 0 {
		lists = [][]byte{text} // DER
	}
	revoked := map[revocation]bool{}
	for _, der := range lists {
		list, err := x509.ParseRevocationList(der)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(blocks(authorities, "CERTIFICATE"), func(der []byte) bool {
			authority, err := x509.ParseCertificate(der)
			return err == nil && list.CheckSignatureFrom(authority) == nil
		}) {
			return nil, fmt.Errorf("none of the authorities in %s has signed the list of %q", s.files.CA, list.Issuer)
		}
		for _, entry := range list.RevokedCertificateEntries {
			revoked[revocation{string(list.RawIssuer), entry.SerialNumber.String()}] = true
		}
		if time.Now().After(list.NextUpdate) {
			s.log.Warn("the revocation list is out of date: have its authority sign a new one", "file", s.files.CRL, "since", list.NextUpdate)
		}
	}
	return revoked, nil
}

// blocks returns the PEM blocks of a kind.
func blocks(text []byte, kind string) (all [][]byte) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == kind {
			all = append(all, block.Bytes)
		}
	}
	return all
}

// revokes returns the first of some certificates that is revoked; nil: none is.
func (l *loaded) revokes(shown []*x509.Certificate) *x509.Certificate {
	for _, c := range shown {
		if l.revoked[revocation{string(c.RawIssuer), c.SerialNumber.String()}] {
			return c
		}
	}
	return nil
}

// current returns the identity, read anew if the files have changed; it looks once a second at most. Files
// that do not fit together (one was written, the others will be) leave the identity as it is.
func (s *identityStore) current() *loaded {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.checked) >= time.Second || now.Before(s.checked) {
		s.checked = now
		if stamps := s.stamps(); stamps != s.read {
			if err := s.load(); err == nil {
				s.log.Info("certificate read again", "file", s.files.Cert)
			} else if stamps != s.failed {
				s.failed = stamps
				s.log.Warn("certificate not read again, the old one stays", "err", err)
			}
		}
	}
	return s.now.Load()
}

// lookWithin is how long a carrier's state may wait for the files of an identity, each time that they begin to hang.
const lookWithin = 20 * time.Millisecond

// latest is current, but after lookWithin returns the identity as it was: a file system that hangs must not hold up
// streams.
func (s *identityStore) latest() *loaded {
	now, looked := time.Now().UnixNano(), s.looked.Load()
	if age := time.Duration(now - looked); (age >= time.Second || age < 0) && s.looking.CompareAndSwap(false, true) {
		s.looked.Store(now)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer s.looking.Store(false)
			s.current()
		}()
		select {
		case <-done:
		case <-time.After(lookWithin):
		}
	}
	return s.now.Load()
}

// verify checks that the certificates that a carrier's other end has shown, its own one first, come from this side's
// authorities, are valid at now, not revoked and made for that usage, and that the first has a SPIFFE id as its only
// URI. It returns the id.
func (l *loaded) verify(shown []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (id string, err error) {
	if len(shown) == 0 {
		return "", errors.New("it showed no certificate")
	}
	leaf := shown[0]
	chain := x509.NewCertPool()
	for _, c := range shown[1:] {
		chain.AddCert(c)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: l.roots, Intermediates: chain, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	if err != nil {
		return "", fmt.Errorf("its certificate %q: %w", leaf.Subject, err)
	}
	if !slices.Contains(leaf.ExtKeyUsage, usage) { // Verify takes a certificate without any for one that serves for all
		return "", fmt.Errorf("its certificate %q does not name its usage: incompatible key usage", leaf.Subject)
	}
	if c := l.revokes(shown); c != nil {
		return "", fmt.Errorf("its certificate %q is revoked", c.Subject)
	}
	if len(leaf.URIs) != 1 {
		return "", fmt.Errorf("its certificate %q names %d URIs, not exactly one SPIFFE id", leaf.Subject, len(leaf.URIs))
	}
	return leaf.URIs[0].String(), nil
}

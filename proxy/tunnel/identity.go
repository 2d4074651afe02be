package tunnel

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// loaded is the content of an Identity's files when they were last read. It does not change.
type loaded struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

// An identityStore reads the files of an Identity, and again when they have changed.
type identityStore struct {
	files Identity
	log   *slog.Logger
	now   atomic.Pointer[loaded]

	mu      sync.Mutex
	checked time.Time
	read    [3]stamp // of the files that now holds
	failed  [3]stamp // of the last that could not be read: one warning each
}

// A stamp tells two contents of a file apart.
type stamp struct {
	modified time.Time
	size     int64
}

func (s *identityStore) stamps() (t [3]stamp) {
	for i, name := range []string{s.files.Cert, s.files.Key, s.files.CA} {
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
	pem, err := os.ReadFile(s.files.CA)
	if err != nil {
		return fmt.Errorf("tunnel: authorities: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("tunnel: authorities %s: no PEM certificate in it", s.files.CA)
	}
	s.read = stamps
	s.now.Store(&loaded{cert, roots})
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

// verify checks that the certificates that a carrier's other end has shown, its own one first, come from this side's
// authorities, are valid at now and for that usage, and that the first has a SPIFFE id as its only URI. It returns the id.
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
	if len(leaf.URIs) != 1 {
		return "", fmt.Errorf("its certificate %q names %d URIs, not exactly one SPIFFE id", leaf.Subject, len(leaf.URIs))
	}
	return leaf.URIs[0].String(), nil
}

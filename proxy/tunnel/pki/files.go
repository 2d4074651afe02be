package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Options says which files Write makes.
type Options struct {
	Dir    string        // where the files are, or go: ca.pem, ca.key, SITE.pem, SITE.key. It is made if missing
	Domain string        // trust domain: the sites are spiffe://DOMAIN/SITE; with an authority in Dir, its domain if empty
	Sites  []string      // at least one: lower-case letters, digits, '-', '_', '.'
	Valid  time.Duration // of the sites' certificates; 0: 365 days
	Now    time.Time     // the zero Time: time.Now()
	Force  bool          // write over files of the sites (never over the authority's)
}

// Write makes the files that are missing in o.Dir: the authority if there is none, and a key and certificate for each
// site. It checks everything before it writes anything, returns the paths of the files it wrote, and writes
// over none unless Force is set. Keys are readable by their owner only. Files of an existing authority are
// left as they are, so a later Write with new names adds sites.
func Write(o Options) ([]string, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if o.Valid == 0 {
		o.Valid = siteValid
	}
	if o.Valid < 0 {
		return nil, fmt.Errorf("pki: validity %v: it must be positive", o.Valid)
	}
	if len(o.Sites) == 0 {
		return nil, errors.New("pki: no site given: name at least one")
	}
	var files []file
	authority, err := o.authority(&files)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{"ca": true} // its files are ca.pem and ca.key
	for _, site := range o.Sites {
		if seen[site] {
			return nil, fmt.Errorf("pki: site %q: the name is taken", site)
		}
		seen[site] = true
		cert, key, err := authority.Issue(site, o.Now, o.Valid)
		if err != nil {
			return nil, err
		}
		if err := add(&files, filepath.Join(o.Dir, site), cert, key); err != nil {
			return nil, err
		}
	}
	return o.write(files)
}

// authority loads the authority in o.Dir, or makes one and adds its files.
func (o *Options) authority(files *[]file) (*Authority, error) {
	a, err := LoadAuthority(o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		if o.Domain == "" {
			return nil, fmt.Errorf("pki: no authority in %s, and no trust domain to make one for: name one", o.Dir)
		}
		if a, err = NewAuthority(o.Domain, o.Now); err != nil {
			return nil, err
		}
		return a, add(files, filepath.Join(o.Dir, "ca"), a.cert, a.key)
	}
	if err != nil {
		return nil, err
	}
	if o.Domain != "" && o.Domain != a.Domain {
		return nil, fmt.Errorf("pki: the authority in %s is for trust domain %q, not %q: use another directory", o.Dir, a.Domain, o.Domain)
	}
	return a, nil
}

// LoadAuthority reads ca.pem and ca.key. The error wraps fs.ErrNotExist if neither is there.
func LoadAuthority(dir string) (*Authority, error) {
	certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
	_, certErr := os.Stat(certFile)
	_, keyErr := os.Stat(keyFile)
	switch {
	case certErr != nil && keyErr != nil:
		return nil, fmt.Errorf("pki: %w", certErr)
	case certErr != nil || keyErr != nil:
		return nil, fmt.Errorf("pki: of %s and %s only one is there: sites can be added only where both are: put it back, or use another directory", certFile, keyFile)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("pki: %s and %s are no authority: %w: put its files back, or use another directory", certFile, keyFile, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA || len(pair.Leaf.URIs) != 1 || pair.Leaf.URIs[0].Scheme != "spiffe" {
		return nil, fmt.Errorf("pki: %s is not an authority that this package made: put it back, or use another directory", certFile)
	}
	return &Authority{pair.Leaf.URIs[0].Host, pair.Leaf, key}, nil
}

// A file is one that Write will write.
type file struct {
	path string
	mode fs.FileMode
	pem  []byte
}

// add adds PATH.key and PATH.pem.
func add(files *[]file, path string, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	*files = append(*files,
		file{path + ".key", 0o600, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})},
		file{path + ".pem", 0o644, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})})
	return nil
}

// write writes the files, each of them whole or not at all, so that a proxy that reads them anew never sees
// half of one.
func (o *Options) write(files []file) (written []string, err error) {
	for _, f := range files {
		if _, err := os.Lstat(f.path); err == nil && !o.Force {
			return nil, fmt.Errorf("pki: %s exists: remove it, or write over it with --force", f.path)
		}
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	for _, f := range files {
		if err := f.write(o.Force); err != nil {
			return written, fmt.Errorf("pki: writing %s: %w", f.path, err)
		}
		written = append(written, f.path)
	}
	return written, nil
}

func (f file) write(over bool) error {
	t, err := os.CreateTemp(filepath.Dir(f.path), ".gradproxy-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(t.Name()) // fails once it was renamed
	_, err = t.Write(f.pem)
	err = errors.Join(err, t.Chmod(f.mode), t.Close())
	if err != nil {
		return err
	}
	if over {
		return os.Rename(t.Name(), f.path)
	}
	return os.Link(t.Name(), f.path) // fails if it exists
}

package site

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy/residual"
)

// stateKey returns a function that reads the key under which a site's files of state are authenticated. It comes from
// the private key of the site's certificate, which lies elsewhere than the state. Without certificates it is no secret,
// and guards against accidents only.
func stateKey(c *config.Config) func() ([]byte, error) {
	return func() ([]byte, error) {
		var secret []byte
		if !c.Tunnel.Insecure {
			text, err := os.ReadFile(c.Tunnel.Key)
			if err != nil {
				return nil, err
			}
			if secret = privateKey(text); secret == nil {
				return nil, fmt.Errorf("%s has no PEM key: make one with gradproxy cert, or correct tunnel.key", c.Tunnel.Key)
			}
		}
		return hkdf.Key(sha256.New, secret, nil, "gradproxy state of "+c.Site, sha256.Size)
	}
}

// privateKey returns the private key in a PEM file; nil: there is none. Other blocks, such as parameters of the curve
// or a certificate, are no secret.
func privateKey(text []byte) []byte {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "PRIVATE KEY" || strings.HasSuffix(block.Type, " PRIVATE KEY") { // as crypto/tls finds it
			return block.Bytes
		}
	}
	return nil
}

// stateLock returns the file that a process locks which writes a site's files of state in dir.
func stateLock(dir, site string) string { return filepath.Join(dir, site+".residuals.lock") }

// stateMagic begins a file of state. Its content follows, and then the HMAC-SHA-256 of all before it.
const stateMagic = "gradproxy state 1\n"

// errForged says that the site has not written the file, or that its key is another now.
var errForged = fmt.Errorf("%w: this site has not written it with the key that it has now", residual.ErrFile)

// authenticate returns the content of a file of state of some length, if it has been written under the key. It reads
// the file twice, so that nothing is used before all is known.
func authenticate(f io.ReadSeeker, size int64, key []byte) (io.Reader, error) {
	mac := hmac.New(sha256.New, key)
	content := size - int64(len(stateMagic)) - int64(mac.Size())
	if content < 0 {
		return nil, errForged
	}
	if _, err := io.CopyN(mac, f, size-int64(mac.Size())); err != nil {
		return nil, err
	}
	said := make([]byte, mac.Size())
	if _, err := io.ReadFull(f, said); err != nil {
		return nil, err
	}
	if !hmac.Equal(said, mac.Sum(nil)) {
		return nil, errForged
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	// The second time too, so that a file that changes meanwhile is found out, though only at its end.
	again := &verifying{r: io.LimitReader(f, size-int64(len(said))), mac: hmac.New(sha256.New, key), said: said}
	head := make([]byte, len(stateMagic))
	if _, err := io.ReadFull(again, head); err != nil {
		return nil, err
	}
	if string(head) != stateMagic {
		return nil, fmt.Errorf("%w: it is of another version", residual.ErrFile)
	}
	return again, nil
}

// A verifying reader ends with errForged unless its bytes have that HMAC.
type verifying struct {
	r    io.Reader
	mac  hash.Hash
	said []byte
}

func (v *verifying) Read(b []byte) (int, error) {
	n, err := v.r.Read(b)
	v.mac.Write(b[:n])
	if errors.Is(err, io.EOF) && !hmac.Equal(v.said, v.mac.Sum(nil)) {
		err = errForged
	}
	return n, err
}

// authenticated returns a function that has write write the content of a file of state.
func authenticated(key []byte, write func(io.Writer) error) func(io.Writer) error {
	return func(w io.Writer) error {
		mac := hmac.New(sha256.New, key)
		both := io.MultiWriter(w, mac)
		if _, err := io.WriteString(both, stateMagic); err != nil {
			return err
		}
		if err := write(both); err != nil {
			return err
		}
		_, err := w.Write(mac.Sum(nil))
		return err
	}
}

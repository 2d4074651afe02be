package tunnel

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// faults are the errors of Events.CarrierFailed.
type faults struct {
	mu  sync.Mutex
	all []string
}

func (f *faults) add(peer string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, err.Error())
}

// have fails unless one of the faults contains want, and forgets them.
func (f *faults) have(t *testing.T, who, want string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.all, func(s string) bool { return strings.Contains(s, want) }) {
		t.Errorf("%s: no %q among %q", who, want, f.all)
	}
	for _, s := range f.all {
		if strings.Contains(s, "\n") {
			t.Errorf("%s: more than one line: %q", who, s)
		}
	}
	f.all = nil
}

// certify writes a certificate of the authority in dir for paris's key file, changed by change.
func certify(t *testing.T, dir, name string, change func(*x509.Certificate)) {
	t.Helper()
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := url.Parse("spiffe://lab/" + name)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:         []*url.URL{id},
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, &key.PublicKey, ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(ext, kind string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name+ext), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".pem", "CERTIFICATE", der)
	write(".key", "PRIVATE KEY", pkcs8)
}

// Each kind of wrong certificate is refused, whether the one that dials has it or the one that is dialed, and
// the side that refuses says why.
func TestWrongCertificates(t *testing.T) {
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, c := range []struct {
		name           string
		change         func(*x509.Certificate)
		client, server string // the error that names it
	}{
		{"expired", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }, "has expired", ""},
		{"not yet valid", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, "is not yet valid", ""},
		{"other site", func(c *x509.Certificate) { c.URIs = []*url.URL{uri("spiffe://lab/berlin")} }, "no peer spiffe://lab/berlin is configured", "it is spiffe://lab/berlin, not spiffe://lab/"},
		{"id with a longer path", func(c *x509.Certificate) { c.URIs[0].Path += "/x" }, "/x is configured", "/x, not spiffe"},
		{"no URI", func(c *x509.Certificate) { c.URIs = nil; c.DNSNames = []string{"tokyo", "paris"} }, "names 0 URIs", ""},
		{"two URIs", func(c *x509.Certificate) { c.URIs = append(c.URIs, uri("spiffe://lab/other")) }, "names 2 URIs", ""},
		{"no usage as what it is", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }, "incompatible key usage", ""},
		{"no usage at all", func(c *x509.Certificate) { c.ExtKeyUsage = nil }, "incompatible key usage", ""},
		{"any usage", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }, "incompatible key usage", ""},
		{"only the other usage", nil, "incompatible key usage", ""},
		{"other authority", func(*x509.Certificate) {}, "unknown authority", ""},
	} {
		for _, wrong := range []string{"paris", "tokyo"} { // paris dials
			t.Run(c.name+" "+wrong, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					dir, other := t.TempDir(), t.TempDir()
					for _, d := range []string{dir, other} {
						if _, err := pki.Write(pki.Options{Dir: d, Domain: "lab", Sites: []string{"paris", "tokyo"}}); err != nil {
							t.Fatal(err)
						}
					}
					change, from := c.change, dir
					if change == nil {
						change = func(x *x509.Certificate) {
							x.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
							if wrong == "tokyo" {
								x.ExtKeyUsage[0] = x509.ExtKeyUsageClientAuth
							}
						}
					}
					if c.name == "other authority" {
						from = other
					}
					certify(t, from, wrong, change)
					id := func(name string) Identity {
						d := dir
						if name == wrong {
							d = from
						}
						return Identity{Cert: filepath.Join(d, name+".pem"), Key: filepath.Join(d, name+".key"), CA: filepath.Join(dir, "ca.pem")}
					}
					f := &fabric{delay: time.Millisecond}
					said := map[string]*faults{"paris": {}, "tokyo": {}}
					change2 := func(c *Config) { c.Events.CarrierFailed = said[c.Name].add }
					tokyo := f.site(t, Config{Name: "tokyo", Identity: id("tokyo"), Peers: []Peer{{Name: "paris", ID: "spiffe://lab/paris"}}}, change2)
					paris := f.site(t, Config{Name: "paris", Identity: id("paris"), Peers: []Peer{{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: "tokyo:1"}}}, change2)
					time.Sleep(5 * time.Second)
					if a, b := paris.Stats()[0], tokyo.Stats()[0]; a.Session || b.Session || a.Carriers+b.Carriers != 0 {
						t.Errorf("a session came up: %+v, %+v", a, b)
					}
					if wrong == "paris" {
						said["tokyo"].have(t, "tokyo", c.client)
						said["paris"].have(t, "paris", "bad certificate")
					} else {
						want := c.server
						if want == "" {
							want = c.client
						}
						said["paris"].have(t, "paris", want)
					}
				})
			})
		}
	}
}

// revoke writes a revocation list of the authority in dir, with the certificates of these sites, and returns its name.
func revoke(t *testing.T, dir, from string, sites ...string) string {
	t.Helper()
	ca, err := tls.LoadX509KeyPair(filepath.Join(from, "ca.pem"), filepath.Join(from, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, site := range sites {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, site+".pem"), filepath.Join(dir, site+".key"))
		if err != nil {
			t.Fatal(err)
		}
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: pair.Leaf.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, ca.Leaf, ca.PrivateKey.(crypto.Signer))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "revoked.crl")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A certificate that comes onto the list while its tunnel is up ends the tunnel and does not come back. A list that the
// authority has not signed changes nothing.
func TestRevokedCertificate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir, other := t.TempDir(), t.TempDir()
		for _, d := range []string{dir, other} {
			if _, err := pki.Write(pki.Options{Dir: d, Domain: "lab", Sites: []string{"paris", "tokyo"}}); err != nil {
				t.Fatal(err)
			}
		}
		crl := revoke(t, dir, dir)
		id := func(c *Config) {
			c.Identity = Identity{Cert: filepath.Join(dir, c.Name+".pem"), Key: filepath.Join(dir, c.Name+".key"), CA: filepath.Join(dir, "ca.pem")}
		}
		said := &faults{}
		f := &fabric{delay: time.Millisecond}
		tokyo := f.site(t, Config{Name: "tokyo", Peers: []Peer{{Name: "paris", ID: "spiffe://lab/paris"}}}, func(c *Config) { id(c); c.Identity.CRL, c.Events.CarrierFailed = crl, said.add })
		f.site(t, Config{Name: "paris", Peers: []Peer{{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: "tokyo:1"}}}, id)
		carriers := func() int { time.Sleep(5 * time.Second); return tokyo.Stats()[0].Carriers }
		if carriers() == 0 {
			t.Fatal("no tunnel comes up")
		}
		revoke(t, dir, other, "paris")
		if carriers() == 0 {
			t.Error("a list of another authority is taken")
		}
		revoke(t, dir, dir, "paris")
		if n := carriers(); n != 0 {
			t.Errorf("%d carriers of a revoked certificate", n)
		}
		said.have(t, "tokyo", "is revoked")
	})
}

// Files that are written anew are used from then on, and carriers of the old ones leave, without a byte lost.
// Files that do not fit leave things as they are.
func TestKeysExchangedUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		written := time.Now()
		write := func(force bool, sites ...string) {
			synctest.Wait() // until nobody reads: a certificate with the key of another one is looked at again only later
			if _, err := pki.Write(pki.Options{Dir: dir, Domain: "lab", Sites: sites, Force: force}); err != nil {
				t.Fatal(err)
			}
			// The bubble's seconds pass at once, and a file system stamps files by ticks of milliseconds: without times
			// of their own two certificates of one site could look like one.
			written = written.Add(time.Second)
			for _, site := range sites {
				for _, file := range []string{site + ".pem", site + ".key"} {
					if err := os.Chtimes(filepath.Join(dir, file), written, written); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		write(false, "paris", "tokyo")
		f := &fabric{delay: 5 * time.Millisecond, rate: 4 << 20}
		near, far, paris, tokyo := meet(t, func(c *Config) {
			c.Identity = Identity{Cert: filepath.Join(dir, c.Name+".pem"), Key: filepath.Join(dir, c.Name+".key"), CA: filepath.Join(dir, "ca.pem")}
		}, f)
		done := make(chan bool)
		go func() {
			defer close(done)
			for i := range 10 {
				time.Sleep(6 * time.Second) // both carriers may take 4 s to give way
				write(true, []string{"paris", "tokyo"}[i%2])
			}
			os.WriteFile(filepath.Join(dir, "paris.key"), []byte("garbage"), 0o600)
		}()
		for i := range 20 {
			time.Sleep(3 * time.Second)
			pair := []*Stream{near, far}
			want := noise(byte(i), 1<<20)
			go pair[i%2].Write(want)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(pair[1-i%2], got); err != nil {
				t.Fatal(err)
			}
			same(t, "while keys are exchanged", got, want)
		}
		<-done
		time.Sleep(time.Minute)
		a, b := paris.Stats()[0], tokyo.Stats()[0]
		if d := f.setDown(false); d < 2+10*2 || d > 2+10*2+10 {
			t.Errorf("%d carriers were dialed", d)
		}
		if a.Carriers != 2 || a.Sessions != 1 || a.Replayed+b.Replayed != 0 {
			t.Errorf("here %+v\nthere %+v", a, b)
		}
		near.Reset(CodeApp)
	})
}

// A certificate that ends and is not renewed ends its carriers, then, and none comes up.
func TestCertificateEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		if _, err := pki.Write(pki.Options{Dir: dir, Domain: "lab", Sites: []string{"paris", "tokyo"}, Valid: 20 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		said := map[string]*faults{"paris": {}, "tokyo": {}}
		f := &fabric{delay: time.Millisecond}
		near, _, paris, _ := meet(t, func(c *Config) {
			c.Identity = Identity{Cert: filepath.Join(dir, c.Name+".pem"), Key: filepath.Join(dir, c.Name+".key"), CA: filepath.Join(dir, "ca.pem")}
			c.Events.CarrierFailed = said[c.Name].add
		}, f)
		time.Sleep(19 * time.Minute)
		if n := paris.Stats()[0].Carriers; n < 2 { // a third may be about to leave
			t.Errorf("%d carriers before the end", n)
		}
		time.Sleep(2 * time.Minute)
		if st := paris.Stats()[0]; st.Carriers != 0 || near.Err() != nil {
			t.Errorf("after the end: %+v, %v", st, near.Err())
		}
		said["paris"].have(t, "paris", "has expired")
		if _, err := pki.Write(pki.Options{Dir: dir, Sites: []string{"paris", "tokyo"}, Force: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if n := paris.Stats()[0].Carriers; n != 2 || near.Err() != nil {
			t.Errorf("%d carriers with new certificates, %v", n, near.Err())
		}
	})
}

// In clear only where nobody can listen.
func TestInsecureNeedsLoopback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fabric{}
		far := func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := f.dial(ctx, network, address)
			return elsewhere{c}, err
		}
		var said faults
		f.site(t, Config{Name: "tokyo", Insecure: true, Peers: []Peer{{Name: "paris"}}}, nil)
		paris := f.site(t, Config{Name: "paris"}, func(c *Config) {
			c.Insecure, c.Dial = true, far
			c.Peers = []Peer{{Name: "tokyo", Dial: "tokyo:1"}}
			c.Events.CarrierFailed = said.add
		})
		time.Sleep(time.Second)
		if paris.Stats()[0].Session {
			t.Error("a session in clear between hosts")
		}
		said.have(t, "paris", "only between loopback addresses, not from 127.0.0.1:7443 to 192.0.2.1:7443")
		paris.Close()
		paris.cfg.Dial = f.dial
		paris.start()
		time.Sleep(time.Second)
		synctest.Wait()
		if !paris.Stats()[0].Session {
			t.Error("no session in clear on loopback")
		}
	})
}

// elsewhere is a connection to another host.
type elsewhere struct{ net.Conn }

func (elsewhere) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7443}
}

// A TLS client that is a peer but no tunnel, or offers an older TLS, gets nowhere.
func TestOtherProtocols(t *testing.T) {
	bubble(t, func(t *testing.T) {
		id := identities(t, "paris", "tokyo")
		f := &fabric{}
		var said faults
		f.site(t, Config{Name: "tokyo", Identity: id("tokyo"), Peers: []Peer{{Name: "paris", ID: "spiffe://lab/paris"}},
			Events: Events{CarrierFailed: said.add}}, nil)
		cert, err := tls.LoadX509KeyPair(id("paris").Cert, id("paris").Key)
		if err != nil {
			t.Fatal(err)
		}
		for want, change := range map[string]func(*tls.Config){
			"did not agree on ALPN":                 func(c *tls.Config) { c.NextProtos = nil },
			"unsupported application protocols":     func(c *tls.Config) { c.NextProtos = []string{"h2"} },
			"client offered only unsupported versi": func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
			"client didn't provide a certificate":   func(c *tls.Config) { c.Certificates = nil },
			"is not a gradproxy tunnel":             func(*tls.Config) {},
		} {
			raw, err := f.dial(t.Context(), "tcp", "tokyo:1")
			if err != nil {
				t.Fatal(err)
			}
			config := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}, NextProtos: []string{protocolName}}
			change(config)
			c := tls.Client(raw, config)
			if c.Handshake() == nil {
				c.Write(header{kind: kindHello, length: 20}.append(nil))
				c.Write([]byte("GET / HTTP/1.1\r\nHost: x"))
				io.Copy(io.Discard, c)
			}
			raw.Close()
			time.Sleep(time.Second)
			said.have(t, "tokyo", want)
		}
	})
}

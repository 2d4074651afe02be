package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// withCertificates returns a configuration of site paris beside certificates made now.
func withCertificates(t *testing.T, now time.Time) (*Config, string) {
	t.Helper()
	dir := t.TempDir()
	if _, err := pki.Write(pki.Options{Dir: dir, Domain: "lab", Sites: []string{"paris", "tokyo"}, Now: now}); err != nil {
		t.Fatal(err)
	}
	c, problems := parse(filepath.Join(dir, "paris.yaml"), []byte(strings.Replace(good, "tunnel: {", "tunnel: {carriers: 2, ", 1)), known())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return c, dir
}

// Peers without an id have the one of this site's trust domain.
func TestIdentifyNamesPeers(t *testing.T) {
	now := time.Now()
	c, _ := withCertificates(t, now)
	c.Peers[1].ID = "spiffe://elsewhere/va"
	if problems := c.Identify(now); len(problems) > 0 {
		t.Fatal(problems)
	}
	if c.Peers[0].ID != "spiffe://lab/tokyo" || c.Peers[1].ID != "spiffe://elsewhere/va" {
		t.Errorf("ids: %q, %q", c.Peers[0].ID, c.Peers[1].ID)
	}
}

func TestIdentifyFindsWhatIsWrong(t *testing.T) {
	now := time.Now()
	const day = 24 * time.Hour
	for name, x := range map[string]struct {
		damage func(c *Config, dir string)
		at     time.Time
		want   string
	}{
		"missing":    {func(c *Config, dir string) { os.Remove(c.Tunnel.Cert) }, now, "tunnel.cert: DIR/paris.pem does not exist: make it with gradproxy cert"},
		"open key":   {func(c *Config, dir string) { os.Chmod(c.Tunnel.Key, 0o644) }, now, "tunnel.key: DIR/paris.key may be read by others (mode 0644): chmod 600 it"},
		"wrong key":  {func(c *Config, dir string) { c.Tunnel.Key = filepath.Join(dir, "tokyo.key") }, now, "tunnel.cert: DIR/paris.pem with DIR/tokyo.key: tls: private key does not match public key"},
		"wrong site": {func(c *Config, dir string) { c.Site = "rome" }, now, "tunnel.cert: DIR/paris.pem is that of spiffe://lab/paris, while this site is rome"},
		"bad ca":     {func(c *Config, dir string) { c.Tunnel.CA = c.Tunnel.Key }, now, "tunnel.ca: DIR/paris.key has no PEM certificate"},
		"other ca": {func(c *Config, dir string) {
			elsewhere := t.TempDir()
			if _, err := pki.Write(pki.Options{Dir: elsewhere, Domain: "lab", Sites: []string{"paris"}, Now: now}); err != nil {
				t.Fatal(err)
			}
			c.Tunnel.CA = filepath.Join(elsewhere, "ca.pem")
		}, now, "tunnel.ca: "},
		"no id": {func(c *Config, dir string) {
			c.Tunnel.Cert, c.Tunnel.Key = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
		}, now, "tunnel.cert: DIR/ca.pem is that of spiffe://lab, while"},
		"expired": {nil, now.Add(366 * day), "tunnel.cert: DIR/paris.pem has expired on "},
		"soon":    {nil, now.Add(360 * day), "tunnel.cert: DIR/paris.pem expires on "},
		"early":   {nil, now.Add(-day), "tunnel.cert: DIR/paris.pem is valid only from "},
	} {
		t.Run(name, func(t *testing.T) {
			c, dir := withCertificates(t, now)
			if x.damage != nil {
				x.damage(c, dir)
			}
			problems := c.Identify(x.at)
			got := strings.ReplaceAll(problems.Error(), dir, "DIR")
			if want := "DIR/paris.yaml:2: " + x.want; len(problems) != 1 || !strings.HasPrefix(got, want) {
				t.Errorf(" got %s\nwant %s", got, want)
			} else if warns := name == "wrong site" || name == "no id" || name == "soon" || name == "open key"; problems[0].Warning != warns {
				t.Errorf("a warning: %v, want %v: no tunnel comes up with what is an error", problems[0].Warning, warns)
			}
		})
	}
}

// On loopback without TLS nobody has a certificate.
func TestIdentifyInsecure(t *testing.T) {
	c := &Config{Tunnel: Tunnel{Insecure: true}}
	if problems := c.Identify(time.Now()); len(problems) > 0 {
		t.Fatal(problems)
	}
}

// Package pki makes the certificates of a set of sites: one authority, and for each site a key and a
// certificate that names it by a SPIFFE id.
package pki

import (
	"errors"
	"time"
)

// Options says what Write makes.
type Options struct {
	Dir    string        // where the files are, or go: ca.pem, ca.key, SITE.pem, SITE.key
	Domain string        // trust domain: the sites are spiffe://DOMAIN/SITE; with an authority in Dir, its domain if empty
	Sites  []string      // at least one: lower-case letters, digits, '-', '_', '.'
	Valid  time.Duration // of the sites' certificates; 0: 365 days
	Now    time.Time     // the zero Time: time.Now()
	Force  bool          // write over files of the sites (never over the authority's)
}

// Write makes what is missing in o.Dir: the authority if there is none, and a key and certificate for each
// site. It checks everything before it writes anything, returns the paths of the files it wrote, and writes
// over none unless Force is set. Keys are readable by their owner only.
func Write(o Options) ([]string, error) { return nil, errors.New("pki: not written yet") }

// ID returns the SPIFFE id of a site: "spiffe://DOMAIN/SITE".
func ID(domain, site string) string { return "spiffe://" + domain + "/" + site }

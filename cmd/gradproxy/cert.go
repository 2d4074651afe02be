package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/proxy/tunnel/pki"
)

// A certificates is the output of cert --json. Its names are stable.
type certificates struct {
	Domain string     `json:"domain"`
	Files  []certFile `json:"files"` // that were written
}

type certFile struct {
	Path string `json:"path"`
	Site string `json:"site"` // "": the authority's
	ID   string `json:"id"`   // of a site's certificate
	Use  string `json:"use"`  // where the file belongs
}

func certCommand() *cobra.Command {
	o := pki.Options{}
	days := 365
	asJSON := false
	c := &cobra.Command{
		Use:   "cert --ca-dir DIR --domain DOMAIN SITE...",
		Short: "Make certificates for any number of sites, or add sites later",
		Long: `Make a certificate and key for each SITE, and the authority that they come from unless DIR has one. To add a site
later, run it again with the same DIR and the new site's name.`,
		Example: `  gradproxy cert --ca-dir pki --domain lab paris tokyo
  gradproxy cert --ca-dir pki virginia`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, sites []string) error {
			if days < 1 || days > 3650 {
				return usagef("--days %d: choose 1 to 3650", days)
			}
			o.Sites, o.Valid = sites, time.Duration(days)*24*time.Hour
			written, err := pki.Write(o)
			if err != nil {
				return certError(err)
			}
			authority, err := pki.LoadAuthority(o.Dir)
			if err != nil {
				return err
			}
			r := certificates{Domain: authority.Domain}
			for _, path := range written {
				r.Files = append(r.Files, describe(path, authority.Domain))
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), r)
			}
			for _, f := range r.Files {
				fmt.Fprintf(c.OutOrStdout(), "made %s: %s\n", f.Path, f.Use)
			}
			return nil
		},
	}
	c.Flags().StringVar(&o.Dir, "ca-dir", "", "folder of the authority, in which the sites' files are made too")
	c.Flags().StringVar(&o.Domain, "domain", "", "trust domain, the first part of the sites' ids; needed for a new authority")
	c.Flags().IntVar(&days, "days", days, "how long the sites' certificates are valid")
	c.Flags().BoolVar(&o.Force, "force", false, "make the sites' files anew if they exist")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	if err := c.MarkFlagRequired("ca-dir"); err != nil {
		panic(err) // the flag exists: it is defined above
	}
	return c
}

// certError makes err an error of usage unless it is the system's: it is about the names that were given, or about
// files that exist already, so that another folder, another name or --force is the remedy.
func certError(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return err
	}
	return &usageError{err}
}

// describe tells the purpose of a file that pki.Write wrote.
func describe(path, domain string) certFile {
	name := filepath.Base(path)
	site, isKey := strings.CutSuffix(name, ".key")
	site = strings.TrimSuffix(site, ".pem")
	f := certFile{Path: path, Site: site}
	switch {
	case name == "ca.key":
		f.Site, f.Use = "", "the authority's key; keep it safe, and off the sites: it adds sites"
	case name == "ca.pem":
		f.Site, f.Use = "", "goes to every site, as tunnel.ca"
	case isKey:
		f.Use = fmt.Sprintf("goes to site %s only, as tunnel.key", site)
	default:
		f.ID = pki.ID(domain, site)
		f.Use = fmt.Sprintf("goes to site %s, as tunnel.cert; its id is %s", site, f.ID)
	}
	return f
}

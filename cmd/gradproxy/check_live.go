package main

import (
	"context"
	"fmt"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/adminclient"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
)

// A livePeer is a peer in the output of check --live. Its names are stable.
type livePeer struct {
	Peer  string `json:"peer"`
	Error string `json:"error,omitempty"` // why the peer could not be compared; "": errors and warnings name the settings that do not fit
}

// compareLive compares a good file with the settings that the peers of the running proxy have sent.
func (r *checked) compareLive(ctx context.Context, cfg *config.Config) error {
	if cfg.Admin == config.Off {
		return usagef("%s: admin is off, and --live asks the running proxy there: set it to an address, and restart the proxy", r.File)
	}
	running := adminclient.At(cfg.Admin)
	defer running.Close()
	site, answers, err := running.Excerpts(ctx)
	if err != nil {
		return err
	}
	if site != cfg.Site {
		return fmt.Errorf("%s: the proxy at %s is that of site %s, not of %s: correct admin, or name the file of that proxy", r.File, cfg.Admin, site, cfg.Site)
	}
	said := map[string]bool{}
	for _, a := range answers {
		said[a.Peer] = true
		live := livePeer{Peer: a.Peer, Error: a.Error}
		if a.Error == "" {
			problems, err := cfg.Live(a.Peer, []byte(a.Text))
			if err != nil {
				live.Error = err.Error()
			}
			r.Errors = append(r.Errors, problems.Errors()...)
			r.Warnings = append(r.Warnings, problems.Warnings()...)
		}
		r.Live = append(r.Live, live)
	}
	for _, p := range cfg.Peers {
		if !said[p.Name] {
			r.Live = append(r.Live, livePeer{Peer: p.Name, Error: "the running proxy does not know this peer yet: reload it (SIGHUP)"})
		}
	}
	r.OK = len(r.Errors) == 0
	for _, l := range r.Live {
		if l.Error != "" {
			r.summary += fmt.Sprintf("\n%s: %s was not compared: %s", r.File, l.Peer, l.Error)
		} else {
			r.summary += fmt.Sprintf("\n%s: %s was asked through the tunnel", r.File, l.Peer)
		}
	}
	return nil
}

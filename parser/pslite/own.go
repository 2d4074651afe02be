package pslite

import "github.com/gradproxy/gradproxy/parser"

// Who may say what: the peers of a configured job need not trust each other. A peer's nodes tell of the job in the
// peer's own scope, where only the tensors of connections through that peer are looked up. The nodes of this site are
// believed in all scopes. So a command of a worker behind one peer that gives a server of this site an optimizer counts
// for the others once that server has answered it.

// own reports whether that side of the connection is a node of this site.
func (x *connection) own(side parser.Side) bool { return side == x.conn.Own }

// believe has note take note of a word of that side, in each scope in which it is believed, with the job of the scope's
// connections that no table names.
func (f *facts) believe(x *connection, side parser.Side, note func(scope, *job)) {
	if x.conn.Job == "" || !x.own(side) {
		note(x.scope(), x.job)
		return
	}
	f.namedIn(scope{job: x.conn.Job, site: true})
	for in, n := range f.named {
		if in.job == x.conn.Job {
			note(in, n.job)
		}
	}
}

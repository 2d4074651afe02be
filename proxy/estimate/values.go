package estimate

import (
	"github.com/gradproxy/gradproxy/proxy/cache"
	"github.com/gradproxy/gradproxy/proxy/frame"
)

// valuesOf has the values that one host holds.
type valuesOf struct {
	all  *cache.DryRun
	host string
}

func (v valuesOf) Put(conn frame.Tag, p cache.Put) (r frame.ValueRef, fresh, ok bool) {
	return v.all.Put(conn, v.own(p))
}

// own returns a value under a name that the values of other hosts do not have.
func (v valuesOf) own(p cache.Put) cache.Put {
	p.Decl.Job = v.host + "/" + p.Decl.Job
	return p
}

func (v valuesOf) Ready() bool { return true }

func (v valuesOf) PutParts(conn frame.Tag, p cache.Put, cuts []int) ([]frame.Part, bool) {
	return v.all.PutParts(conn, v.own(p), cuts)
}

func (valuesOf) Await(frame.Tag, frame.ValueRef, <-chan struct{}) ([]byte, func(), error) {
	return nil, nil, errNoTunnel
}

func (valuesOf) Predicts(string, uint64) bool { return false }

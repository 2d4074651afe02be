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
	p.Decl.Job = v.host + "/" + p.Decl.Job
	return v.all.Put(conn, p)
}

func (v valuesOf) Ready() bool { return true }

func (v valuesOf) PutParts(conn frame.Tag, p cache.Put, cuts []int) ([]frame.Part, bool) {
	return v.all.PutParts(conn, p, cuts)
}

func (valuesOf) Await(frame.Tag, frame.ValueRef, <-chan struct{}) ([]byte, func(), error) {
	return nil, nil, errNoTunnel
}

func (valuesOf) Predicts(string, uint64) bool { return false }

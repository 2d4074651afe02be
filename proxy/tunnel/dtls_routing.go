package tunnel

import "github.com/gradproxy/gradproxy/proxy/tunnel/udp"

// routing makes and reads the messages by which a connection goes on from another address.
type routing struct {
	seal *sealer
	open *opener
}

func (r routing) Seal(m udp.RoutingMessage) ([]byte, error) {
	at := r.seal.header()
	return r.seal.record(dtlsRouting, append(make([]byte, at, at+len(m)+r.seal.overhead()), m[:]...))
}

func (r routing) Open(d []byte) (m udp.RoutingMessage, ok bool) {
	if len(d) != r.open.overhead()+len(m) || d[0] != dtlsRouting {
		return m, false
	}
	_, content, _, err := r.open.fresh(d, nil)
	return m, copy(m[:], content) == len(m) && err == nil
}

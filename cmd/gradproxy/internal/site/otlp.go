package site

import (
	"net"
	"net/http"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/otlp"
)

// exporter returns the sender of metrics to a receiver of OTLP. Its connections are the proxy's own, which the rules leave alone, and it asks no proxy of the
// environment.
func (s *Site) exporter(endpoint string) *otlp.Exporter {
	dialer := net.Dialer{Control: control(s.started)}
	return &otlp.Exporter{
		Endpoint: endpoint, Site: s.started.Site, Version: s.version, Gatherer: s.registry, Log: s.log,
		Client: &http.Client{
			Transport:     &http.Transport{DialContext: dialer.DialContext, MaxIdleConns: 1},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

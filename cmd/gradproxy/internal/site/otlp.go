package site

import (
	"context"
	"net"
	"net/http"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/otlp"
)

// exporter returns the sender of metrics to a receiver of OTLP. Its connections are the proxy's own, which the rules leave alone, and it asks no proxy of the
// environment.
func (s *Site) exporter(endpoint string) *otlp.Exporter {
	dialer := net.Dialer{Control: s.control(s.started)}
	return &otlp.Exporter{
		Endpoint: endpoint, Site: s.started.Site, Version: s.version, Gatherer: s.registry, Log: s.log,
		Client: &http.Client{
			Transport:     &http.Transport{DialContext: dialer.DialContext, MaxIdleConns: 1},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// export sends metrics to a receiver until ctx ends, and the last ones then. A process that has handed everything over sends no last ones, since its successor waits
// for its end.
func (s *Site) export(ctx context.Context, endpoint string) {
	e := s.exporter(endpoint)
	e.Run(ctx)
	if s.giver == nil {
		e.Last()
	}
}

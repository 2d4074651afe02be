package tunnel

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// A source from which a peer has come keeps its place among half-open handshakes in the next process, over streams and
// datagrams; of each peer the last ones are remembered, and none of a peer that is gone.
func TestSourcesOutliveTheProcess(t *testing.T) {
	endpoint := func(ids ...string) *Endpoint {
		e := newEndpoint(Config{Name: "osaka"})
		for _, id := range ids {
			e.peers = append(e.peers, &peer{id: id})
		}
		return e
	}
	address := func(net, i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("198.51.%d.%d", net, i)) }
	first := endpoint("paris", "tokyo")
	for i := range maxProved + 2 {
		first.prove(address(1, i), "paris")
	}
	first.prove(address(2, 1), "tokyo")
	first.prove(address(1, 2), "paris") // the oldest that is remembered comes again
	var file bytes.Buffer
	if err := first.SaveSources(&file); err != nil {
		t.Fatal(err)
	}
	next := endpoint("paris")
	if err := next.LoadSources(bytes.NewReader(file.Bytes()), time.Now()); err != nil {
		t.Fatal(err)
	}
	next.prove(address(1, 99), "paris")
	for _, h := range []*halfOpen{&next.halfOpen, &next.halfOpenDatagrams} {
		for i := range maxProved + 2 {
			if _, got := h.proved[address(1, i)]; got != (i == 2 || i > 3) {
				t.Errorf("source %d of the peer: remembered %v", i, got)
			}
		}
		if _, got := h.proved[address(2, 1)]; got || len(h.proved) != maxProved {
			t.Errorf("%d sources, one of a peer that is gone: %v", len(h.proved), got)
		}
	}
	for _, text := range []string{"", "{}", `{"version":2}`, `{"version":1,"sources":[{"peer":"paris"}]}`, `{"version":1,"sources":[{"address":"1.2.3.4","peer":7}]}`, strings.Repeat(" ", maxSourcesFile+1)} {
		if err := next.LoadSources(strings.NewReader(text), time.Now()); !errors.Is(err, ErrSources) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

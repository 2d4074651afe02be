package tunnel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"
)

// ErrSources says that saved sources cannot be read, since SaveSources has not written them.
var ErrSources = errors.New("tunnel: no saved sources")

// maxSourcesFile bounds the bytes of saved sources.
const maxSourcesFile = 1 << 20

// savedSources is the saved form of the sources from which peers have come, the last ones at the end.
type savedSources struct {
	Version int           `json:"version"`
	Sources []savedSource `json:"sources"`
}

type savedSource struct {
	Address netip.Addr `json:"address"`
	Peer    string     `json:"peer"` // id
}

// SaveSources writes the addresses from which peers have come, so that they have their own places among half-open
// handshakes in the next process too.
func (e *Endpoint) SaveSources(w io.Writer) error {
	s := savedSources{Version: 1, Sources: e.halfOpen.sources()}
	return json.NewEncoder(w).Encode(s)
}

// LoadSources takes the addresses from another process's SaveSources, of peers that there are now: at most maxProved of
// each. After an error there are none more.
func (e *Endpoint) LoadSources(from io.Reader, _ time.Time) error {
	text, err := io.ReadAll(io.LimitReader(from, maxSourcesFile+1))
	if err != nil {
		return err
	}
	var s savedSources
	if len(text) > maxSourcesFile || json.Unmarshal(text, &s) != nil || s.Version != 1 {
		return ErrSources
	}
	for _, x := range s.Sources {
		if !x.Address.IsValid() {
			return fmt.Errorf("%w: a source without an address", ErrSources)
		}
	}
	for _, x := range s.Sources {
		if e.peerByID(x.Peer) != nil {
			e.prove(x.Address, x.Peer)
		}
	}
	return nil
}

// prove notes that a peer has come from a source, whichever carrier it takes next.
func (e *Endpoint) prove(source netip.Addr, peer string) {
	e.halfOpen.prove(source, peer)
	e.halfOpenDatagrams.prove(source, peer)
}

// sources returns the sources from which peers have come, the last ones at the end.
func (h *halfOpen) sources() (list []savedSource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for address, x := range h.proved {
		if address.IsValid() {
			list = append(list, savedSource{address, x.peer})
		}
	}
	slices.SortFunc(list, func(a, b savedSource) int {
		return int(int64(h.proved[a.Address].number) - int64(h.proved[b.Address].number))
	})
	return list
}

package admin

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/history"
	"github.com/gradproxy/gradproxy/proxy/trials"
)

// A Config says where the answers come from. All functions are called for each request, on its goroutine.
type Config struct {
	Site    string                       // shown on the page
	Version string                       // shown on the page
	Metrics http.Handler                 // /metrics; nil: not found
	Tensors func() []proxy.TensorInfo    // /tensors without a limit; nil: none
	Checks  func() []Check               // /readyz; nil: always ready
	Shadow  func() (trials.Report, bool) // /shadow; nil, or false: not found
	// Peers asks all peers for their settings about this site (/peers); nil: not found.
	Peers func(ctx context.Context) []Excerpt
	Log   *slog.Logger // nil discards

	// For the page. A nil function: there is nothing to show.
	Live    func() Live                                                     // the state of the moment, and the newest slots of the history
	History func(step int) history.Table                                    // in slots of so many seconds
	Summary func(limit int) proxy.TensorSummary                             // of the tensors that this site sends
	Tensor  func(id uint64) (t proxy.TensorInfo, h *TensorHistory, ok bool) // one of them
	Halves  func(ctx context.Context) []Half                                // asks all peers
	Lossy   func(codec string) bool                                         // whether a codec may lose something
}

// setDefaults replaces nil functions.
func (c *Config) setDefaults() {
	if c.Tensors == nil {
		c.Tensors = func() []proxy.TensorInfo { return nil }
	}
	if c.Checks == nil {
		c.Checks = func() []Check { return nil }
	}
	if c.Live == nil {
		c.Live = func() Live { return Live{} }
	}
	if c.History == nil {
		c.History = func(int) history.Table { return history.Table{} }
	}
	if c.Summary == nil {
		c.Summary = func(limit int) proxy.TensorSummary {
			list := c.Tensors()
			return proxy.TensorSummary{Largest: list[:min(len(list), limit)], Count: len(list)}
		}
	}
	if c.Tensor == nil {
		c.Tensor = func(uint64) (t proxy.TensorInfo, h *TensorHistory, ok bool) { return t, nil, false }
	}
	if c.Lossy == nil {
		c.Lossy = func(string) bool { return false }
	}
}

// A Check is one thing that must be so for the proxy to be ready.
type Check struct {
	Name string // as in /readyz?exclude=NAME: "drain", "intercept", "peer/tokyo"
	Err  error  // why it is not so; nil: it is
}

// An Excerpt has the settings about this site with which a peer's proxy runs, by the peer's own words, which are not
// checked.
type Excerpt struct {
	Peer  string `json:"peer"`
	Text  string `json:"text"`            // as the peer has sent it
	Error string `json:"error,omitempty"` // why there is none
}

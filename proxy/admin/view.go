package admin

import (
	"fmt"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/history"
)

// A Live is the state of the proxy at a moment, as the page shows it. Its JSON names are stable.
type Live struct {
	Time        int64           `json:"time_ms"` // Unix time
	Site        string          `json:"site"`
	Version     string          `json:"version"`
	Uptime      float64         `json:"uptime_seconds"`
	Connections int             `json:"connections"` // of apps, that are carried now
	Checks      []Result        `json:"checks"`
	Peers       []Peer          `json:"peers"`
	Jobs        []proxy.Traffic `json:"jobs"`   // by peer
	Points      []history.Table `json:"points"` // the newest slots of each ring: two, or since the beginning of an outage that was just noted
	Budgets     []Budget        `json:"budgets"`
}

// A Budget is the bytes that links may carry in a day (UTC) to a peer, or for a job, and how much of it is used.
type Budget struct {
	Peer      string   `json:"peer"` // one of the two is ""
	Job       string   `json:"job"`
	Limit     float64  `json:"limit_bytes"`
	Used      float64  `json:"used_bytes"`
	Projected float64  `json:"projected_bytes"` // of the whole day, at the rate of the last hour
	Left      float64  `json:"left_seconds"`    // of the day
	State     string   `json:"state"`           // "within", "will not last" or "spent"
	Then      []string `json:"then,omitempty"`  // codecs to which tensors move as it runs out
	Stage     int      `json:"stage"`           // how many of them have had their turn
	Plan      string   `json:"plan"`            // in sentences
}

// A Peer is the state of the link to a peer, and its counters since the start.
type Peer struct {
	Name        string    `json:"name"`
	Up          bool      `json:"up"`             // a tunnel is up, and no outage is on
	Outage      float64   `json:"outage_seconds"` // 0: none
	Choice      string    `json:"choice,omitempty"`
	RTT         float64   `json:"rtt_seconds"`              // 0: unknown
	Goodput     float64   `json:"goodput_bytes_per_second"` // 0: unknown
	Streams     int       `json:"streams"`
	Unconfirmed int       `json:"unconfirmed_bytes"` // of streams, under way
	Outages     uint64    `json:"outages"`           // that have begun
	Raw         int64     `json:"raw_bytes"`         // that apps have sent to it
	Wire        int64     `json:"wire_bytes"`        // that the tunnel was handed for them
	Delivered   int64     `json:"delivered_bytes"`   // that apps got
	Sent        int64     `json:"sent_bytes"`        // that the link carried to it
	Received    int64     `json:"received_bytes"`    // that the link carried from it
	Money       *Money    `json:"money,omitempty"`   // nil: it has no price
	Carriers    []Carrier `json:"carriers"`
}

// Money is the price of the bytes that a link carried to a peer.
type Money struct {
	Currency string  `json:"currency"`
	Price    float64 `json:"per_gb"`
	Spent    float64 `json:"spent"`
	Saved    float64 `json:"saved"` // negative: a loss
}

// A Carrier is one connection of a tunnel.
type Carrier struct {
	Carrier    string  `json:"carrier"` // "tls" or "dtls"
	Congestion string  `json:"congestion"`
	Remote     string  `json:"remote"`
	Age        float64 `json:"age_seconds"`
	RTT        float64 `json:"rtt_seconds"`
	Loss       float64 `json:"loss"` // part of the packets
	Backlog    uint64  `json:"backlog_bytes"`
	Sent       uint64  `json:"sent_bytes"`
	Received   uint64  `json:"received_bytes"`
	Leaving    bool    `json:"leaving,omitempty"`
}

// Tensors are the tensors that a site sends: the largest one by one, the others in groups.
type Tensors struct {
	Count   int                 `json:"count"`
	Largest []proxy.TensorInfo  `json:"largest"`
	Groups  []proxy.TensorGroup `json:"groups"`
}

// A TensorHistory tells how a tensor has travelled. Its columns have a value for each of Times.
type TensorHistory struct {
	Step     int       `json:"step"`  // seconds
	Times    []int64   `json:"times"` // Unix times
	Raw      []float32 `json:"raw_bytes"`
	Wire     []float32 `json:"wire_bytes"`
	Error    []float32 `json:"relative_error"`
	Residual []float32 `json:"residual_ratio"`
}

// tensorsOf makes a summary's lists, which are never nil.
func tensorsOf(s proxy.TensorSummary) Tensors {
	t := Tensors{Count: s.Count, Largest: s.Largest, Groups: s.Groups}
	if t.Largest == nil {
		t.Largest = []proxy.TensorInfo{}
	}
	if t.Groups == nil {
		t.Groups = []proxy.TensorGroup{}
	}
	return t
}

// A Readiness is the answer of /readyz to a client that accepts application/json. Its names are stable.
type Readiness struct {
	Site    string   `json:"site"`
	Version string   `json:"version"`
	Ready   bool     `json:"ready"`
	Checks  []Result `json:"checks"`
}

// A Result is a Check as clients see it.
type Result struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Excluded bool   `json:"excluded,omitempty"` // by the client: it does not count
	Error    string `json:"error,omitempty"`    // why it is not so
}

// String writes a result for people.
func (r Result) String() string {
	switch {
	case r.Excluded:
		return fmt.Sprintf("- %s: excluded", r.Name)
	case !r.OK:
		return fmt.Sprintf("✗ %s: %s", r.Name, r.Error)
	}
	return "✓ " + r.Name
}

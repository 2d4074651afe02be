//go:build linux

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// metrics returns the samples of the site's /metrics by name and labels, or nil if the process does not answer.
func (x *site) metrics() map[string]float64 {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(x.s.dir, x.name+".sock"))
		}}}
	response, err := client.Get("http://admin/metrics")
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil
	}
	samples := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		if i := strings.LastIndexByte(strings.TrimSpace(line), ' '); i > 0 && line[0] != '#' {
			if v, err := strconv.ParseFloat(strings.TrimSpace(line[i:]), 64); err == nil {
				samples[line[:i]] = v
			}
		}
	}
	return samples
}

// replayed returns how many bytes the process has sent again after the loss of a carrier.
func (x *site) replayed() (n uint64) {
	for name, v := range x.metrics() {
		if strings.HasPrefix(name, "gradproxy_peer_replayed_bytes_total") {
			n += uint64(v)
		}
	}
	return n
}

// count adds the frames of a process that is about to end to the stage's. metrics are the last ones of the process.
func (x *site) count(metrics map[string]float64) {
	for name, v := range metrics {
		if kind, is := strings.CutPrefix(name, `gradproxy_frames_total{kind="`); is && v > 0 {
			x.s.mu.Lock()
			x.s.frames[strings.TrimSuffix(kind, `"}`)] += uint64(v)
			x.s.mu.Unlock()
		}
	}
}

// shared returns how many values the process has sent as differences, or once for several receivers.
func (x *site) shared() (n int) {
	for name, v := range x.metrics() {
		if strings.HasPrefix(name, "gradproxy_shared_values_total{") && (!strings.Contains(name, `how="whole"`) && !strings.Contains(name, `how="evicted"`)) {
			n += int(v)
		}
	}
	return n
}

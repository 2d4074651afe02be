package inspect

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// A federatedTruth is the record of a job of Flower or NVFlare beside its capture.
type federatedTruth struct {
	Connections []struct {
		Client, Server, Protocol string
		Directions               []struct {
			Direction     string
			StreamBytes   int                             `json:"stream_bytes"`
			Messages      map[string]struct{ Count int }  `json:"messages"`
			Frames        map[string]struct{ Frames int } `json:"sfm_frames"`
			PayloadBytes  int                             `json:"array_payload_bytes"`
			PayloadSHA256 string                          `json:"array_payload_sha256"`
		}
	}
}

// Of recorded jobs of Flower every array is found, and no other byte: models as state, and arrays in objects, where no
// bit may change, as exact.
func TestFlowerCaptures(t *testing.T) {
	for _, file := range require.Captures(t, "flower-*.pcap.gz") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			checkFederated(t, file, "flower", strings.Contains(file, "-objects"))
		})
	}
}

// Of a recorded job of NVFlare every array is found, and no other byte: weights, which are state.
func TestNVFlareCaptures(t *testing.T) {
	for _, file := range require.Captures(t, "nvflare-*.pcap.gz") {
		t.Run(filepath.Base(file), func(t *testing.T) { checkFederated(t, file, "nvflare", false) })
	}
}

// checkFederated compares a capture with its truth. exact: the arrays must not change; else they are state.
func checkFederated(t *testing.T, file, protocol string, exact bool) {
	var want federatedTruth
	unmarshal(t, truthText(t, file), &want)
	all := map[string]Connection{}
	for _, c := range read(t, file, Config{}).Connections {
		all[c.Client+c.Server] = c
	}
	arrays := 0
	for _, w := range want.Connections {
		if strings.HasPrefix(w.Protocol, "probe") {
			continue // nothing was sent
		}
		c, found := all[w.Client+w.Server]
		if !found || c.Protocol != protocol || !c.Complete {
			t.Errorf("%s to %s: %s, complete %v", w.Client, w.Server, c.Protocol, c.Complete)
		}
		for _, d := range w.Directions {
			got := c.FromServer
			if strings.HasPrefix(d.Direction, "client") {
				got = c.FromClient
			}
			messages := 0
			for _, m := range d.Messages {
				messages += m.Count
			}
			for _, m := range d.Frames {
				messages += m.Frames
			}
			roles := RoleBytes{State: d.PayloadBytes}
			if exact {
				roles = RoleBytes{Exact: d.PayloadBytes}
			}
			if got.Bytes != d.StreamBytes || got.Messages != messages || got.PayloadBytes != d.PayloadBytes || got.PayloadSHA256 != d.PayloadSHA256 || got.RoleBytes != roles {
				t.Errorf("%s, %s: %+v, want %d messages, %d bytes of arrays", w.Client, d.Direction, got, messages, d.PayloadBytes)
			}
			arrays += d.PayloadBytes
		}
	}
	if arrays == 0 {
		t.Error("the truth has no arrays")
	}
}

package paramserver

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/recorded"
	"github.com/gradproxy/gradproxy/parser/pslite/pslitesim/zmtp"
)

// heartbeat is how a heart beat's control part begins: the command, then a node.
var heartbeat = regexp.MustCompile(`(?s)\x1a.\x08\x05\x12`)

// beating counts the connections on which there were heart beats, and greeted those on which both sides have greeted.
func (t *taps) beating() (beating, greeted int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.all {
		if heartbeat.Match(c.FromClient) {
			beating++
		}
		if greets(c.FromClient, zmtp.Router) && greets(c.FromServer, zmtp.Dealer) {
			greeted++
		}
	}
	return beating, greeted
}

// greets reports whether stream has a whole greeting to a socket of the given type.
func greets(stream []byte, to string) bool {
	_, err := zmtp.Handshake(context.Background(), recorded.Play(stream), zmtp.Socket{Type: to}, nil)
	return err == nil
}

// With heart beats and ZMTP 3.1, as a recorded job had: every node tells the scheduler that it lives and is answered,
// in the same words, and all connections greet alike.
func TestHeartbeatsArePSLites(t *testing.T) {
	want := listenTo(t, recorded.Open(t, "pslite-mxlike"))
	var config Config
	config.Servers, config.Heartbeat, config.ZMTPMinor = 2, time.Millisecond, 1
	kept := new(taps)
	config.Dial = kept.dial
	newJob(t, config).mustWork(t, func(w *Worker) error {
		if err := w.Init(0, []float32{1}); err != nil {
			return err
		}
		// Four nodes, there and back; and all connections greet, also the ones that nobody needs to work.
		for begin := time.Now(); time.Since(begin) < 20*time.Second; {
			if beating, greeted := kept.beating(); beating >= 8 && greeted >= len(want.connections) {
				break
			}
			if err := w.Pull(0, []float32{0}).Wait(); err != nil {
				return err
			}
		}
		return nil
	})
	got := listenTo(t, kept.all)
	if ours, theirs := slices.Compact(got.connections), slices.Compact(want.connections); !slices.Equal(ours, theirs) {
		t.Errorf("connections\n%q, want\n%q", ours, theirs)
	}
	ours, topics := got.topics(), 0
	for topic, texts := range want.topics() {
		if !strings.Contains(topic, "control message 5") {
			continue
		}
		topics++
		if got, want := slices.Compact(ours[topic]), slices.Compact(texts); !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", topic, got, want)
		}
	}
	if topics != 8 {
		t.Errorf("%d kinds of heart beats were recorded, want 8", topics)
	}
}

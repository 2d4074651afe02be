package nvflare

import (
	"fmt"
	"testing"

	"github.com/gradproxy/gradproxy/parser/internal/mix"
)

// A peer that tells facts without end has its own forgotten, and none of another peer's, whatever jobs they are of.
func TestFloodOfAPeerForgetsNothingOfOthers(t *testing.T) {
	var f facts
	tokyo := mix.Scope{Peer: 1, Job: 1}
	f.announce(fact{tokyo, "ref"}, &announcement{})
	f.request(fact{tokyo, "request"}, fact{tokyo, "ref"})
	for i := range uint64(2 * maxRequests) {
		id := fact{mix.Scope{Peer: 2, Job: i % 100}, fmt.Sprint(i)}
		f.announce(id, &announcement{})
		f.request(id, id)
	}
	if f.announcements.Len() != maxAnnouncements || f.requests.Len() != maxRequests {
		t.Errorf("%d announcements and %d requests, want the limits, or the flood is none", f.announcements.Len(), f.requests.Len())
	}
	if f.answered(fact{tokyo, "request"}) == nil {
		t.Error("the other peer's announcement or request is forgotten")
	}
}

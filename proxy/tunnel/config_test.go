package tunnel

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Every fault of a configuration is named, one a line.
func TestConfigFaults(t *testing.T) {
	_, err := New(Config{Name: "", Carriers: 17, Streams: -1, Resume: -1, Codecs: []string{strings.Repeat("x", 65)}})
	for _, want := range []string{"site name of 0 bytes", "17 carriers, not 1 to 16", "-1 streams", "negative resume", "one of more than 64 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, err := New(Config{Name: "paris", Identity: Identity{Cert: "a.pem", Key: "a.key", CA: "ca.pem"}}); err == nil || !strings.Contains(err.Error(), "certificate a.pem with key a.key") {
		t.Errorf("err %v", err)
	}
	id := identities(t, "paris")("paris")
	ok := Peer{Name: "tokyo", ID: "spiffe://lab/tokyo"}
	for want, peers := range map[string][]Peer{
		`peer "": it has no name`:                         {{ID: "spiffe://lab/x"}},
		`peer "tokyo": the name is there twice`:           {ok, {Name: "tokyo", ID: "spiffe://lab/other"}},
		`"spiffe://lab/tokyo" is there twice`:             {ok, {Name: "osaka", ID: "spiffe://lab/tokyo"}},
		`id "tokyo" is not like spiffe://domain/site`:     {{Name: "tokyo", ID: "tokyo"}},
		`id "https://lab/tokyo" is not like spiffe://`:    {{Name: "tokyo", ID: "https://lab/tokyo"}},
		`dial "tokyo": address tokyo: missing port in ad`: {{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: "tokyo"}},
	} {
		e, err := New(Config{Name: "paris", Identity: id, Peers: peers})
		if err == nil {
			e.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// Three sites; then one list of peers takes another's place: a peer that stays is not disturbed, one that goes is
// reset, and a new address is dialed.
func TestSetPeers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fabric{delay: time.Millisecond}
		id := identities(t, "paris", "tokyo", "berlin")
		peer := func(name, dial string) Peer { return Peer{Name: name, ID: "spiffe://lab/" + name, Dial: dial} }
		sites := map[string]*site{}
		for _, name := range []string{"tokyo", "berlin"} {
			sites[name] = f.site(t, Config{Name: name, Identity: id(name), Accept: echo, Peers: []Peer{peer("paris", "")}}, nil)
		}
		paris := f.site(t, Config{Name: "paris", Identity: id("paris"), Peers: []Peer{peer("tokyo", "tokyo:1"), peer("berlin", "nowhere:1")}}, nil)
		up(paris)
		if _, err := paris.Open(t.Context(), "berlin", nil); !errors.Is(err, ErrPeerDown) {
			t.Errorf("berlin cannot be reached, but %v", err)
		}
		tokyo := paris.open("")
		if err := paris.SetPeers([]Peer{peer("berlin", "berlin:1"), peer("tokyo", "tokyo:2")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		berlin, err := paris.Open(t.Context(), "berlin", nil)
		if err != nil {
			t.Fatal(err)
		}
		pour(t, tokyo, tokyo, noise(1, 1<<20))
		if err := paris.SetPeers([]Peer{peer("tokyo", "tokyo:1")}); err != nil {
			t.Fatal(err)
		}
		if _, err := berlin.Write([]byte("x")); !errors.Is(err, ErrSessionLost) {
			t.Errorf("the stream to a peer that was taken out: %v", err)
		}
		if _, err := paris.Open(t.Context(), "berlin", nil); !errors.Is(err, ErrUnknownPeer) {
			t.Errorf("berlin was taken out, but %v", err)
		}
		if err := paris.SetPeers([]Peer{{Name: "tokyo"}}); err == nil {
			t.Error("a list with a fault was taken")
		}
		time.Sleep(time.Minute)
		if st := paris.Stats(); len(st) != 1 || st[0].Carriers != 2 || st[0].Sessions != 1 {
			t.Errorf("%+v", st)
		}
		if st := sites["berlin"].Stats()[0]; st.Session || st.Carriers != 0 {
			t.Errorf("berlin: %+v", st)
		}
	})
}

// A process that was stopped for long finds its carriers as it left them: silence while it could not listen proves
// nothing.
func TestTickAfterSleep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		near, _, paris, _ := meet(t, nil, &fabric{delay: time.Millisecond})
		s := paris.list()[0].session()
		later := time.Now().Add(time.Minute)
		if err := paris.peers[0].tick(s, later, true); err != nil || len(s.carriers) != 2 {
			t.Errorf("after a sleep: %d carriers, %v", len(s.carriers), err)
		}
		if err := paris.peers[0].tick(s, later.Add(deadAfter), false); err != nil || len(s.carriers) != 0 {
			t.Errorf("after silence: %d carriers, %v", len(s.carriers), err)
		}
		near.Reset(CodeApp)
	})
}

// TestPeerThatWasUp: a peer that has had a session counts as such after it was taken out and came back, also with
// another id: what waited for the first session does not go its way in the clear.
func TestPeerThatWasUp(t *testing.T) {
	paris, _ := tcpPair(t, echo, nil)
	down := func(why string) {
		t.Helper()
		if _, err := paris.Open(t.Context(), "tokyo", nil); !errors.Is(err, ErrPeerDown) || errors.Is(err, ErrNeverUp) {
			t.Errorf("%s: %v", why, err)
		}
	}
	set := func(peers ...Peer) {
		t.Helper()
		if err := paris.SetPeers(peers); err != nil {
			t.Fatal(err)
		}
	}
	set(Peer{Name: "tokyo", ID: "spiffe://lab/another"})
	down("another id")
	set()
	set(Peer{Name: "tokyo", ID: "spiffe://lab/tokyo"}, Peer{Name: "osaka", ID: "spiffe://lab/osaka"})
	down("taken out and back")
	set(Peer{Name: "osaka", ID: "spiffe://lab/osaka"})
	set(Peer{Name: "tokyo", ID: "spiffe://lab/tokyo"}, Peer{Name: "osaka", ID: "spiffe://lab/osaka"})
	down("taken out again")
	if _, err := paris.Open(t.Context(), "osaka", nil); !errors.Is(err, ErrNeverUp) {
		t.Errorf("a peer that never was up: %v", err)
	}
}

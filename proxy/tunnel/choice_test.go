package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A chosenPath is a path in virtual time over which bulk goes by a choice.
type chosenPath struct {
	choice
	now    time.Time
	tls    float64 // rate of TLS
	udp    float64 // and of datagrams
	losses float64 // share of the packets of TLS
	bbr    bool
	sent   uint64
	resent uint64
	lost   float64
}

// bulk lets bulk go on for some seconds, and returns how many of them went by datagrams.
func (p *chosenPath) bulk(seconds int) (byDatagrams int) {
	for range seconds {
		p.now = p.now.Add(time.Second)
		o := observation{rate: p.tls, bbr: p.bbr}
		if p.datagrams {
			byDatagrams++
			o.rate = p.udp
		} else {
			p.sent += uint64(p.tls / 1400)
			p.lost += p.tls / 1400 * p.losses
			p.resent = uint64(p.lost)
		}
		o.sent, o.resent = p.sent, p.resent
		p.second(p.now, o)
	}
	return byDatagrams
}

// TestChoice: datagrams take over where TLS loses packets without BBR and they carry more, and only there.
func TestChoice(t *testing.T) {
	for name, c := range map[string]struct {
		path    chosenPath
		maximum int // seconds of an hour by datagrams
		minimum int
		reason  string
	}{
		"clean":                {chosenPath{tls: 20e6, udp: 40e6}, 0, 0, ""},
		"BBR":                  {chosenPath{tls: 20e6, udp: 40e6, losses: 0.01, bbr: true}, 0, 0, ""},
		"losses":               {chosenPath{tls: 1e6, udp: 20e6, losses: 0.01}, 3600, 3500, "faster"},
		"losses, same rate":    {chosenPath{tls: 10e6, udp: 11e6, losses: 0.01}, 60, 5, "slower"},
		"losses, UDP is worse": {chosenPath{tls: 10e6, udp: 1e6, losses: 0.01}, 60, 5, "slower"},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.path
			p.now = time.Unix(1e9, 0)
			n := p.bulk(3600)
			if n < c.minimum || n > c.maximum || p.reason != c.reason {
				t.Errorf("%d of 3,600 s by datagrams, want %d to %d; %q: %s", n, c.minimum, c.maximum, p.reason, p.why)
			}
		})
	}
}

// TestChoiceFollows: datagrams that become slow, or are blocked, make place for TLS at once, and come back.
func TestChoiceFollows(t *testing.T) {
	p := chosenPath{now: time.Unix(1e9, 0), tls: 1e6, udp: 20e6, losses: 0.01}
	settle := func() {
		t.Helper()
		for range 7200 {
			if p.bulk(1); p.datagrams && !p.trying {
				return
			}
		}
		t.Fatalf("datagrams do not come back: %q: %s", p.reason, p.why)
	}
	settle()
	p.udp = 0.1e6
	if n := p.bulk(60); n > 2*choiceSeconds || p.datagrams || p.reason != "throttled" {
		t.Errorf("%d s by slow datagrams, %q: %s", n, p.reason, p.why)
	}
	p.udp = 20e6
	settle()
	p.blocked(p.now, errors.New("silence"))
	if p.datagrams || p.reason != "blocked" {
		t.Errorf("blocked: %q: %s", p.reason, p.why)
	}
	if n := p.bulk(50); n > 0 {
		t.Errorf("%d s by datagrams within the first minute after they were blocked", n)
	}
	settle()
	for range 20 { // blocked each time: they are tried less and less often
		p.blocked(p.now, errors.New("silence"))
		for !p.datagrams {
			p.bulk(1)
		}
	}
	before := p.now
	p.blocked(p.now, errors.New("silence"))
	for !p.datagrams {
		p.bulk(1)
	}
	if took := p.now.Sub(before); took < maxChoice || took > maxChoice+time.Minute {
		t.Errorf("tried again after %v", took)
	}
}

// TestThrottledDatagramsReturn: datagrams that became slow after they had been faster for a minute are tried again a
// minute later, and after longer and longer waits while they stay slow. Datagrams that were faster for less than that
// wait ten minutes.
func TestThrottledDatagramsReturn(t *testing.T) {
	const fast, slow = 20e6, 0.1e6
	throttled := func(held int) *chosenPath {
		p := &chosenPath{now: time.Unix(1e9, 0), tls: 1e6, udp: fast, losses: 0.01}
		for !p.datagrams || p.trying {
			p.bulk(1)
		}
		p.bulk(held)
		p.udp = slow
		for p.datagrams {
			p.bulk(1)
		}
		if p.reason != "throttled" {
			t.Fatalf("%q: %s", p.reason, p.why)
		}
		return p
	}
	back := func(p *chosenPath) (seconds int) {
		for ; !p.datagrams; seconds++ {
			p.bulk(1)
		}
		return seconds
	}
	p := throttled(90)
	p.udp = fast
	if s := back(p); s < 60 || s > 70 {
		t.Errorf("tried again after %d s", s)
	}
	if p.bulk(choiceIgnored + choiceSeconds); p.reason != "faster" {
		t.Errorf("%q: %s", p.reason, p.why)
	}
	p = throttled(90)
	for _, want := range []int{60, 120, 240, 480} {
		if s := back(p); s < want || s > want+10 {
			t.Errorf("tried again after %d s, want %d", s, want)
		}
		if p.bulk(choiceIgnored + choiceSeconds); p.reason != "slower" {
			t.Errorf("%q: %s", p.reason, p.why)
		}
	}
	p = throttled(20)
	p.udp = fast
	if s := back(p); s < 600 || s > 610 {
		t.Errorf("datagrams that were faster for 20 s are tried again after %d s", s)
	}
}

// autoPair returns two sites with carriers of their own, paris dialing tokyo at an address that by makes of the
// listener's.
func autoPair(t *testing.T, here, there string, by func(ln net.Listener) string) (paris, tokyo *Endpoint) {
	t.Helper()
	id := identities(t, "paris", "tokyo")
	ln, err := Listen(there, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	make := func(name, carrier string, peer Peer) *Endpoint {
		e, err := New(Config{Name: name, Carrier: carrier, Identity: id(name), Peers: []Peer{peer}, Accept: echo, Congestion: "default"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	tokyo = make("tokyo", there, Peer{Name: "paris", ID: "spiffe://lab/paris"})
	go tokyo.Serve(ln)
	paris = make("paris", here, Peer{Name: "tokyo", ID: "spiffe://lab/tokyo", Dial: by(ln)})
	waitUp(t, paris, 2)
	return paris, tokyo
}

func direct(ln net.Listener) string { return ln.Addr().String() }

// waitFor waits until a site's carriers are as ok says.
func waitFor(t *testing.T, e *Endpoint, what string, ok func(s PeerStats) bool) {
	t.Helper()
	for began := time.Now(); !ok(e.Stats()[0]); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("not %s after a minute: %+v", what, e.Stats()[0])
		}
	}
}

// TestCarriersMix: sites of different carriers come together wherever one of them has a choice, by what both have.
func TestCarriersMix(t *testing.T) {
	for _, c := range []struct {
		here, there string
		datagrams   int
	}{
		{CarrierAuto, CarrierAuto, 0}, {CarrierAuto, CarrierTLS, 0}, {CarrierTLS, CarrierAuto, 0}, {CarrierDTLS, CarrierAuto, 2}, {CarrierAuto, CarrierDTLS, 2},
	} {
		t.Run(c.here+" dials "+c.there, func(t *testing.T) {
			paris, _ := autoPair(t, c.here, c.there, direct)
			s, err := paris.Open(context.Background(), "tokyo", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			go s.Write([]byte("hello"))
			if _, err := io.ReadFull(s, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			waitFor(t, paris, "settled", func(s PeerStats) bool { return s.Carriers == 2 && s.Datagrams == c.datagrams })
			if choice := paris.Stats()[0].Choice; c.here == CarrierAuto && c.datagrams > 0 && choice.Reason != "only" || c.here != CarrierAuto && choice != (Choice{}) {
				t.Errorf("%+v", choice)
			}
		})
	}
}

// TestCarriersChange: a stream loses nothing while its carriers change to datagrams and back, while datagrams are cut
// in mid-transfer, and while a peer does not listen for them.
func TestCarriersChange(t *testing.T) {
	for _, there := range []string{CarrierAuto, CarrierTLS} {
		t.Run(there, func(t *testing.T) {
			paris, _ := autoPair(t, CarrierAuto, there, direct)
			p := paris.list()[0]
			s, err := paris.Open(context.Background(), "tokyo", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			data := make([]byte, 1<<20)
			for i := range data {
				data[i] = byte(i * 13 >> 5)
			}
			stop, done := make(chan bool), make(chan int)
			go func() {
				n := 0
				for {
					select {
					case <-stop:
						s.CloseWrite()
						done <- n
						return
					default:
						s.Write(data)
						n++
					}
				}
			}()
			read := make(chan int)
			go func() {
				n, got := 0, make([]byte, len(data))
				for {
					if _, err := io.ReadFull(s, got); err == io.EOF {
						break
					} else if err != nil || !bytes.Equal(got, data) {
						t.Errorf("after %d MiB: %v", n, err)
						break
					}
					n++
				}
				read <- n
			}()
			for range 3 {
				p.chooser.change(func(c *choice) { c.use(time.Now(), true, "faster", "the test says so at %v", time.Now()) })
				if there == CarrierTLS {
					waitFor(t, paris, "back at TLS", func(s PeerStats) bool { return s.Choice.Reason == "blocked" && s.Datagrams == 0 && s.Carriers == 2 })
					continue
				}
				waitFor(t, paris, "over datagrams", func(s PeerStats) bool { return s.Datagrams == 1 && s.Carriers == 2 })
				p.chooser.change(func(c *choice) { c.use(time.Now(), false, "slower", "the test says so at %v", time.Now()) })
				waitFor(t, paris, "over TLS", func(s PeerStats) bool { return s.Datagrams == 0 && s.Carriers == 2 })
			}
			close(stop)
			if n, m := <-done, <-read; n != m || n == 0 {
				t.Errorf("%d MiB came back of %d", m, n)
			}
			if st := paris.Stats()[0]; st.Sessions != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestDatagramsAreCut: datagrams that no longer get through cost no byte of a stream, and little time: what was on its
// way leaves again over TLS.
func TestDatagramsAreCut(t *testing.T) {
	var between *nat
	paris, _ := autoPair(t, CarrierAuto, CarrierAuto, func(ln net.Listener) string {
		between = newNAT(t, ln.Addr().String())
		_, port, _ := net.SplitHostPort(between.inside.LocalAddr().String())
		relay, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Skipf("TCP port %s is taken: %v", port, err)
		}
		t.Cleanup(func() { relay.Close() })
		go func() {
			for {
				c, err := relay.Accept()
				if err != nil {
					return
				}
				s, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					c.Close()
					continue
				}
				go func() { io.Copy(s, c); s.Close() }()
				go func() { io.Copy(c, s); c.Close() }()
			}
		}()
		return between.inside.LocalAddr().String()
	})
	p := paris.list()[0]
	p.chooser.change(func(c *choice) { c.use(time.Now(), true, "faster", "the test says so") })
	waitFor(t, paris, "over datagrams", func(s PeerStats) bool { return s.Datagrams == 1 && s.Carriers == 2 })
	s, err := paris.Open(context.Background(), "tokyo", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := make([]byte, 8<<20)
	for i := range data {
		data[i] = byte(i * 13 >> 5)
	}
	go s.Write(data)
	got := make([]byte, len(data))
	if _, err := io.ReadFull(s, got[:len(data)/4]); err != nil {
		t.Fatal(err)
	}
	between.closed.Store(true) // nothing is relayed any more
	between.forget()
	began := time.Now()
	if _, err := io.ReadFull(s, got[len(data)/4:]); err != nil || !bytes.Equal(got, data) {
		t.Fatal(err)
	}
	t.Logf("the rest came after %v", time.Since(began))
	waitFor(t, paris, "over TLS", func(s PeerStats) bool { return s.Datagrams == 0 && s.Carriers == 2 && s.Choice.Reason == "blocked" })
	if took := time.Since(began); took > deadAfter {
		t.Errorf("TLS took over after %v", took)
	}
}

// choosing returns a site with one peer, whose carrier it chooses.
func choosing(address string) (*Endpoint, *peer) {
	e := newEndpoint(Config{Name: "osaka"})
	p := newPeer(&e.home, Peer{Name: "paris", ID: "spiffe://lab/paris", Dial: address})
	p.chooser.auto, p.chooser.kinds = true, [2]string{CarrierTLS, CarrierDTLS}
	e.peers = append(e.peers, p)
	return e, p
}

// TestChoicesOutliveTheProcess: the choice of datagrams for a peer is taken up by the next process, and reviewed in
// time, but not for another address, once its review is due, or before datagrams have shown their rate.
func TestChoicesOutliveTheProcess(t *testing.T) {
	now := time.Unix(1e9, 0)
	const address = "192.0.2.1:7443"
	path := chosenPath{now: now, tls: 1e6, udp: 20e6, losses: 0.01}
	for !path.trying {
		path.bulk(1)
	}
	trial := path.choice
	for path.trying {
		path.bulk(1)
	}
	for name, c := range map[string]struct {
		choice  choice
		address string
		after   time.Duration
		want    string
	}{
		"same path":       {path.choice, address, time.Minute, CarrierDTLS},
		"another address": {path.choice, "192.0.2.2:7443", time.Minute, CarrierTLS},
		"review is due":   {path.choice, address, choiceReview, CarrierTLS},
		"of the future":   {path.choice, address, -time.Hour, CarrierTLS},
		"trial":           {trial, address, time.Minute, CarrierTLS},
		"TLS":             {choice{}, address, time.Minute, CarrierTLS},
	} {
		first, p := choosing(address)
		p.chooser.choice = c.choice
		var file bytes.Buffer
		if err := first.SaveChoices(&file); err != nil {
			t.Fatal(err)
		}
		next, q := choosing(c.address)
		if err := next.LoadChoices(&file, path.since.Add(c.after)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := q.chooser.current()
		if got.Carrier != c.want || c.want == CarrierDTLS && (got.Reason != "faster" || got.Why != path.why) {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
		if c.want != CarrierDTLS {
			continue
		}
		kept := chosenPath{choice: q.chooser.choice, now: path.since.Add(c.after), tls: path.tls, udp: 0.1e6, losses: path.losses}
		if kept.bulk(choiceIgnored + choiceSeconds); kept.reason != "throttled" {
			t.Errorf("slow datagrams after a restart: %q: %s", kept.reason, kept.why)
		}
		q.setAddress(address)
		if got := q.chooser.current(); got.Carrier != CarrierDTLS {
			t.Errorf("a reload that changes nothing: %+v", got)
		}
		q.setAddress("192.0.2.3:7443")
		if got := q.chooser.current(); got.Carrier != CarrierTLS || got.Reason != "review" {
			t.Errorf("after a change of the address: %+v", got)
		}
	}
	e, _ := choosing(address)
	for _, text := range []string{"", "{}", `{"version":2}`, `{"version":1,"choices":[{"peer":"spiffe://lab/paris"}]}`, `{"version":1,"choices":[{"peer":7}]}`,
		`{"version":1,"choices":[{"peer":"spiffe://lab/paris","tls_bytes_per_second":1e6}]}`, `{"version":1,"choices":[{"peer":"spiffe://lab/paris","tls_bytes_per_second":1e999,"why":"so"}]}`, strings.Repeat(" ", maxChoicesFile+1)} {
		if err := e.LoadChoices(strings.NewReader(text), now); !errors.Is(err, ErrChoices) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

// TestLoadedChoices: a saved choice is reviewed in time though the clock is set back, and takes the place of no choice
// that this process has made. Where the address changes, rates of the path before count no more.
func TestLoadedChoices(t *testing.T) {
	const address = "192.0.2.1:7443"
	load := func(e *Endpoint, now time.Time) {
		t.Helper()
		text := fmt.Sprintf(`{"version":1,"choices":[{"peer":"spiffe://lab/paris","address":%q,"since":%q,"tls_bytes_per_second":1e6,"why":"it was faster"}]}`, address, now.Add(-time.Minute).Format(time.RFC3339Nano))
		if err := e.LoadChoices(strings.NewReader(text), now); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	e, p := choosing(address)
	load(e, now)
	if since := p.chooser.choice.since; now.Sub(since) != time.Minute || since == since.Round(0) {
		t.Errorf("the choice is of %v, want a minute before %v, by the monotonic clock", since, now)
	}
	e, p = choosing(address)
	p.chooser.change(func(c *choice) { c.withoutTLS(now, errors.New("refused")) })
	load(e, now)
	if got := p.chooser.current(); got.Reason != "only" {
		t.Errorf("the choice of this process gave way to %+v", got)
	}
	_, p = choosing(address)
	for range choiceIgnored + choiceSeconds {
		p.chooser.observed(now, observation{rate: 1e6})
	}
	if p.setAddress("192.0.2.2:7443"); len(p.chooser.choice.rates) > 0 {
		t.Errorf("rates of the path to another address: %v", p.chooser.choice.rates)
	}
}

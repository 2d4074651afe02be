package udp

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require/freeport"
)

// A macProver proves messages by HMAC in place of DTLS. Its records with data, and with messages, are numbered.
type macProver struct {
	id      []byte // that its own records carry; nil: none
	far     []byte // that the other end's carry
	key     string
	next    *atomic.Uint64
	came    map[uint64]bool
	mu      *sync.Mutex
	largest uint64
	lost    int // messages of this end that are to be
}

const (
	macData    = 23
	macRouting = 27
)

// record returns a record of a type.
func (p *macProver) record(kind byte, text string) []byte {
	outer := kind
	if p.id != nil {
		outer = withID
	}
	b := binary.BigEndian.AppendUint64([]byte{outer, 254, 253}, 1<<48|p.next.Add(1))
	b = append(b, p.id...)
	content := append([]byte(text), kind)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(content)+sha256.Size)), content...)
	mac := hmac.New(sha256.New, []byte(p.key))
	mac.Write(b)
	return mac.Sum(b)
}

// read takes a record apart. newest: none with a larger number has come. ok: it is authentic, and comes for the first
// time.
func (p *macProver) read(b []byte) (kind byte, text string, newest, ok bool) {
	header := 13 + len(p.far)
	if len(b) < header+1+sha256.Size || !bytes.Equal(b[11:11+len(p.far)], p.far) {
		return 0, "", false, false
	}
	at := len(b) - sha256.Size
	mac := hmac.New(sha256.New, []byte(p.key))
	mac.Write(b[:at])
	number := binary.BigEndian.Uint64(b[3:])
	p.mu.Lock()
	defer p.mu.Unlock()
	if !hmac.Equal(mac.Sum(nil), b[at:]) || p.came[number] {
		return 0, "", false, false
	}
	p.came[number] = true
	newest = number > p.largest
	p.largest = max(p.largest, number)
	return b[at-1], string(b[header : at-1]), newest, true
}

func (p *macProver) Seal(m RoutingMessage) ([]byte, error) {
	d := p.record(macRouting, string(m[:]))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost > 0 {
		p.lost--
		d[len(d)-1]++ // it arrives broken, and is lost
	}
	return d, nil
}

// lose has messages of this end arrive broken.
func (p *macProver) lose(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = n
}

func (p *macProver) Open(d []byte) (m RoutingMessage, ok bool) {
	if d[0] != macRouting {
		return m, false
	}
	kind, text, _, ok := p.read(d)
	return RoutingMessage([]byte(text + string(make([]byte, routingLen)))[:routingLen]), ok && kind == macRouting
}

// An end is an end of a connection with the reader that the layer above has.
type end struct {
	*Conn
	prover *macProver
	moves  chan bool   // whether the hosts have changed
	came   chan string // data
}

// movers returns the two ends of a connection, which both read.
func movers(t testing.TB, l *Listener) (client, server *end) {
	c, s := connect(t, l)
	client = newEnd(c, "secret", c.ID(), nil)
	server = newEnd(s, "secret", nil, c.ID())
	return client, server
}

func newEnd(c *Conn, key string, id, far []byte) *end {
	e := &end{Conn: c, moves: make(chan bool, 1000), came: make(chan string, 1000),
		prover: &macProver{id: id, far: far, key: key, next: new(atomic.Uint64), came: map[uint64]bool{}, mu: new(sync.Mutex)}}
	c.SetProver(e.prover, func(far bool) { e.moves <- far })
	go e.read()
	return e
}

func (e *end) read() {
	for {
		d, _, _, err := e.Next()
		if err != nil {
			return
		}
		kind, text, newest, ok := e.prover.read(d)
		if !ok {
			continue
		}
		e.Arrived(newest)
		switch kind {
		case macData:
			e.Heard()
			e.came <- text
		case macRouting:
			e.Route(RoutingMessage([]byte(text)))
		}
	}
}

// say sends data.
func (e *end) say(text string) { e.Write(e.prover.record(macData, text)) }

// rebind has the client's datagrams leave from another port, as a NAT does that has forgotten a mapping.
func rebind(t testing.TB, c *Conn) {
	t.Helper()
	s, _, err := connected(context.Background(), c.RemoteAddr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	old := c.socket.Swap(s)
	c.way.moveTo(s, netip.AddrPort{}, nil)
	old.Close()
}

// brings checks that data gets through.
func brings(t *testing.T, from, to *end, text string) {
	t.Helper()
	for range 600 {
		from.say(text)
		select {
		case got := <-to.came:
			if got == text {
				return
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatalf("%q does not come", text)
}

// moved waits until an end has moved.
func (e *end) moved(t *testing.T) (far bool) {
	t.Helper()
	select {
	case far = <-e.moves:
	case <-time.After(time.Minute):
		t.Fatal("it does not move")
	}
	return far
}

// TestMoves: data from another port of the client's reaches the connection at once, by its id, and the server's reaches
// the client once that has shown that it receives there. Neither end begins a new connection.
func TestMoves(t *testing.T) {
	l := listen(t)
	client, server := movers(t, l)
	for i := range 3 {
		before := server.RemoteAddr().String()
		time.Sleep(moveEvery)
		rebind(t, client.Conn)
		if i == 2 {
			server.prover.lose(1) // the challenge
		}
		client.say(fmt.Sprint("hello", i))
		if got := <-server.came; got != fmt.Sprint("hello", i) {
			t.Errorf("%q came", got)
		}
		for len(server.moves) == 0 {
			client.say("and so on")
			<-server.came
			time.Sleep(10 * time.Millisecond)
		}
		if server.moved(t) {
			t.Error("the hosts have changed")
		}
		if now := server.RemoteAddr().String(); now == before || now != client.LocalAddr().String() {
			t.Errorf("the server has %v after %v, the client is at %v", now, before, client.LocalAddr())
		}
		brings(t, server, client, "back")
	}
	l.mu.Lock()
	if len(l.conns) != 1 || len(l.ids) != 1 {
		t.Errorf("%d addresses, %d connections", len(l.conns), len(l.ids))
	}
	l.mu.Unlock()
	client.Close()
	client.Close()
	server.Close()
	server.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) != 0 || len(l.ids) != 0 {
		t.Errorf("%d addresses, %d connections are left", len(l.conns), len(l.ids))
	}
}

// TestMovesInDoubt: a client that hears nothing goes on from a new socket once the server is heard there, whichever of
// their messages are lost meanwhile.
func TestMovesInDoubt(t *testing.T) {
	for name, lose := range map[string]func(client, server *macProver){
		"nothing is lost":              func(_, _ *macProver) {},
		"the client's challenge":       func(client, _ *macProver) { client.lose(1) },
		"the server's challenge":       func(_, server *macProver) { server.lose(1) },
		"both of the server's":         func(_, server *macProver) { server.lose(2) },
		"the client's, and an answer":  func(client, server *macProver) { client.lose(1); server.lose(2) },
		"the client's first two tries": func(client, _ *macProver) { client.lose(2) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, server := movers(t, listen(t))
			before := client.LocalAddr().String()
			lose(client.prover, server.prover)
			time.Sleep(goneAfter)
			client.Doubt()
			if client.moved(t) {
				t.Error("the hosts have changed")
			}
			if client.LocalAddr().String() == before {
				t.Error("the client has its old address")
			}
			for len(server.moves) == 0 { // the server sees by data that the client is elsewhere, if its answer was lost
				client.say("here")
				time.Sleep(10 * time.Millisecond)
			}
			if now := server.RemoteAddr().String(); now != client.LocalAddr().String() {
				t.Errorf("the server has %v, the client is at %v", now, client.LocalAddr())
			}
			brings(t, server, client, "to the client")
			brings(t, client, server, "to the server")
		})
	}
}

// TestMovesKeepTheAskedAddress: after a move too, all that a listener on all addresses sends leaves from the address to
// which the client sends, since the client takes datagrams from no other.
func TestMovesKeepTheAskedAddress(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "[::]:0"} {
		t.Run(address, func(t *testing.T) {
			l, err := Listen(address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c, err := Dial(ctx, fmt.Sprintf("127.0.0.2:%d", l.Addr().(*net.UDPAddr).Port)) // the kernel would answer from 127.0.0.1
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			accepted, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer accepted.Close()
			client, server := newEnd(c, "secret", c.ID(), nil), newEnd(accepted.(*Conn), "secret", nil, c.ID())
			brings(t, client, server, "before")
			rebind(t, client.Conn)
			for len(server.moves) == 0 {
				client.say("from another port")
				<-server.came
				time.Sleep(10 * time.Millisecond)
			}
			brings(t, server, client, "after a NAT's change")
			time.Sleep(moveEvery)
			client.Doubt()
			client.moved(t)
			brings(t, client, server, "from a new socket")
			brings(t, server, client, "to a new socket")
		})
	}
}

// TestWriteFailsBesideMove: a write that fails while a move has the next socket taken waits for it, and not each for
// the other.
func TestWriteFailsBesideMove(t *testing.T) {
	client, _ := movers(t, listen(t))
	closed, _, err := connected(t.Context(), client.RemoteAddr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	client.way.moveTo(closed, netip.AddrPort{}, nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20000 {
			if err := client.WriteBatch([]byte("lostlost"), 4, 0); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Go(func() {
		for range 20000 { // as adopt does
			client.moving.mu.Lock()
			client.way.moveTo(closed, netip.AddrPort{}, nil)
			client.moving.mu.Unlock()
		}
	})
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("each waits for the other")
	}
}

// TestHeardAgain: a client that hears the server again does not move.
func TestHeardAgain(t *testing.T) {
	client, server := movers(t, listen(t))
	before := client.LocalAddr().String()
	end := time.Now().Add(50 * time.Millisecond)
	for client.Heard(); time.Now().Before(end); time.Sleep(time.Millisecond) {
		client.Doubt()
		client.Heard() // as often as packets come, however long the attempt takes
	}
	if len(client.moves)+len(server.moves) > 0 {
		t.Error("it has moved")
	}
	brings(t, client, server, "hello")
	if client.LocalAddr().String() != before {
		t.Error("it has another address")
	}
}

// TestOnlyThePeerMoves: nobody but the client moves a connection: not with the connection's id alone, not by a record
// of the client's that was seen on its way, and not without receiving at the new address.
func TestOnlyThePeerMoves(t *testing.T) {
	l := listen(t)
	client, server := movers(t, l)
	honest := *server.remote.Load()
	attacker, err := net.Dial("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer attacker.Close()
	told := func() (b []byte) { // to the attacker
		b = make([]byte, 2000)
		attacker.SetReadDeadline(time.Now().Add(3 * checkEvery))
		n, _ := attacker.Read(b)
		return b[:n]
	}
	stays := func(what string) {
		t.Helper()
		if at := *server.remote.Load(); at != honest {
			t.Fatalf("%s moves the connection to %v", what, at)
		}
	}
	guess := *client.prover
	guess.key, guess.next = "guess", new(atomic.Uint64)
	guess.next.Store(1000)
	attacker.Write(guess.record(macData, "forged"))
	if b := told(); len(b) > 0 {
		t.Errorf("%x answers a forged record", b)
	}
	stays("a forged record")

	seen := client.prover.record(macData, "one")
	client.Write(seen)
	<-server.came
	attacker.Write(seen)
	if b := told(); len(b) > 0 {
		t.Errorf("%x answers a record that has come before", b)
	}
	older, newer := client.prover.record(macData, "older"), client.prover.record(macData, "newer")
	client.Write(newer)
	<-server.came
	attacker.Write(older)
	if got := <-server.came; got != "older" {
		t.Errorf("%q came", got)
	}
	if b := told(); len(b) > 0 {
		t.Errorf("%x answers a record that is not the newest", b)
	}
	stays("a record of the client's that comes late")

	held := client.prover.record(macData, "held back") // and brought by the attacker
	attacker.Write(held)
	if got := <-server.came; got != "held back" {
		t.Errorf("%q came", got)
	}
	challenge := told()
	if m, ok := client.prover.Open(challenge); !ok || m[0] != pathChallenge || len(challenge) > len(held)+routingLen {
		t.Fatalf("%x answers the newest record from another address, want a challenge", challenge)
	}
	attacker.Write(challenge)
	attacker.Write(guess.record(macRouting, string(challenge[13:13+routingLen])))
	if b := told(); len(b) > 0 {
		t.Errorf("%x answers", b)
	}
	stays("an address that cannot answer the challenge")
	brings(t, server, client, "still here")

	m := RoutingMessage(challenge[13 : 13+routingLen])
	client.Write(client.prover.record(macRouting, string(m[:]))) // the right message, as an unknown kind of answer
	m = m.answer()
	client.Write(client.prover.record(macRouting, string(m[:])))
	brings(t, client, server, "from where it was")
	stays("the right answer from the connection's own address")
	attacker.Write(client.prover.record(macRouting, string(m[:])))
	if b := told(); len(b) == 0 { // of a record that was the newest once more
		t.Error("the attacker is not challenged again")
	} else if challenge = b; bytes.Equal(challenge[13:13+routingLen], m[:]) {
		t.Error("the challenge is the same")
	}
	stays("an answer after which the client was heard at its own address")
	m = RoutingMessage(challenge[13 : 13+routingLen]).answer()
	m[3]++
	attacker.Write(client.prover.record(macRouting, string(m[:])))
	told()
	stays("a wrong answer")
	m[3]--
	attacker.Write(client.prover.record(macRouting, string(m[:])))
	if far := server.moved(t); far || *server.remote.Load() == honest {
		t.Errorf("the right answer moves it to %v, hosts changed: %v", *server.remote.Load(), far)
	}
	if server.moving.passed(m, *server.remote.Load()) {
		t.Error("an answer counts twice")
	}
}

// TestChallengesAreAnsweredWhereTheyCame: the answer to a challenge takes the path of the challenge, also where that is
// not the connection's, and no challenge of the server's goes with it.
func TestChallengesAreAnsweredWhereTheyCame(t *testing.T) {
	l := listen(t)
	client, server := movers(t, l)
	elsewhere, err := net.Dial("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	m := newChallenge()
	late := client.prover.record(macRouting, string(m[:]))
	brings(t, client, server, "a newer record")
	elsewhere.Write(late)
	b := make([]byte, 2000)
	elsewhere.SetReadDeadline(time.Now().Add(time.Minute))
	n, err := elsewhere.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := client.prover.Open(b[:n]); !ok || got != m.answer() {
		t.Errorf("%x, authentic %v, answers the challenge %x", got, ok, m)
	}
	elsewhere.SetReadDeadline(time.Now().Add(3 * checkEvery))
	if n, _ := elsewhere.Read(b); n > 0 {
		t.Errorf("%x comes as well", b[:n])
	}
}

// TestMovesAreFew: challenges and moves of a connection are bounded, however many addresses its records come from.
func TestMovesAreFew(t *testing.T) {
	var m moving
	m.allow(&macProver{}, func(bool) {})
	now, challenges := time.Now(), 0
	for i := range 1000 {
		far := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(1+i))
		if _, ok := m.challenge(far, now.Add(time.Duration(i)*time.Millisecond)); ok {
			challenges++
		}
	}
	if limit := int(time.Second / checkEvery); challenges != limit {
		t.Errorf("%d challenges in a second, want %d", challenges, limit)
	}
	if len(m.checks) != maxChecks {
		t.Errorf("%d checks are kept, want %d", len(m.checks), maxChecks)
	}
	far := netip.MustParseAddrPort("127.0.0.1:7")
	c, ok := m.challenge(far, now.Add(time.Minute))
	if again, _ := m.challenge(far, now.Add(2*time.Minute)); !ok || again != c {
		t.Error("a repeated challenge has another cookie, so that a late answer does not count")
	}
	if m.passed(c, far) || !m.passed(c.answer(), far) || m.passed(c.answer(), far) {
		t.Error("want an answer to count once, and a challenge not at all")
	}
	m.checked = time.Time{}
	if _, ok := m.challenge(far, time.Now()); ok {
		t.Error("a connection that has just moved is challenged again at once")
	}
	if _, ok := m.challenge(far, time.Now().Add(moveEvery)); !ok {
		t.Error("a connection that has moved is never challenged again")
	}
	if _, ok := new(moving).challenge(far, now); ok {
		t.Error("a connection without a key is challenged")
	}
}

// TestChecksStandSideBySide: a check of the peer's new address goes on while somebody brings records of the peer's from
// other addresses. One that succeeds ends the others, and so does the newest record from the connection's own address.
func TestChecksStandSideBySide(t *testing.T) {
	var m moving
	m.allow(&macProver{}, func(bool) {})
	now := time.Now()
	at := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(1+i))
	}
	all := func() (c [maxChecks]RoutingMessage) {
		for i := range c {
			now = now.Add(moveEvery)
			c[i], _ = m.challenge(at(i), now)
		}
		return c
	}
	c := all()
	for i := range c {
		if m.passed(c[i].answer(), at(i+1)) {
			t.Errorf("the answer to challenge %d counts for another address", i)
		}
	}
	if !m.passed(c[0].answer(), at(0)) {
		t.Error("later checks have ended the first one")
	}
	if m.passed(c[1].answer(), at(1)) {
		t.Error("the connection moves twice at once")
	}
	now = time.Now()
	c = all()
	m.stays()
	if m.passed(c[0].answer(), at(0)) {
		t.Error("the connection moves though its peer is heard at its own address")
	}
}

// TestListenerForgets: a client hears from the process that listens now that the connection is not known there, or that
// nobody listens.
func TestListenerForgets(t *testing.T) {
	address, err := freeport.Find("udp", "127.0.0.1") // one listener after the other has it, and no socket of the client's in between
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	client, server := movers(t, l)
	l.Close()
	server.Close()
	l.readers.Wait()
	lost := func() {
		t.Helper()
		for began := time.Now(); !client.Lost(); time.Sleep(10 * time.Millisecond) {
			client.say("hello")
			if time.Since(began) > time.Minute {
				t.Fatal("the client does not hear of it")
			}
		}
	}
	lost()
	if client.Heard(); client.Lost() {
		t.Error("lost although it is heard")
	}
	again, err := Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	lost()
	client.Heard()
	for _, m := range []message{{kind: msgGone, id: client.ID()}, {kind: msgGone, id: []byte{1, 2, 3, 4}}} {
		if client.isGone(&m) {
			t.Errorf("%+v counts although an authentic datagram has just come, or although it is of another connection", m)
		}
		time.Sleep(goneAfter)
	}
}

// TestGoneIsRareAndShort: a listener answers records of no connection with less than it got, only so many, and none
// that does not look like ours.
func TestGoneIsRareAndShort(t *testing.T) {
	l := listen(t)
	raw, err := net.Dial("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	answer := func(question []byte, within time.Duration) []byte {
		raw.Write(question)
		raw.SetReadDeadline(time.Now().Add(within))
		b := make([]byte, 2000)
		n, _ := raw.Read(b)
		return b[:n]
	}
	stranger := &macProver{id: []byte{9, 9, 9, 9}, next: new(atomic.Uint64)}
	question := stranger.record(macData, "x")
	inClear := (&macProver{next: new(atomic.Uint64)}).record(macData, "x")
	for _, question := range [][]byte{nil, []byte("hello"), question[:idHeader], inClear, append([]byte{withID, 1, 2}, question[3:]...),
		(&message{kind: msgGone, id: []byte{9, 9, 9, 9}}).append(nil)} {
		if got := answer(question, 100*time.Millisecond); len(got) > 0 {
			t.Errorf("%x answers %q", got, question)
		}
	}
	if got := answer(question, 10*time.Second); !bytes.Equal(got, (&message{kind: msgGone, id: []byte{9, 9, 9, 9}}).append(nil)) || len(got) > len(question) {
		t.Errorf("%x answers %x", got, question)
	}
	now, told := time.Now().Add(time.Hour), 0
	for range 5 * maxGone {
		if l.mayTellGone(now) {
			told++
		}
	}
	if told != maxGone || !l.mayTellGone(now.Add(time.Second)) {
		t.Errorf("%d clients are told in a second", told)
	}
	l.mu.Lock()
	l.second, l.gone = time.Now().Add(time.Hour), maxGone // of a second that does not end
	l.mu.Unlock()
	if got := answer(question, 100*time.Millisecond); len(got) > 0 {
		t.Errorf("%x answers one record too many of a second", got)
	}
}

// TestDisplaced: a client that has the address of another one now takes it, and the other one still is heard, and can
// move.
func TestDisplaced(t *testing.T) {
	l := listen(t)
	client, server := movers(t, l)
	from := *server.remote.Load()
	begin := message{kind: msgBegin, nonce: nonce{9}, cookie: l.baker.bake(from, nonce{9}, time.Now())}
	l.take(from, nil, begin.append(nil), 0)
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	l.take(from, nil, []byte("for the other one"), 0)
	b := make([]byte, 100)
	accepted.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := accepted.Read(b); err != nil || string(b[:n]) != "for the other one" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if accepted.(*Conn).id == client.id {
		t.Error("both have one id")
	}
	brings(t, client, server, "from the same port")
	time.Sleep(goneAfter)
	client.Doubt()
	client.moved(t)
	brings(t, client, server, "from another port")
	server.moved(t)
	brings(t, server, client, "and back")
}

// TestMixedDatagrams: of datagrams that came together each gets to its own connection, whichever of them carry an id.
func TestMixedDatagrams(t *testing.T) {
	l := listen(t)
	one, atOne := movers(t, l)
	two, atTwo := movers(t, l)
	from := *atOne.remote.Load()
	first, second, plain := one.prover.record(macData, "one"), two.prover.record(macData, "two"), make([]byte, len(one.prover.record(macData, "one")))
	for name, tc := range map[string]struct {
		datagrams [][]byte
		want      *Conn
	}{
		"one connection's":  {[][]byte{first, first}, atOne.Conn},
		"another one's":     {[][]byte{second, second}, atTwo.Conn},
		"both":              {[][]byte{first, second}, nil},
		"with and without":  {[][]byte{first, plain}, nil},
		"without and with":  {[][]byte{plain, first}, nil},
		"without":           {[][]byte{plain, plain}, atOne.Conn},
		"with a message":    {[][]byte{plain, append([]byte{msgAsk}, plain[1:]...)}, nil},
		"nothing":           {nil, nil},
		"an unknown one":    {[][]byte{append(append(bytes.Clone(first[:idAt]), 1, 2, 3, 4), first[idAt+IDLen:]...)}, nil},
		"a short last one":  {[][]byte{first, first[:idHeader+1]}, atOne.Conn},
		"a last one's head": {[][]byte{first, first[:idHeader]}, nil},
	} {
		if got := l.whose(from, &arrived{rest: bytes.Join(tc.datagrams, nil), each: len(first)}); got != tc.want {
			t.Errorf("%s: they are all said to be of %p, want %p", name, got, tc.want)
		}
	}
	l.take(from, nil, first, 0)
	l.take(from, nil, second, 0)
	if a, b := <-atOne.came, <-atTwo.came; a != "one" || b != "two" {
		t.Errorf("%q and %q came", a, b)
	}
}

// TestClosedDoesNotMove: a connection that is closed while it moves is not in the tables afterwards.
func TestClosedDoesNotMove(t *testing.T) {
	l := listen(t)
	_, server := movers(t, l)
	server.Close()
	l.follow(server.Conn, &path{far: netip.MustParseAddrPort("127.0.0.1:7")})
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns)+len(l.ids) > 0 || len(server.moves) > 0 {
		t.Errorf("%d addresses and %d ids are kept of a closed connection, and it has moved %d times", len(l.conns), len(l.ids), len(server.moves))
	}
}

// TestIDsDiffer: an id that is taken is not given again.
func TestIDsDiffer(t *testing.T) {
	tries := 0
	var first connectionID
	id := newID(func(id connectionID) bool {
		if tries++; tries == 1 {
			first = id
		}
		return id == first
	})
	if tries < 2 || id == first {
		t.Errorf("%x is taken, and is given after %d tries", id, tries)
	}
}

// FuzzListener: no datagram from elsewhere moves a connection, or ends it.
func FuzzListener(f *testing.F) {
	f.Add((&message{kind: msgGone, id: make([]byte, IDLen)}).append(nil))
	l := listen(f)
	client, server := movers(f, l)
	f.Add(client.prover.record(macData, "data"))
	f.Add(client.prover.record(macData, "data")[:idHeader+1])
	home := *server.remote.Load()
	f.Fuzz(func(t *testing.T, b []byte) {
		from := netip.MustParseAddrPort("127.0.0.9:999")
		l.take(from, nil, b, 0)
		if id, ok := idOf(b); ok { // with the connection's id as well
			copy(b[idAt:], client.ID())
			l.take(from, nil, b, 0)
			copy(b[idAt:], id[:])
		}
		select {
		case <-server.closed:
			t.Fatal("ended")
		default:
		}
		if *server.remote.Load() != home {
			t.Fatal("moved")
		}
	})
}

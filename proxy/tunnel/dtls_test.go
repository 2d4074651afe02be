package tunnel

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/tls"
	"encoding/hex"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/dtls/v2"
	"github.com/pion/dtls/v2/pkg/protocol/recordlayer"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
	"github.com/gradproxy/gradproxy/proxy/tunnel/datagram"
	"github.com/gradproxy/gradproxy/proxy/tunnel/udp"
)

// connectionIDs are ids of connections with which tests run: records of the accepting side carry none, the ones of the
// dialing side do.
var connectionIDs = map[string][]byte{"without an id": nil, "with an id": {0xc1, 0xd0, 0x19, 0x17}}

// suitePair returns a suite of each kind as the two sides of a connection have it, whose client's records carry an id.
func suitePair(t testing.TB, id dtls.CipherSuiteID, connection []byte) (client, server *dtlsSuite) {
	find := func(isClient bool) *dtlsSuite {
		for _, s := range ofConnection(&dtlsSecrets{id: connection}) {
			if s.ID() == id {
				if err := s.Init(make([]byte, 48), make([]byte, 32), make([]byte, 32), isClient); err != nil {
					t.Fatal(err)
				}
				return s.(*dtlsSuite)
			}
		}
		t.Fatalf("no suite %#x", id)
		return nil
	}
	return find(true), find(false)
}

// dtlsRecord returns a DTLS record of application data.
func dtlsRecord(epoch uint16, number uint64, content string) []byte {
	b := []byte{23, 254, 253, byte(epoch >> 8), byte(epoch)}
	for shift := 40; shift >= 0; shift -= 8 {
		b = append(b, byte(number>>shift))
	}
	return append(append(b, byte(len(content)>>8), byte(len(content))), content...)
}

// TestSuiteVector: the AEAD of RFC 8439, 2.8.2, whose additional data is cut as a record's cannot be, and the nonce of
// RFC 7905, section 2: a record's number XOR the secret, with zeros before it.
func TestSuiteVector(t *testing.T) {
	decode := func(s string) []byte {
		b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	aead, err := chacha20poly1305.New(decode("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"))
	if err != nil {
		t.Fatal(err)
	}
	sealed := aead.Seal(nil, decode("070000004041424344454647"), []byte("Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it."),
		decode("50515253c0c1c2c3c4c5c6c7"))
	if tag := sealed[len(sealed)-16:]; !bytes.Equal(tag, decode("1ae10b594f09e26a7e902ecbd0600691")) {
		t.Errorf("tag %x", tag)
	}
	iv := [suiteNonce]byte(decode("07000000404142434445 4647"))
	for _, c := range []struct{ id, data string }{
		{"", "0001 020304050607 17 fefd 0005"},
		{"c1d01917", "ffffffffffffffff 19 04 19 fefd 0001 020304050607 c1d01917 0005"}, // RFC 9146, section 5.3
	} {
		form := recordForm{id: decode(c.id)}
		nonce, data := form.secrets(&recordScratch{}, &iv, form.whole(dtlsRecord(1, 0x020304050607, "")), 5)
		if want := decode("07000000 4040 404040404040"); !bytes.Equal(nonce, want) {
			t.Errorf("id %q: nonce %x, want %x", c.id, nonce, want)
		}
		if want := decode(c.data); !bytes.Equal(data, want) {
			t.Errorf("id %q: additional data %x, want %x", c.id, data, want)
		}
	}
}

// TestConnectionIDVectors: records with a connection id are as RFC 9146, sections 4 and 5.3, has them, also with
// padding behind their type. Python's package cryptography has made the records, by that text.
func TestConnectionIDVectors(t *testing.T) {
	key, iv := make([]byte, suiteKey), [suiteNonce]byte{}
	for i := range key {
		key[i] = byte(i)
	}
	for i := range iv {
		iv[i] = byte(100 + i)
	}
	form := recordForm{id: []byte{0xc1, 0xd0, 0x19, 0x17}}
	const number = 0x020304050607
	for id, c := range map[dtls.CipherSuiteID]struct{ record, padded string }{
		suiteAES256: {"19fefd0001020304050607c1d019170016ddf3274aa899385cb0937e697b4de544e99336d0a14e",
			"19fefd0001020304050607c1d019170019ddf3274aa8996e4b490dfcb1d75165dfcc548437a172f39504"},
		suiteChaCha20: {"19fefd0001020304050607c1d019170016aecdc3363fc68448e57e256aebfeb8abf45c8dac957b",
			"19fefd0001020304050607c1d019170019aecdc3363fc661544268c518780f4b5792c03dd19f233884ae"},
	} {
		client, _ := suitePair(t, id, nil)
		aead, err := client.aead(key)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{c.record, c.padded} {
			b, err := hex.DecodeString(want)
			if err != nil {
				t.Fatal(err)
			}
			o := opener{recordForm: form, aead: aead, iv: iv}
			kind, content, err := o.record(b)
			if err != nil || kind != dtlsData || string(content) != "hello" {
				t.Errorf("%v: %s is of type %d, %q, %v", client, want, kind, content, err)
			}
		}
		// The number of this record is beyond the numbers that a sealer gives.
		b := append(make([]byte, form.header(), 100), "hello"...)
		s := sealer{recordForm: form, aead: aead, iv: iv}
		b = s.encrypt(s.prepare(dtlsData, b, number), &s.scratch)
		if got := hex.EncodeToString(b); got != c.record {
			t.Errorf("%v: %s is sealed, want %s", client, got, c.record)
		}
	}
}

// TestOnlyItsOwnForm: a record is of a form only with its id, and with its type, which is not authenticated beside an
// id.
func TestOnlyItsOwnForm(t *testing.T) {
	form := recordForm{id: connectionIDs["with an id"]}
	b := form.whole(dtlsRecord(1, 5, "hello"))
	other := bytes.Clone(b)
	other[recordLengthAt+3]++
	data := bytes.Clone(b)
	data[0] = dtlsData
	for name, c := range map[string]struct {
		record      []byte
		with, plain bool
	}{"its own": {b, true, false}, "of another id": {other, false, false}, "of another type": {data, false, true}} {
		if with, plain := form.has(c.record), (&recordForm{}).has(c.record); with != c.with || plain != c.plain {
			t.Errorf("%s: it has the form with an id: %v, without: %v", name, with, plain)
		}
	}
	if n := form.length(b); n != len(b) {
		t.Errorf("a record of %d bytes has %d", len(b), n)
	}
}

// TestOpenerLooksFirst: a record that is too short, of another epoch or with another id is refused before it is
// decrypted: the id in it is authenticated only by being the connection's.
func TestOpenerLooksFirst(t *testing.T) {
	for name, connection := range connectionIDs {
		client, server := suitePair(t, suiteAES256, connection)
		open := &server.keys.Load().open
		b := sealed(t, &client.keys.Load().seal, dtlsData, "")
		epoch, id := bytes.Clone(b), bytes.Clone(b)
		epoch[epochAt+1]++
		id[0] ^= dtlsData ^ dtlsWithID
		if connection != nil {
			id = bytes.Clone(b)
			id[recordLengthAt]++
		}
		for what, wrong := range map[string][]byte{"too short": b[:len(b)-1], "another epoch": epoch, "another id": id} {
			if _, content, err := open.record(bytes.Clone(wrong)); err == nil || open.forged > 0 {
				t.Errorf("%s: %s: %q, %v, and %d were decrypted", name, what, content, err, open.forged)
			}
		}
		if _, _, err := open.record(b); err != nil {
			t.Errorf("%s: the record itself: %v", name, err)
		}
	}
}

// TestNewest: a record is the newest if none with a larger number has come.
func TestNewest(t *testing.T) {
	client, server := suitePair(t, suiteChaCha20, connectionIDs["with an id"])
	var all [][]byte
	for range 6 {
		all = append(all, sealed(t, &client.keys.Load().seal, dtlsData, "x"))
	}
	for _, c := range []struct {
		number int
		newest bool
	}{{0, true}, {1, true}, {4, true}, {3, false}, {2, false}, {5, true}} {
		if _, _, newest, err := server.keys.Load().open.fresh(all[c.number], nil); err != nil || newest != c.newest {
			t.Errorf("record %d: newest %v, %v", c.number, newest, err)
		}
	}
}

// A nonceCounter is an AEAD that fails the test where a nonce comes twice.
type nonceCounter struct {
	cipher.AEAD
	t    *testing.T
	seen map[string]bool
}

func (c *nonceCounter) Seal(dst, nonce, content, data []byte) []byte {
	if c.seen[string(nonce)] {
		c.t.Errorf("nonce %x is used twice", nonce)
	}
	c.seen[string(nonce)] = true
	return c.AEAD.Seal(dst, nonce, content, data)
}

// TestSuites: records open as they were sealed, by pion's way or the tunnel's, not if a bit of them is changed. No
// nonce is used twice, whatever numbers pion gives, and however many seal at once.
func TestSuites(t *testing.T) {
	for name, connection := range connectionIDs {
		t.Run(name, func(t *testing.T) { testSuites(t, connection) })
	}
}

func testSuites(t *testing.T, connection []byte) {
	for _, id := range []dtls.CipherSuiteID{suiteChaCha20, suiteAES256} {
		client, server := suitePair(t, id, connection)
		form := recordForm{id: connection}
		decrypt := func(b []byte) ([]byte, error) { // as the gate hands it on
			kind := b[0]
			if connection != nil {
				kind = dtlsHandshake
			}
			return server.Decrypt(form.plain(b, kind))
		}
		seal := &client.keys.Load().seal
		counter := &nonceCounter{AEAD: seal.aead, t: t, seen: map[string]bool{}}
		seal.aead = counter
		random := rand.New(rand.NewPCG(1, uint64(id)))
		for i := range 1000 {
			content := strings.Repeat("x", random.IntN(100))
			raw := dtlsRecord(1, uint64(random.IntN(3)), content)
			var sealed []byte
			var err error
			if i%3 == 0 {
				sealed, err = client.Encrypt(&recordlayer.RecordLayer{}, raw)
			} else {
				sealed, err = seal.record(dtlsData, append(make([]byte, seal.header(), len(raw)+seal.overhead()), content...))
			}
			if err != nil {
				t.Fatal(err)
			}
			changed := bytes.Clone(sealed)
			bit := random.IntN(8 * len(changed))
			if i := bit / 8; i != 0 && i < recordLengthAt || i >= form.header() { // form and length are the gate's to check
				changed[i] ^= 1 << (bit % 8)
				if _, err := decrypt(changed); err == nil {
					t.Fatalf("%v: record opens though bit %d is changed", client, bit)
				}
			}
			opened, err := decrypt(sealed)
			if err != nil || opened[0] != dtlsData || string(opened[recordlayer.HeaderSize:]) != content {
				t.Fatalf("%v: record %d: %q, %v", client, i, opened, err)
			}
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 500 {
					if _, err := client.Encrypt(&recordlayer.RecordLayer{}, dtlsRecord(1, 0, "alert")); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if len(counter.seen) != 3000 {
			t.Errorf("%d nonces of 3,000 records", len(counter.seen))
		}
		if again, err := client.Decrypt(dtlsRecord(1, 1, "no tag")); err == nil {
			t.Errorf("%q opens", again)
		}
		if b, err := client.Encrypt(&recordlayer.RecordLayer{}, dtlsRecord(2, 1, "another epoch")); err == nil {
			t.Errorf("a record of epoch 2 is sealed: %x", b)
		}
		seal.next = maxSealed - 1
		if _, err := client.Encrypt(&recordlayer.RecordLayer{}, dtlsRecord(1, 0, "the last")); err != nil {
			t.Error(err)
		}
		if b, err := client.Encrypt(&recordlayer.RecordLayer{}, dtlsRecord(1, 0, "one too many")); err == nil {
			t.Errorf("a worn key seals: %x", b)
		}
		seal.next = 5000
		good, err := client.Encrypt(&recordlayer.RecordLayer{}, dtlsRecord(1, 0, "good"))
		if err != nil {
			t.Fatal(err)
		}
		server.keys.Load().open.forged = maxForged
		if b, err := decrypt(good); err == nil {
			t.Errorf("a key opens that has refused too much: %x", b)
		}
	}
}

// TestPlainPeerUnderstands: the tunnel's records are records of DTLS 1.2, so that pion's own record layer reads and
// writes them, also between its alerts. Pion's end of the connection brings the tunnel's packets back.
func TestPlainPeerUnderstands(t *testing.T) {
	plain, l := plainPeer(t, func(c *udp.Conn) net.Conn { return undisturbed{c} })
	e := datagram.New(datagram.Config{Overhead: (&recordForm{}).overhead(), MaxDatagram: 1200, Window: datagram.MaxRecord, Random: rand.New(rand.NewPCG(1, 1))})
	began := time.Now().Add(-time.Second)
	e.Queue(record(nil, header{kind: kindData, stream: 1}, []byte("from pion")...), datagram.Free)
	if _, err := l.Write(record(nil, header{kind: kindData, stream: 1}, []byte("from the tunnel")...)); err != nil {
		t.Fatal(err)
	}
	l.Flush()
	b := make([]byte, 2000)
	var got []byte
	for got == nil {
		for {
			packet, _ := e.Next(time.Since(began), make([]byte, 0, 2000))
			if packet == nil {
				break
			}
			if _, err := plain.Write(packet); err != nil {
				t.Fatal(err)
			}
		}
		plain.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := plain.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Handle(time.Since(began), b[:n], 0); err != nil {
			t.Fatal(err)
		}
		got = e.Take()
	}
	if string(got[headerLen:]) != "from the tunnel" {
		t.Errorf("%q came", got)
	}
	l.SetDeadline(time.Now().Add(time.Minute))
	got = make([]byte, headerLen+len("from pion"))
	if _, err := io.ReadFull(l, got); err != nil || string(got[headerLen:]) != "from pion" {
		t.Errorf("%q, %v", got, err)
	}
	plain.Close() // by an alert
	if _, err := l.Read(b); err != io.EOF {
		t.Errorf("after the other end's close: %v", err)
	}
}

// An undisturbed connection is read until it is closed. When pion's own end of a connection is closed, its reader, if
// it is disturbed, may close the connection below before the alert has left.
type undisturbed struct{ net.Conn }

func (undisturbed) SetReadDeadline(time.Time) error { return nil }

// plainPeer returns the two ends of a connection: pion's own, which dials, and the tunnel's. over wraps the dialer's
// datagrams.
func plainPeer(t *testing.T, over func(*udp.Conn) net.Conn) (plain *dtls.Conn, l Link) {
	t.Helper()
	id := identities(t, "paris", "tokyo")
	server, err := newDTLSTransport(&Config{Identity: id("tokyo"), Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := udp.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	accepted := make(chan Link, 1)
	go func() {
		defer close(accepted)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		if l, err := server.Secure(ctx, conn, false, func(string) error { return nil }); err != nil {
			t.Error(err)
		} else {
			accepted <- l
		}
	}()
	cert, err := tls.LoadX509KeyPair(id("paris").Cert, id("paris").Key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := udp.Dial(ctx, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	plain, err = dtls.ClientWithContext(ctx, over(conn), &dtls.Config{Certificates: []tls.Certificate{cert}, CipherSuites: []dtls.CipherSuiteID{},
		CustomCipherSuites:   func() []dtls.CipherSuite { return ofConnection(&dtlsSecrets{id: conn.ID()}) },
		ExtendedMasterSecret: dtls.RequireExtendedMasterSecret, InsecureSkipVerify: true, LoggerFactory: noLog{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plain.Close() })
	if l = <-accepted; l == nil {
		t.Fatal("the tunnel's end is not there")
	}
	t.Cleanup(func() { l.Close() })
	return plain, l
}

// A slowGate is a gate whose records leave late, once slow is set.
type slowGate struct {
	*recordGate
	slow atomic.Bool
}

func (g *slowGate) Write(p []byte) (int, error) {
	if g.slow.Load() {
		time.Sleep(20 * time.Millisecond)
	}
	return g.recordGate.Write(p)
}

// TestEndIsTold: the other end hears of the end of a connection, however late the alert that tells it leaves.
func TestEndIsTold(t *testing.T) {
	g := &slowGate{}
	plain, l := plainPeer(t, func(c *udp.Conn) net.Conn {
		g.recordGate = &recordGate{Conn: c}
		return g
	})
	g.secured.Store(true)
	g.slow.Store(true)
	plain.Close()
	l.SetDeadline(time.Now().Add(time.Minute))
	if _, err := l.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the other end's close: %v", err)
	}
}

// BenchmarkNonces seals a million records and reports how many nonces repeat.
func BenchmarkNonces(b *testing.B) {
	ranktest.Unwatched(b)
	const records = 1 << 20
	repeats := 0
	for b.Loop() {
		client, _ := suitePair(b, suiteAES256, connectionIDs["with an id"])
		seal := &client.keys.Load().seal
		seen := nonceSet{AEAD: seal.aead, seen: map[[suiteNonce]byte]bool{}}
		seal.aead = &seen
		raw := dtlsRecord(1, 0, "x")
		for range uint64(records) {
			if _, err := client.Encrypt(&recordlayer.RecordLayer{}, raw); err != nil {
				b.Fatal(err)
			}
		}
		repeats = records - len(seen.seen)
	}
	b.ReportMetric(float64(repeats), "repeats")
}

// A nonceSet is an AEAD that remembers its nonces.
type nonceSet struct {
	cipher.AEAD
	seen map[[suiteNonce]byte]bool
}

func (s *nonceSet) Seal(dst, nonce, content, data []byte) []byte {
	s.seen[[suiteNonce]byte(nonce)] = true
	return s.AEAD.Seal(dst, nonce, content, data)
}

// FuzzSuite: nothing but a sealed record opens.
func FuzzSuite(f *testing.F) {
	var fuzzed []func(t *testing.T, b []byte)
	for name, connection := range connectionIDs {
		client, server := suitePair(f, suiteChaCha20, connection)
		form := recordForm{id: connection}
		sealed, err := client.Encrypt(&recordlayer.RecordLayer{}, dtlsRecord(1, 5, "hello"))
		if err != nil {
			f.Fatal(name, err)
		}
		sealed = form.plain(sealed, dtlsData)
		fuzzed = append(fuzzed, func(t *testing.T, b []byte) {
			if _, err := server.Decrypt(bytes.Clone(b)); err == nil && b[0] != 20 && (!bytes.Equal(b[1:recordLengthAt], sealed[1:recordLengthAt]) || !bytes.Equal(b[dtlsHeader:], sealed[dtlsHeader:])) {
				t.Errorf("%x opens", b)
			}
		})
		f.Add(sealed[:len(sealed)-1])
		f.Add(sealed)
	}
	f.Add([]byte{20})
	f.Add([]byte{dtlsWithID})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, try := range fuzzed {
			try(t, b)
		}
	})
}

// An oldClient is a client's connection of datagrams on which it offers DTLS 1.0 at most.
type oldClient struct{ net.Conn }

func (c oldClient) Write(p []byte) (int, error) {
	const version = dtlsHeader + messageHeader // of a ClientHello: RFC 6347, 4.2.2
	p = bytes.Clone(p)
	if p[0] == dtlsHandshake && p[dtlsHeader] == 1 {
		copy(p[version:], []byte{254, 255})
	}
	return c.Conn.Write(p)
}

// TestDTLSRefuses: a peer without our suites, without a certificate, with one of another authority, or with an older
// version is refused.
func TestDTLSRefuses(t *testing.T) {
	id, other := identities(t, "paris", "tokyo"), identities(t, "paris")
	server, err := newDTLSTransport(&Config{Identity: id("tokyo"), Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	load := func(i Identity) tls.Certificate {
		c, err := tls.LoadX509KeyPair(i.Cert, i.Key)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const old = "DTLS 1.0"
	for name, change := range map[string]func(c *dtls.Config){
		"":                  func(*dtls.Config) {},
		"pion's suites":     func(c *dtls.Config) { c.CipherSuites, c.CustomCipherSuites = nil, nil },
		"no certificate":    func(c *dtls.Config) { c.Certificates = nil },
		"another authority": func(c *dtls.Config) { c.Certificates = []tls.Certificate{load(other("paris"))} },
		"no master secret":  func(c *dtls.Config) { c.ExtendedMasterSecret = dtls.DisableExtendedMasterSecret },
		old:                 func(*dtls.Config) {},
		"shared key": func(c *dtls.Config) {
			c.Certificates, c.CustomCipherSuites = nil, nil
			c.CipherSuites = []dtls.CipherSuiteID{dtls.TLS_PSK_WITH_AES_128_GCM_SHA256}
			c.PSK, c.PSKIdentityHint = func([]byte) ([]byte, error) { return []byte("secret"), nil }, []byte("paris")
		},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := udp.Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			result := make(chan error, 1)
			go func() {
				conn, err := ln.Accept()
				if err != nil {
					result <- err
					return
				}
				l, err := server.Secure(ctx, conn, false, func(string) error { return nil })
				if err == nil {
					l.Close()
				}
				conn.Close()
				result <- err
			}()
			conn, err := udp.Dial(ctx, ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			c := &dtls.Config{Certificates: []tls.Certificate{load(id("paris"))}, CipherSuites: []dtls.CipherSuiteID{},
				CustomCipherSuites:   func() []dtls.CipherSuite { return ofConnection(&dtlsSecrets{id: conn.ID()}) },
				ExtendedMasterSecret: dtls.RequireExtendedMasterSecret, InsecureSkipVerify: true, LoggerFactory: noLog{}}
			change(c)
			over := net.Conn(conn)
			if name == old {
				over = oldClient{conn}
			}
			d, err := dtls.ClientWithContext(ctx, over, c)
			if err == nil {
				defer d.Close()
			}
			select {
			case err = <-result:
			case <-ctx.Done():
				t.Fatal("the server neither takes nor refuses it")
			}
			if (err == nil) != (name == "") || name == old && !strings.Contains(err.Error(), "version") {
				t.Errorf("the server says %v", err)
			}
		})
	}
}

// TestDTLSStreamsSurvive: streams lose nothing when carriers end under them.
func TestDTLSStreamsSurvive(t *testing.T) {
	paris, _ := pairOver(t, CarrierDTLS, echo, nil)
	s, err := paris.Open(context.Background(), "tokyo", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := make([]byte, 8<<20)
	for i := range data {
		data[i] = byte(i * 11 >> 4)
	}
	go func() {
		for i := 0; i < len(data); i += 1 << 20 {
			s.Write(data[i : i+1<<20])
			p := paris.list()[0].session()
			p.mu.Lock()
			if len(p.carriers) > 1 { // one goes on, so that the test needs no new one at once
				p.carriers[0].link.(*dtlsLink).Conn.Close()
			}
			p.mu.Unlock()
			time.Sleep(20 * time.Millisecond)
		}
		s.CloseWrite()
	}()
	got, err := io.ReadAll(s)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes came back of %d, err %v", len(got), len(data), err)
	}
}

// dtlsPair returns the two ends of a carrier over DTLS.
func dtlsPair(t *testing.T) (near, far *dtlsLink) {
	t.Helper()
	return dtlsPairBy(t, func(address string) string { return address })
}

// dtlsPairBy is dtlsPair where the listener at an address is dialed at another one.
func dtlsPairBy(t *testing.T, by func(address string) string) (near, far *dtlsLink) {
	t.Helper()
	id := identities(t, "paris", "tokyo")
	ln, err := udp.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	secure := func(site string, conn net.Conn, dialed bool) (Link, error) {
		transport, err := newDTLSTransport(&Config{Identity: id(site), Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		return transport.Secure(ctx, conn, dialed, func(string) error { return nil })
	}
	accepted := make(chan Link, 1)
	go func() {
		defer close(accepted)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		if l, err := secure("tokyo", conn, false); err != nil {
			t.Error(err)
		} else {
			accepted <- l
		}
	}()
	conn, err := udp.Dial(ctx, by(ln.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := secure("paris", conn, true)
	if err != nil {
		t.Fatal(err)
	}
	there := <-accepted
	if there == nil {
		t.Fatal("the other end is not there")
	}
	near, far = l.(*dtlsLink), there.(*dtlsLink)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// TestEndOfHandshakeIsLost: the accepting side, for which the handshake is over, answers the dialing side that repeats
// its messages in clear since the last answer was lost.
func TestEndOfHandshakeIsLost(t *testing.T) {
	lost := make(chan bool, 1)
	near, far := dtlsPairBy(t, func(address string) string {
		relay, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server, err := net.Dial("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { relay.Close(); server.Close() })
		var client atomic.Pointer[net.Addr]
		go func() {
			b := make([]byte, 9000)
			for {
				n, from, err := relay.ReadFrom(b)
				if err != nil {
					return
				}
				client.Store(&from)
				server.Write(b[:n])
			}
		}()
		go func() {
			b := make([]byte, 9000)
			for {
				n, err := server.Read(b)
				if err != nil {
					return
				}
				if bytes.Contains(b[:n], []byte{dtlsHandshake, 254, 253, 0, 1, 0, 0, 0, 0, 0, 0}) && len(lost) == 0 { // its first message under the keys
					lost <- true
					continue
				}
				relay.WriteTo(b[:n], *client.Load())
			}
		}()
		return relay.LocalAddr().String()
	})
	if len(lost) == 0 {
		t.Error("nothing was lost")
	}
	record := header{kind: kindHello}.append(nil)
	if _, err := near.Write(record); err != nil {
		t.Fatal(err)
	}
	near.Flush()
	if _, err := io.ReadFull(far, make([]byte, len(record))); err != nil {
		t.Error(err)
	}
}

// TestEndOfHandshakeOvertakes: a handshake succeeds, and data that follows it arrives, though at either end the records
// under the key, of which the dialing side's carry the connection's id, come before the messages that make the keys.
func TestEndOfHandshakeOvertakes(t *testing.T) {
	var overtakes atomic.Bool
	near, far := dtlsPairBy(t, func(address string) string {
		relay, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		server, err := net.Dial("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { relay.Close(); server.Close() })
		var client atomic.Pointer[netip.AddrPort]
		go func() {
			b := make([]byte, 64<<10)
			for {
				n, from, err := relay.ReadFromUDPAddrPort(b)
				if err != nil {
					return
				}
				client.Store(&from)
				keyed, others := apart(b[:n])
				if len(keyed) > 0 && len(others) > 0 {
					overtakes.Store(true)
				}
				for _, d := range append(keyed, others...) {
					server.Write(d)
				}
			}
		}()
		go func() {
			b := make([]byte, 64<<10)
			for {
				n, err := server.Read(b)
				if err != nil {
					return
				}
				keyed, others := apart(b[:n])
				for _, d := range append(keyed, others...) {
					relay.WriteToUDPAddrPort(d, *client.Load())
				}
			}
		}()
		return relay.LocalAddr().String()
	})
	if !overtakes.Load() {
		t.Error("no record under the key was beside others: the test shows nothing")
	}
	passes(t, near, far, "there")
	passes(t, far, near, "and back")
}

// apart returns the records of a datagram that are under a key, and the others, or a message of package udp.
func apart(b []byte) (keyed, others [][]byte) {
	form := recordForm{id: make([]byte, udp.IDLen)}
	for len(b) > 0 {
		length := len(b)
		if b[0] >= dtlsCipherSpec {
			length = min(form.length(b), length)
		}
		if length >= dtlsHeader && b[0] >= dtlsCipherSpec && b[epochAt+1] == dataEpoch {
			keyed = append(keyed, b[:length])
		} else {
			others = append(others, b[:length])
		}
		b = b[length:]
	}
	return keyed, others
}

// TestRecordsInClearEndNothing: records that anybody can send under the peer's address leave a carrier as it is.
func TestRecordsInClearEndNothing(t *testing.T) {
	near, far := dtlsPair(t)
	clear := func(kind byte, epoch uint16, content string) []byte {
		b := dtlsRecord(epoch, 1<<40, content)
		b[0] = kind
		return b
	}
	const alert, data = 21, 23
	var all []byte
	for name, b := range map[string][]byte{
		"a fatal alert":                    clear(alert, 0, "\x02\x28"),
		"an end":                           clear(alert, 0, "\x01\x00"),
		"data":                             clear(data, 0, "hello"),
		"an unknown type":                  clear(99, 0, "hello"),
		"an empty alert":                   clear(alert, 0, ""),
		"a change of ciphers":              clear(dtlsCipherSpec, 0, "\x01"),
		"a broken change of ciphers":       clear(dtlsCipherSpec, 0, "hello"),
		"a change of ciphers, later":       clear(dtlsCipherSpec, 1, "\x01"),
		"a broken one, later":              clear(dtlsCipherSpec, 1, ""),
		"a message of the handshake":       clear(dtlsHandshake, 0, "\x0e\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00"),
		"a broken one":                     clear(dtlsHandshake, 0, "hello"),
		"data that is not authentic":       clear(data, 1, strings.Repeat("hello", 10)),
		"an alert that is not authentic":   clear(alert, 1, strings.Repeat("hello", 10)),
		"a record that is cut off":         clear(alert, 0, "\x02\x28")[:14],
		"a header that is cut off":         clear(alert, 0, "")[:9],
		"something that is no record":      []byte("hello"),
		"data of an epoch that is to come": clear(data, 2, strings.Repeat("hello", 10)),
	} {
		all = append(all, b...)
		for _, way := range []struct{ from, to *dtlsLink }{{near, far}, {far, near}} {
			for _, datagram := range [][]byte{b, all} {
				if _, err := way.from.mover.(*udp.Conn).Write(datagram); err != nil {
					t.Fatal(err)
				}
			}
			record := append(header{kind: kindHello, length: len(name)}.append(nil), name...)
			if _, err := way.from.Write(record); err != nil {
				t.Fatalf("%s: Write: %v", name, err)
			}
			if err := way.from.Flush(); err != nil {
				t.Fatalf("%s: Flush: %v", name, err)
			}
			got := make([]byte, len(record))
			way.to.SetDeadline(time.Now().Add(time.Minute))
			if _, err := io.ReadFull(way.to, got); err != nil || !bytes.Equal(got, record) {
				t.Fatalf("after %s: %v", name, err)
			}
		}
	}
}

// TestOnlyPacketsAreSignsOfLife: datagrams that anybody can send do not make a carrier look alive.
func TestOnlyPacketsAreSignsOfLife(t *testing.T) {
	near, far := dtlsPair(t)
	time.Sleep(50 * time.Millisecond) // the ends of the handshake pass
	before := near.State()
	for _, b := range [][]byte{[]byte("hello"), dtlsRecord(0, 1<<40, "hello"), dtlsRecord(1, 1<<40, strings.Repeat("hello", 10))} {
		if _, err := far.mover.(*udp.Conn).Write(b); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond) // they arrive
	if after := near.State(); after.Received != before.Received || after.Silence < before.Silence {
		t.Errorf("before: %+v, after: %+v", before, after)
	}
	record := header{kind: kindHello}.append(nil)
	if _, err := far.Write(record); err != nil {
		t.Fatal(err)
	}
	far.Flush()
	if _, err := io.ReadFull(near, make([]byte, len(record))); err != nil || near.State().Received == before.Received {
		t.Errorf("a packet is no sign of life: %v, %+v", err, near.State())
	}
}

// TestGateAfterTheHandshake: the records that pass are whole, and in order.
func TestGateAfterTheHandshake(t *testing.T) {
	record := func(kind byte, epoch uint16, content string) string {
		b := dtlsRecord(epoch, 7, content)
		b[0] = kind
		return string(b)
	}
	hello, finished, forged := record(dtlsHandshake, 0, "hello"), record(dtlsHandshake, 1, "finished"), record(dtlsData, 1, "data")
	change, alert, keyed := record(dtlsCipherSpec, 0, "\x01"), record(dtlsAlert, 0, "\x02\x28"), record(dtlsAlert, 1, "alert")
	for datagram, want := range map[string][2]string{ // while the handshake may go on at the other end, and afterwards
		"":                        {"", ""},
		forged:                    {"", ""},
		hello + change + finished: {finished, ""},
		alert:                     {"", ""},
		alert + keyed + alert:     {keyed, ""}, // an alert that is not authentic: TestGateLetsRecordsPass has others
		keyed + finished[:15]:     {keyed, ""},
		keyed + "x":               {keyed, ""},
		keyed + forged + keyed:    {keyed + keyed, ""},
		// Ciphers change once, in clear, before the handshake ends.
		record(dtlsCipherSpec, 1, "\x01") + keyed: {keyed, ""},
	} {
		for i, settled := range []bool{false, true} {
			g, _, came := gated(t, nil)
			g.settled.Store(settled)
			p := make([]byte, 1000)
			n, err := g.admit(p, []byte(datagram), 0)
			g.handOn()
			if err != nil || string(p[:n]) != want[i] || len(*came) > 0 {
				t.Errorf("of %q passes %q, %v, and %q comes; want %q", datagram, p[:n], err, *came, want[i])
			}
		}
	}
}

// TestGateBeforeOpenBy: no record in clear passes between the end of the handshake and openBy.
func TestGateBeforeOpenBy(t *testing.T) {
	var g recordGate
	g.secured.Store(true)
	g.settled.Store(true)
	keyed := dtlsRecord(1, 5, strings.Repeat("x", 50)) // it is pion's to find out that it is not authentic
	keyed[0] = dtlsAlert
	p := make([]byte, 1000)
	if n, err := g.admit(p, append(plaintext(dtlsAlert, 5, 2, 40), keyed...), 0); err != nil || !bytes.Equal(p[:n], keyed) {
		t.Errorf("%x passes, %v; want %x", p[:n], err, keyed)
	}
}

// TestGateTellsTypesApart: of records whose type is encrypted, the end of the handshake passes while the handshake may
// go on at the other end, alerts pass at all times, and data never. Records under the key without the connection's id,
// or with another one, do not pass. Before there are keys, each passes with the connection's id, since it ends the
// handshake; once there are keys, only authentic ones do, and data waits.
func TestGateTellsTypesApart(t *testing.T) {
	connection := connectionIDs["with an id"]
	const early, keyed, secured, settled = 0, 1, 2, 3
	for _, kind := range []byte{dtlsHandshake, dtlsAlert, dtlsData, dtlsRouting, dtlsCipherSpec, 99} {
		for stage := early; stage <= settled; stage++ {
			g, seal, came := gated(t, connection)
			b := sealed(t, seal, kind, "content")
			other := bytes.Clone(b)
			other[recordLengthAt]++
			forged := bytes.Clone(b)
			forged[len(forged)-1]++
			later := dtlsRecord(256, 5, strings.Repeat("x", 50)) // of an epoch whose low byte is 0
			later[0] = dtlsHandshake
			clear := dtlsRecord(0, 5, strings.Repeat("x", 50))
			want := kind == dtlsHandshake && stage != settled || kind == dtlsAlert
			as := kind
			refused := [][]byte{dtlsRecord(1, 5, strings.Repeat("x", 50)), other, forged, later, clear, (&recordForm{id: connection}).whole(clear)}
			if stage <= keyed {
				g = &recordGate{form: g.form, secrets: g.secrets}
			}
			if stage == early {
				g.secrets = &dtlsSecrets{id: connection}
				want, as, refused[2] = true, dtlsHandshake, other
			}
			g.settled.Store(stage == settled)
			for i, b := range append(refused, b) {
				p := make([]byte, 1000)
				sent := bytes.Clone(b)
				n, err := g.admit(p, b, 0)
				g.handOn()
				switch passes := want && i == len(refused); {
				case err != nil:
					t.Fatal(err)
				case passes != (n > 0), passes && !bytes.Equal(p[:n], g.form.plain(sent, as)):
					t.Errorf("stage %d: of %x of type %d passes %x", stage, sent, kind, p[:n])
				}
			}
			if data := len(*came) > 0; data != (kind == dtlsData && stage >= secured) {
				t.Errorf("stage %d: of a record of type %d the data %q comes", stage, kind, *came)
			}
			if waits := len(g.early) > 0; waits != (kind == dtlsData && stage == keyed) {
				t.Errorf("stage %d: of a record of type %d %d records wait", stage, kind, len(g.early))
			}
		}
	}
}

// TestGateKeepsRecordsWhole: of a record that is cut off anywhere nothing passes, and of records for which pion has too
// little room only the first ones do. One without content is whole.
func TestGateKeepsRecordsWhole(t *testing.T) {
	for name, connection := range connectionIDs {
		g, seal, came := gated(t, connection)
		for _, kind := range []byte{dtlsData, dtlsAlert, dtlsRouting} {
			b := sealed(t, seal, kind, "content")
			for n := range b {
				p := make([]byte, 1000)
				passed, err := g.admit(p, bytes.Clone(b[:n]), 0)
				g.handOn()
				if passed > 0 || err != nil || len(*came) > 0 || g.open.worth(b[:n]) {
					t.Errorf("%s: of %d bytes of %d, type %d, pass %x, %v, data %q", name, n, len(b), kind, p[:passed], err, *came)
				}
			}
		}
		one, two := sealed(t, seal, dtlsAlert, "one"), sealed(t, seal, dtlsAlert, "two")
		want := g.form.plain(one, dtlsAlert)
		p := make([]byte, 2*len(want)-1)
		if n, err := g.admit(p, append(one, two...), 0); err != nil || !bytes.Equal(p[:n], want) {
			t.Errorf("%s: into %d bytes pass %x, %v; want %x", name, len(p), p[:n], err, want)
		}
		empty := dtlsRecord(0, 5, "")
		empty[0] = dtlsAlert
		if n, err := (&recordGate{form: g.form}).admit(p, empty, 0); n != len(empty) || err != nil {
			t.Errorf("%s: of a record without content pass %d bytes, %v", name, n, err)
		}
	}
}

// TestLongRecordsAreNotForPion: a record whose type is encrypted reaches pion only if it is no longer than the ones
// that pion makes after its keys.
func TestLongRecordsAreNotForPion(t *testing.T) {
	g, seal, _ := gated(t, connectionIDs["with an id"])
	for n, passes := range map[int]bool{maxControl: true, maxControl + 1: false} {
		b := sealed(t, seal, dtlsAlert, strings.Repeat("x", n-seal.overhead()))
		if k, err := g.admit(make([]byte, 1000), b, 0); err != nil || passes != (k > 0) {
			t.Errorf("of an alert of %d bytes pass %d, %v", n, k, err)
		}
	}
}

// TestDTLSDatagramsGrow: datagrams become as large as both DTLS and the path carry, loopback more than that.
func TestDTLSDatagramsGrow(t *testing.T) {
	near, far := dtlsPair(t)
	go io.Copy(io.Discard, far)
	record := append(header{kind: kindHello, length: 60_000}.append(nil), make([]byte, 60_000)...)
	for until := time.Now().Add(time.Minute); ; {
		near.SetDeadline(until)
		if _, err := near.Write(record); err != nil {
			t.Fatal(err)
		}
		if err := near.Flush(); err != nil {
			near.mu.Lock()
			defer near.mu.Unlock()
			t.Fatalf("%v with datagrams of %d bytes", err, near.engine.State().Datagram)
		}
		near.mu.Lock()
		size := near.engine.State().Datagram
		near.mu.Unlock()
		if size == dtlsDatagramBytes {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("datagrams of %d bytes after a minute", size)
		}
	}
}

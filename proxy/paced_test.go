package proxy

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/codecs/reference"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// While another peer has a connection, a hostile peer's connections and its values wait for the peer's turn at the
// processors, and for its allowance of decoded bytes.
func TestHostilePeerIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chosen, err := policy.New(nil, testCodecs)
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(Config{Codecs: testCodecs, Workers: 1, Values: 64 << 20, Settings: Settings{Policy: chosen},
			Open: func(context.Context, string, []byte) (Stream, error) { return nil, tunnel.ErrPeerDown }})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		const hostile = "mallory"
		of := p.quotas.Of(hostile)
		leave := p.quotas.Enter(p.quotas.Of("honest"))
		defer leave()
		busy := p.quotas.Schedule(of)
		overdraws := func() { // beside another connection
			defer p.quotas.Enter(of)()
			gone := make(chan struct{})
			close(gone)
			of.Pace(0, 1<<30, gone)
		}

		o := frame.Opening{Client: netip.MustParseAddrPort("10.0.0.1:1000"), Server: netip.MustParseAddrPort("10.0.1.1:1000"), Tag: 1}
		end, _ := connectWays(wansim.Link{}, wansim.Link{}, o.Client, o.Server)
		k := p.begin(app.InProcess(end), pathtest.NewFeed(), hostile, p.config.Log, o, parser.Server, noCalls, func() {})
		passage := k.newPassage()
		for how, c := range map[string]*path.Conn{"a connection": k.conn, "a connection that was at rest": p.resumed(k.conn, pathtest.NewFeed())} {
			ends := busy()
			begin := time.Now()
			c.Schedule()()
			if time.Since(begin) == 0 {
				t.Errorf("%s works beside another one of its peer, on one processor", how)
			}
			ends()
			overdraws()
			begin = time.Now()
			c.Pace(4, 1<<20, nil)
			if time.Since(begin) == 0 {
				t.Errorf("%s decodes more than its peer's allowance", how)
			}
		}
		passage.release()
		p.live.Leave(k.seat)
		k.leave()
		time.Sleep(time.Hour) // until the allowance is whole

		const size = 1 << 20
		c, err := testCodecs("lossless")
		if err != nil {
			t.Fatal(err)
		}
		mine := reference.NewCopy(size, 0)
		encoder, err := reference.NewEncoder(c, tensor.Float32, mine, mine)
		if err != nil {
			t.Fatal(err)
		}
		declare, _ := pathtest.RawBlock(0, size)
		value := func() []byte {
			body, err := encoder.Append([]byte{frame.FormCoded}, make([]byte, size))
			if err != nil || len(body) > size/100 {
				t.Fatalf("%d bytes, %v", len(body), err)
			}
			return frame.Append(nil, frame.Frame{Kind: frame.Block, Body: body})
		}
		received := func() int64 {
			synctest.Wait()
			return p.cache.Peer(hostile).Stats().Received
		}
		feed := pathtest.NewFeed()
		over := make(chan struct{})
		go p.Accept(hostile, []byte{frame.OpeningValues, 1}, new(refusals), func() Stream { return feed }, func() { close(over) })
		synctest.Wait()
		ends := busy()
		feed.Feed(declare, value())
		if received() > 0 {
			t.Error("a value is taken beside other work of its peer, on one processor")
		}
		ends()
		time.Sleep(time.Hour)
		if n := received(); n != 1 {
			t.Fatalf("%d values were taken, want 1", n)
		}
		overdraws()
		feed.Feed(value())
		if received() > 1 {
			t.Error("a value is decoded beyond its peer's allowance")
		}
		time.Sleep(time.Hour)
		if n := received(); n != 2 {
			t.Errorf("%d values were taken, want 2", n)
		}
		feed.Reset(0)
		<-over
	})
}

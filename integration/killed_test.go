//go:build linux

package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/testbed"
	"github.com/gradproxy/gradproxy/proxy/app"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// The apps of a proxy that is killed read a reset, never an orderly end, with part of the bytes behind them, in
// redirect and on gateways (tproxy), at both sites; and so does an app whose connection was still being opened.
func TestKilledProxyResetsInEachMode(t *testing.T) {
	for mode, lay := range map[string]func(*testing.T, int, wansim.Link) *testbed.WAN{"redirect": newWAN, "tproxy": newGateways} {
		for killed := range 2 {
			t.Run(fmt.Sprintf("%s/killed=%d", mode, killed), func(t *testing.T) {
				t.Parallel() // it waits most of the time
				w := lay(t, 2, lan)
				ps := startProxies(t, w, testbed.Config{OnDeath: "hold", Resume: "3s"})
				from, to := w.Sites[0], w.Sites[1]
				client, server := connect(t, from, to, to.Addr)
				go client.Write(make([]byte, 4<<20)) // more than buffers hold, since the server reads some of it only
				if _, err := io.ReadFull(server, make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
				// Nothing listens there: the far proxy dials again and again, and this connection waits.
				waiting, err := from.Dial(deadline(t, time.Minute), "tcp", netip.AddrPortFrom(to.Addr, 2000).String())
				if err != nil {
					t.Fatal(err)
				}
				defer waiting.Close()
				ps[killed].Kill()
				ends := map[string]*net.TCPConn{"client": client, "server": server}
				if killed == 0 {
					ends["waiting client"] = waiting.(*net.TCPConn)
				}
				for name, c := range ends {
					c.SetReadDeadline(time.Now().Add(time.Minute))
					n, err := io.Copy(io.Discard, c)
					if err == nil && app.ClosedByReset(c) {
						continue // a write has used up the error
					}
					if !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("the %s reads %d bytes and then %v, want a reset", name, n, err)
					}
				}
			})
		}
	}
}

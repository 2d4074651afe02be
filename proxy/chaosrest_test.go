package proxy

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/handover"
	"github.com/gradproxy/gradproxy/proxy/path"
)

// Connections come to rest again and again, at either site or both at once, and go on in the same process or in another
// one, while the faults of TestChaos happen: every promise of TestChaos holds.
func TestChaosAtRest(t *testing.T) {
	seeds := uint64(12)
	if os.Getenv(require.LongVariable) != "" {
		seeds = 200
	}
	rests, moves := 0, 0
	for seed := *chaosFirst; seed < *chaosFirst+seeds; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			row := chaosRow{Seed: seed}
			synctest.Test(t, func(t *testing.T) {
				h := newChaos(t, seed)
				for i := range h.sites {
					r := rand.New(rand.NewPCG(seed, uint64(100+i)))
					h.job.Go(func() {
						for k := range 8 {
							pause(r, 6*time.Second)
							s, changes := h.sites[i], false
							if k%2 == 0 {
								changes = s.rests(r)
							} else if changes = s.replaced(h); changes {
								h.mu.Lock()
								moves++
								h.mu.Unlock()
							}
							if changes {
								h.mu.Lock()
								rests++
								h.mu.Unlock()
							}
						}
					})
				}
				h.play()
				h.judge(&row)
			})
		})
	}
	if rests < int(seeds) || moves < int(seeds) {
		t.Errorf("connections came to rest %d times in %d seeds, %d times for another process: the test shows little", rests, seeds, moves)
	}
	t.Logf("connections came to rest %d times, %d times for another process", rests, moves)
}

// rests brings the connections of a site to rest for a while, and reports whether it could.
func (s *chaosSite) rests(r *rand.Rand) bool {
	n := s.live.Load()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	at, err := n.proxy.HandOver(ctx)
	if err != nil {
		return false
	}
	pause(r, time.Second)
	at.CarryOn()
	return true
}

// A lentConn is a descriptor of the proxy's end of an app's connection. Once another process has one too it can be
// closed without an effect.
type lentConn struct {
	*wayConn
	lent atomic.Bool
}

func (c *lentConn) Close() error {
	if c.lent.Load() {
		return nil
	}
	return c.wayConn.Close()
}

func (c *lentConn) SetLinger(sec int) error {
	if c.lent.Load() {
		return nil
	}
	return c.wayConn.SetLinger(sec)
}

// holds returns the proxy's end of an app's connection, by which replaced finds its descriptor.
func (n *incarnation) holds(end *lentConn) *app.Conn {
	c := app.InProcess(end)
	n.lent.Store(c, end)
	return c
}

// A takenOver is a connection that another process has handed over.
type takenOver struct {
	end  *lentConn
	seat *handover.Seat
	fin  bool
}

// replaced has another process take the place of a site's, and reports whether it could.
func (s *chaosSite) replaced(h *chaos) bool {
	s.dying <- struct{}{}
	defer func() { <-s.dying }()
	old := s.live.Load()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	at, err := old.proxy.HandOver(ctx)
	if err != nil {
		return false
	}
	s.taken = nil
	old.proxy.live.Each(func(x *handover.Seat, at handover.Conn) {
		c := at.(*path.Conn)
		if c.Aborted() {
			return
		}
		end, _ := old.lent.Load(c.App)
		lent := end.(*lentConn)
		lent.lent.Store(true)
		s.taken = append(s.taken, takenOver{&lentConn{wayConn: lent.wayConn}, x, c.FINSent()})
	})
	var saved bytes.Buffer
	if err := old.proxy.Residuals().Save(&saved); err != nil {
		h.wrongly("residuals are not saved: %v", err)
	}
	h.mu.Lock()
	s.saved = saved.Bytes()
	h.mu.Unlock()
	at.Leave()
	old.mu.Lock()
	apps := old.apps
	old.apps = map[*wayConn]bool{}
	old.mu.Unlock()
	old.stop(false)
	s.start()
	n := s.live.Load()
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range apps {
		n.apps[c] = true
	}
	return true
}

// adopt carries on the connections that another process has handed over.
func (n *incarnation) adopt() {
	for _, x := range n.site.taken {
		n.runs.Add(1)
		sits := make(chan struct{})
		go func() {
			defer n.runs.Done()
			log := n.site.h.log.With("site", n.site.name, "server", x.seat.Opening.Server)
			own := parser.Server
			if x.seat.Opener {
				own = parser.Client
			}
			k := n.proxy.resume(n.holds(x.end), x.seat.Key.Peer, log, x.seat.Opening, own, x.fin, func() {})
			close(sits)
			if k != nil {
				k.run()
			}
			app.Reset(x.end)
		}()
		<-sits
	}
	n.site.taken = nil
}

package quota

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// While two peers have connections, one that sends a few bytes for megabytes has them decoded at its allowance; one
// whose bytes decode to a few times their number, and one that is alone, wait for nothing.
func TestDecodingIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := Quotas{cores: 2}
		mallory, honest := q.Of("mallory"), q.Of("honest")
		leave := q.Enter(mallory)
		took := func(x *Quota, blocks, encoded, decoded int) time.Duration {
			begin := time.Now()
			for range blocks {
				x.Pace(encoded, decoded, nil)
			}
			return time.Since(begin)
		}
		if d := took(mallory, 1000, 4, 16<<20); d != 0 {
			t.Errorf("a peer that is alone waited %v", d)
		}
		leaveHonest := q.Enter(honest)
		const blocks, size = 64, 16 << 20
		d := took(mallory, blocks, 4, size)
		if rate := float64(blocks*size-decodeBurst) / d.Seconds(); rate > 2*decodeRate*1.01 || rate < 2*decodeRate*0.9 {
			t.Errorf("%d MiB of 4-byte blocks took %v", blocks*size>>20, d)
		}
		if d := took(honest, 1000, 1<<20, 16<<20); d != 0 {
			t.Errorf("a peer whose bytes decode to 16 times as many waited %v", d)
		}
		gone := make(chan struct{})
		close(gone)
		begin := time.Now()
		mallory.Pace(4, 1<<40, gone)
		if d := time.Since(begin); d != 0 {
			t.Errorf("an ended connection waited %v", d)
		}
		q.Enter(honest)()
		q.Enter(mallory)()
		if d := took(mallory, 1, 4, size); d == 0 {
			t.Error("after the last but one connection of each it waited for nothing")
		}
		leaveHonest()
		if d := took(mallory, 1, 4, 1<<40); d != 0 {
			t.Errorf("after the other's last connection it waited %v", d)
		}
		leave()
		if n := q.busy.Load(); n != 0 {
			t.Errorf("%d peers have connections, where all have left", n)
		}
	})
}

// While two peers have connections, each frame is worked on in its peer's turn; one that is alone waits for none.
func TestPeersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(1, 1<<20)
		mallory, honest := q.Of("mallory"), q.Of("honest")
		defer q.Enter(mallory)()
		first, second, other := q.Schedule(mallory), q.Schedule(mallory), q.Schedule(honest)
		waits := func(begin func() func()) time.Duration {
			at := time.Now()
			begin()()
			return time.Since(at)
		}
		end := first()
		if d := waits(second); d != 0 {
			t.Errorf("a connection of a peer that is alone waited %v for another", d)
		}
		end()
		defer q.Enter(honest)()
		defer first()()
		if d := waits(other); d != 0 {
			t.Errorf("the first connection of another peer waited %v", d)
		}
		if d := waits(second); d != lapse {
			t.Errorf("a second connection of the same peer waited %v for the only processor, want %v", d, lapse)
		}
	})
}

// Dials that are repeated for a peer go through at once up to a burst, then at a rate, whatever another peer's do. Ones
// that are given up take nothing from the others.
func TestRepeatedDialsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := Quotas{cores: 2}
		mallory, honest := q.Of("mallory"), q.Of("honest")
		ended, end := context.WithCancel(t.Context())
		end()
		took := func(x *Quota, ctx context.Context, dials int) time.Duration {
			begin := time.Now()
			for range dials {
				x.AwaitDial(ctx)
			}
			return time.Since(begin)
		}
		if d := took(mallory, t.Context(), DialBurst); d != 0 {
			t.Errorf("the burst took %v", d)
		}
		if d := took(mallory, ended, 1000); d != 0 {
			t.Errorf("dials that were given up took %v", d)
		}
		if d, want := took(mallory, t.Context(), DialRate), time.Second; (d - want).Abs() > time.Millisecond {
			t.Errorf("%d dials after the burst took %v, want %v", DialRate, d, want)
		}
		if d := took(honest, t.Context(), DialBurst); d != 0 {
			t.Errorf("another peer's burst took %v", d)
		}
	})
}

package wansim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A TUN is a link between two network namespaces: a TUN device in each, and this process between them, which reads each
// packet that one kernel sends, holds it as long as its Link says and gives it to the other kernel. It is safe for
// concurrent use.
//
// Up to 500 Mbit/s, and wherever packets are lost at random, packets are as on the wire, at most 1500 bytes. Above that
// TCP segments cross joined (TSO), up to 64 KiB at once, since the processor could not keep up otherwise: delay and
// rate stay exact, but the queue takes or drops them as one.
type TUN struct {
	ab, ba *direction
	stop   int // an eventfd, readable once the link is to end
	end    context.CancelFunc
	done   chan struct{} // closed once the link has ended
	err    error         // valid then
}

// ConnectNamespaces lays a link between a and b: ab is the direction from a to b, ba the one back. It ends with Close
// or with ctx, and its devices with it, also when the process dies. Needs root.
func ConnectNamespaces(ctx context.Context, a, b NamespaceEnd, ab, ba Link) (*TUN, error) {
	if err := errors.Join(ab.Validate(), ba.Validate()); err != nil {
		return nil, err
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("wansim: eventfd: %w", err)
	}
	fdA, err := openTUN(a, joins(ab))
	if err != nil {
		unix.Close(stop)
		return nil, err
	}
	fdB, err := openTUN(b, joins(ba))
	if err != nil {
		unix.Close(stop)
		unix.Close(fdA)
		return nil, err
	}
	epoch := time.Now()
	t := &TUN{
		ab:   &direction{in: fdA, out: fdB, stop: stop, epoch: epoch, path: NewPath(ab)},
		ba:   &direction{in: fdB, out: fdA, stop: stop, epoch: epoch, path: newPath(ba, 1)},
		stop: stop,
		done: make(chan struct{}),
	}
	ctx, t.end = context.WithCancel(ctx)
	go t.run(ctx)
	return t, nil
}

// run forwards until ctx ends or a direction fails, and then removes the devices.
func (t *TUN) run(ctx context.Context) {
	defer close(t.done)
	woken := make(chan struct{})
	forget := context.AfterFunc(ctx, func() { t.wake(); close(woken) })
	var both sync.WaitGroup
	var errs [2]error
	for i, d := range []*direction{t.ab, t.ba} {
		both.Go(func() {
			errs[i] = d.forward()
			t.wake() // one direction alone is no link
		})
	}
	both.Wait()
	if !forget() {
		<-woken // before its descriptor is closed
	}
	t.err = errors.Join(errs[0], errs[1], t.ab.close(), t.ba.close(), unix.Close(t.stop))
}

// wake makes both directions return.
func (t *TUN) wake() {
	unix.Write(t.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// Close ends the link, with the packets on it, and removes its devices. It returns the error that ended the link, if
// one did.
func (t *TUN) Close() error {
	t.end()
	<-t.done
	return t.err
}

// Done is closed when the link has ended.
func (t *TUN) Done() <-chan struct{} { return t.done }

// Stats returns the counts of the link so far.
func (t *TUN) Stats() Stats {
	return Stats{AB: t.ab.stats(), BA: t.ba.stats()}
}

// SetLink changes both directions while the link is up, from the next packet on; packets on their way arrive as they
// would have. Loss 1 makes a black hole.
func (t *TUN) SetLink(ab, ba Link) error {
	if err := errors.Join(ab.Validate(), ba.Validate()); err != nil {
		return err
	}
	return errors.Join(t.ab.set(ab), t.ba.set(ba))
}

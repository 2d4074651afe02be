package tc

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Supported finds out the features of the running kernel, by trying them on the loopback device of a network namespace
// of its own, which is gone when it returns. Needs root.
func Supported() (Support, error) {
	type answer struct {
		s   Support
		err error
	}
	result := make(chan answer, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: thread and namespace end with this goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- answer{err: fmt.Errorf("tc: make a network namespace to try the kernel in: %w: run as root", err)}
			return
		}
		s, err := try()
		result <- answer{s, err}
	}()
	a := <-result
	return a.s, a.err
}

// try tries on lo of the thread's namespace, which is new.
func try() (s Support, err error) {
	lo := Device{Name: "lo"}
	root := Place{Device: lo, Parent: Root, Handle: outer, Overhead: -EthernetHeader}
	class := HTBClass{Device: lo, Parent: outer, Class: NewHandle(1, 1), Rate: 1e6, Ceil: 1e6, Burst: 3000}
	match := Match{Device: lo, Parent: outer, Pref: 1, To: netip.MustParsePrefix("0.0.0.0/0"), Class: class.Class}
	for _, t := range []struct {
		has  *bool
		plan Plan
	}{
		{&s.TBF, Plan{TBF{Place: root, Rate: 1e6, Burst: 3000, Limit: 30000}}},
		{&s.HTB, Plan{HTB{Place: root}, class, match}},
		{&s.Netem, Plan{Netem{Place: root, Delay: time.Millisecond, Limit: 1000, Seed: 1}}},
		{&s.FQ, Plan{FQ{Place: root, Limit: 1000, FlowLimit: 1000, Horizon: time.Second}}},
		{&s.Clsact, Plan{Clsact{lo}}},
		{&s.BPF, Plan{Clsact{lo}, Loss{Device: lo}, Pace{Device: lo}}},
		{&s.IFB, Plan{IFB{Device{Name: "ifb"}}, Clsact{lo}, Redirect{lo, "ifb"}}},
	} {
		a, err := t.plan.Apply()
		if errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		if err != nil {
			return s, err
		}
		*t.has = true
		if t.has == &s.Netem {
			if s.NetemSeed, err = showsSeed(); err != nil {
				return s, err
			}
		}
		if err := a.Undo(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// showsSeed reports whether lo's netem shows the seed that it was given: older kernels ignore it.
func showsSeed() (bool, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: 1})
	disciplines, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	if err != nil {
		return false, fmt.Errorf("tc: list queueing disciplines: %w", err)
	}
	for _, d := range disciplines {
		attrs, err := nl.ParseRouteAttr(d[nl.DeserializeTcMsg(d).Len():])
		if err != nil {
			return false, fmt.Errorf("tc: read a queueing discipline: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type != nl.TCA_OPTIONS || len(a.Value) < nl.SizeofTcNetemQopt {
				continue
			}
			options, err := nl.ParseRouteAttr(a.Value[nl.SizeofTcNetemQopt:])
			if err != nil {
				continue // not netem's
			}
			for _, o := range options {
				if o.Attr.Type == tcaNetemSeed {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

package tc

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// An Applied is a Plan that is in force. It is not safe for concurrent use.
type Applied struct {
	plan Plan
}

// Apply sets up the rules in their order. When one fails the rules before it are taken back, and the error says which
// one, why and the remedy; it wraps errors.ErrUnsupported if the kernel lacks a feature that the rule needs. Needs
// root.
func (p Plan) Apply() (*Applied, error) {
	a := &Applied{}
	for i, r := range p {
		if err := inNamespace(r.On().Namespace, func() error { return add(r) }); err != nil {
			err = fmt.Errorf("tc: rule %d of %d (%s): %w", i+1, len(p), r, explain(r, err))
			return nil, errors.Join(err, a.Undo())
		}
		a.plan = append(a.plan, r)
	}
	return a, nil
}

// Plan returns the rules in force.
func (a *Applied) Plan() Plan { return a.plan }

// Undo takes all of it back, last rule first. A rule that is no longer there, device and namespace included, counts as
// taken back; a second Undo does nothing.
func (a *Applied) Undo() error {
	err := a.plan.Undo()
	a.plan = nil
	return err
}

// Undo takes back whatever of the plan is there, last rule first, no matter which process applied it and how much of
// it.
func (p Plan) Undo() error {
	var errs []error
	for i := len(p) - 1; i >= 0; i-- {
		r := p[i]
		err := inNamespace(r.On().Namespace, func() error { return remove(r) })
		if err != nil && !isGone(err) {
			errs = append(errs, fmt.Errorf("tc: undo by %s: %w", r.Inverse(), explain(r, err)))
		}
	}
	return errors.Join(errs...)
}

// Change makes the rules in force follow p. Disciplines whose numbers alone differ are changed in place: they keep the
// packets that they hold. Where p has other rules the old ones are undone and p applied.
func (a *Applied) Change(p Plan) error {
	if !sameShape(a.plan, p) {
		if err := a.Undo(); err != nil {
			return err
		}
		b, err := p.Apply()
		if err != nil {
			return err
		}
		*a = *b
		return nil
	}
	for i, r := range p {
		if r == a.plan[i] {
			continue
		}
		if err := inNamespace(r.On().Namespace, func() error { return change(r) }); err != nil {
			return fmt.Errorf("tc: change to %s: %w", r, explain(r, err))
		}
		a.plan[i] = r
	}
	return nil
}

// sameShape reports whether b follows from a by changing numbers of disciplines and programs.
func sameShape(a, b Plan) bool {
	return slices.EqualFunc(a, b, func(was, is Rule) bool {
		if was == is {
			return true
		}
		_, isDiscipline := disciplineOf(is)
		_, isProgram := programOf(is)
		// Its inverse names a rule's device and place.
		return (isDiscipline || isProgram) && kind(was) == kind(is) && was.Inverse() == is.Inverse()
	})
}

// add sets up a rule in the thread's namespace.
func add(r Rule) error {
	if r, ok := r.(IFB); ok {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = r.Name
		if err := netlink.LinkAdd(&netlink.Ifb{LinkAttrs: attrs}); err != nil {
			return err
		}
		return netlink.LinkSetUp(&netlink.Ifb{LinkAttrs: attrs})
	}
	device, err := deviceOf(r)
	if err != nil {
		return err
	}
	if d, ok := disciplineOf(r); ok {
		return execute(d.request(unix.RTM_NEWQDISC, d.creation(), device.Attrs().Index))
	}
	if p, ok := programOf(r); ok {
		return p.attach(device.Attrs().Index)
	}
	switch r := r.(type) {
	case HTBClass:
		return netlink.ClassAdd(r.class(device.Attrs().Index))
	case Segments:
		return netlink.LinkSetGSOMaxSegs(device, int(r.Max))
	case Redirect:
		to, err := netlink.LinkByName(r.To)
		if err != nil {
			return err
		}
		f := r.filter(device.Attrs().Index)
		f.RedirIndex = to.Attrs().Index
		return netlink.FilterAdd(f)
	case Match:
		return netlink.FilterAdd(r.filter(device.Attrs().Index))
	}
	panic(fmt.Sprintf("tc: unknown rule %T", r))
}

// change gives a discipline or program that is there other numbers.
func change(r Rule) error {
	device, err := deviceOf(r)
	if err != nil {
		return err
	}
	if p, ok := programOf(r); ok {
		return p.configure(device)
	}
	d, ok := disciplineOf(r)
	if !ok {
		panic(fmt.Sprintf("tc: change of a %T", r))
	}
	return execute(d.request(unix.RTM_NEWQDISC, 0, device.Attrs().Index))
}

// remove takes a rule back in the thread's namespace.
func remove(r Rule) error {
	device, err := deviceOf(r)
	if err != nil {
		return err
	}
	if _, ok := r.(Clsact); ok {
		if used, err := hasFilters(device); used || err != nil {
			return err
		}
	}
	if d, ok := disciplineOf(r); ok {
		return execute(d.request(unix.RTM_DELQDISC, 0, device.Attrs().Index))
	}
	if p, ok := programOf(r); ok {
		return netlink.FilterDel(p.filter(device.Attrs().Index))
	}
	switch r := r.(type) {
	case IFB:
		return netlink.LinkDel(device)
	case HTBClass:
		return netlink.ClassDel(r.class(device.Attrs().Index))
	case Segments:
		return netlink.LinkSetGSOMaxSegs(device, AllSegments)
	case Redirect:
		return netlink.FilterDel(r.filter(device.Attrs().Index))
	case Match:
		return netlink.FilterDel(r.filter(device.Attrs().Index))
	}
	panic(fmt.Sprintf("tc: unknown rule %T", r))
}

func deviceOf(r Rule) (netlink.Link, error) { return netlink.LinkByName(r.On().Name) }

// hasFilters reports whether anything hangs on the device's Clsact.
func hasFilters(device netlink.Link) (bool, error) {
	in, err1 := netlink.FilterList(device, netlink.HANDLE_MIN_INGRESS)
	out, err2 := netlink.FilterList(device, netlink.HANDLE_MIN_EGRESS)
	return len(in)+len(out) > 0, errors.Join(err1, err2)
}

func execute(req *nl.NetlinkRequest) error {
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// isGone reports whether the thing to be removed is not there. The kernel says EINVAL where something else has its
// place.
func isGone(err error) bool {
	var noLink netlink.LinkNotFoundError
	return errors.As(err, &noLink) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}

// explain adds a remedy to an error of the kernel.
func explain(r Rule, err error) error {
	var noLink netlink.LinkNotFoundError
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: run as root", err)
	case errors.As(err, &noLink):
		return fmt.Errorf("%w: make it first", err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		// The parent of the rule is there, the rules before it have made it: so the kernel does not know the kind.
		return fmt.Errorf("%w: kernel has no %s: load its module, or use the user-space back end", errors.ErrUnsupported, kind(r))
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%w: take away the present qdisc first: tc qdisc del dev %s root", err, r.On().Name)
	}
	return err
}

// kind returns the kernel's name for the object that sets a rule up.
func kind(r Rule) string {
	if d, ok := disciplineOf(r); ok {
		return d.kind
	}
	if p, ok := programOf(r); ok {
		return "cls_bpf, for program " + p.name
	}
	switch r.(type) {
	case IFB:
		return "ifb"
	case HTBClass:
		return "htb"
	case Match:
		return "cls_u32"
	case Redirect:
		return "cls_u32 or act_mirred"
	}
	return fmt.Sprintf("%T", r)
}

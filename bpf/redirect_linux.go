package bpf

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// errInUse says that another process redirects the cgroup's connections.
var errInUse = errors.New("another gradproxy takes its connections, or something else has locked it (lslocks): stop that, or name another cgroup")

// Attach loads the programs and attaches them. They redirect nothing before the first Refresh. Programs that a dead
// proxy left on the cgroup are replaced.
func Attach(c Config) (*Hooks, error) {
	h := &Hooks{config: c}
	spec, err := loadBpf()
	if err == nil {
		err = h.open(spec)
	}
	if err == nil {
		err = h.attach()
	}
	if err != nil {
		return nil, errors.Join(explain(err), h.Close())
	}
	return h, nil
}

// open loads the programs, which nobody runs yet.
func (h *Hooks) open(spec *ebpf.CollectionSpec) (err error) {
	if h.cgroup, err = lock(h.config.Cgroup); err != nil {
		return err
	}
	if h.routes, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	if err := h.load(spec); err != nil {
		return err
	}
	h.maps = newMaps(&h.objects)
	if err := h.fill(); err != nil {
		return err
	}
	return h.silence()
}

// lockPatience is how long lock tries. A child that another process has forked holds its lock until it has executed its
// own program, though the process has let go of it, or has ended.
const lockPatience = time.Second

// lock makes sure that one living process at most redirects the connections of a cgroup.
func lock(folder string) (*os.File, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	var s unix.Statfs_t
	if err = unix.Fstatfs(int(f.Fd()), &s); err == nil && s.Type != unix.CGROUP2_SUPER_MAGIC {
		err = errors.New("that is no cgroup of version 2: name a folder of their hierarchy (mount -t cgroup2 tells where it is)")
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		for late := time.Now().Add(lockPatience); err == unix.EWOULDBLOCK && time.Now().Before(late); {
			time.Sleep(10 * time.Millisecond)
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errInUse
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup %s: %w", folder, err), f.Close())
	}
	return f, nil
}

func (h *Hooks) load(spec *ebpf.CollectionSpec) error {
	netns, err := netnsCookie()
	if err != nil {
		return err
	}
	c, refuse := &h.config, uint32(0)
	if c.Refuse {
		refuse = 1
	}
	for name, value := range map[string]any{
		bpfVarNetns: netns, bpfVarTimeout: uint64(c.Timeout), bpfVarMark: c.Mark, bpfVarRefuse: refuse, bpfVarHold: uint64(c.Hold),
		bpfVarFirstPort: c.First, bpfVarLastPort: c.Last, bpfVarListen4: c.Listen4, bpfVarListen6: c.Listen6,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("variable %s: %w", name, err)
		}
	}
	var options ebpf.CollectionOptions
	if c.Hold > 0 {
		before, err := leftListeners(c.Cgroup)
		if err != nil {
			return err
		}
		if err := errors.Join(spec.Variables[bpfVarAwaited4].Set(before.Port4), spec.Variables[bpfVarAwaited6].Set(before.Port6)); err != nil {
			return fmt.Errorf("variables of the dead proxy's ports: %w", err)
		}
		flows, err := awaiting(c.Cgroup, spec.Maps[bpfMapFlows])
		if err != nil {
			return err
		}
		if flows != nil {
			defer flows.Close()
			options.MapReplacements = map[string]*ebpf.Map{bpfMapFlows: flows}
		}
	}
	if err := spec.LoadAndAssign(&h.objects, &options); err != nil {
		return err
	}
	return h.objects.Listening.Put(uint32(0), bpfListeners{Port4: c.Listen4, Port6: c.Listen6})
}

// netnsCookie returns the number by which programs know the thread's network namespace.
func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("SO_NETNS_COOKIE, which Linux has since 5.14: %w", err)
	}
	return cookie, nil
}

// attach attaches the programs. The ones of a dead proxy go when all these are there: they may refuse connections, and
// go on if this fails.
func (h *Hooks) attach() error {
	left, err := h.attachBeside()
	stay := make([]bool, len(left))
	for i, l := range left {
		if err == nil {
			stay[i], err = stays(l, h.objects.Flows)
		}
	}
	for i, l := range left {
		if err == nil && stay[i] {
			h.staying = append(h.staying, l)
			continue
		}
		if err == nil {
			err = h.detach(l)
		}
		l.program.Close()
	}
	for _, l := range h.staying { // now that no program hands them connections any more
		if err == nil {
			err = endHold(l)
		}
	}
	return err
}

// attachBeside attaches the programs that note and answer, and after them the ones that redirect. It returns the
// programs of a dead proxy that are attached beside them, also if there is an error.
func (h *Hooks) attachBeside() (left []lasting, err error) {
	o := &h.objects
	for _, a := range []struct {
		folder  string
		attach  ebpf.AttachType
		program *ebpf.Program
	}{
		{h.config.Proxy, ebpf.AttachCGroupGetsockopt, o.GpGetsockopt},
		{h.config.Cgroup, ebpf.AttachCGroupSockOps, o.GpSockops},
		{h.config.Cgroup, ebpf.AttachCgroupInet4GetPeername, o.GpGetpeername4},
		{h.config.Cgroup, ebpf.AttachCgroupInet6GetPeername, o.GpGetpeername6},
		{h.config.Cgroup, ebpf.AttachCGroupInetEgress, o.GpEgress},
		{h.config.Cgroup, ebpf.AttachCGroupInet4Connect, o.GpConnect4},
		{h.config.Cgroup, ebpf.AttachCGroupInet6Connect, o.GpConnect6},
		{h.config.Own, ebpf.AttachCGroupInetSockCreate, o.GpSock},
	} {
		if a.folder == "" {
			continue
		}
		holds := a.program == o.GpEgress
		lasts := holds || a.program == o.GpConnect4 || a.program == o.GpConnect6
		if lasts {
			own, err := a.program.Info()
			if err != nil {
				return left, err
			}
			found, err := leftOver(h.cgroup, own.Name, own.Type, a.attach)
			left = append(left, found...)
			if err != nil {
				return left, err
			}
		}
		if holds && h.config.Hold == 0 {
			continue
		}
		if err := h.attachOne(a.folder, a.attach, a.program, lasts && h.config.Refuse); err != nil {
			return left, fmt.Errorf("attach %v to %s: %w", a.attach, a.folder, err)
		}
	}
	return left, nil
}

// attachOne attaches a program to a cgroup: for good, or for as long as this process lives.
func (h *Hooks) attachOne(folder string, attach ebpf.AttachType, program *ebpf.Program, lasts bool) error {
	if !lasts {
		l, err := link.AttachCgroup(link.CgroupOptions{Path: folder, Attach: attach, Program: program})
		if err == nil {
			h.links = append(h.links, l)
		}
		return err
	}
	err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(h.cgroup.Fd()), Program: program, Attach: attach, Flags: unix.BPF_F_ALLOW_MULTI})
	if err == nil {
		h.lasting = append(h.lasting, lasting{program, attach})
	}
	return err
}

func (h *Hooks) detach(l lasting) error {
	err := link.RawDetachProgram(link.RawDetachProgramOptions{Target: int(h.cgroup.Fd()), Program: l.program, Attach: l.attach})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Stop ends the redirection: new connections go directly, wait or are refused, as configured for a dead proxy. The
// notes on open ones stay.
func (h *Hooks) Stop() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed() {
		return nil
	}
	h.stopped = true
	return h.silence()
}

// silence sets the last beat so that the proxy counts as dead from now on. With Hold, connections begin to wait now.
func (h *Hooks) silence() error {
	last := uint64(0)
	if h.config.Hold > 0 {
		now, err := monotonic()
		if err != nil {
			return err
		}
		last = uint64(now-h.config.Timeout) | 1 // right before the host's start too: it wraps around then, and so does the programs' difference; 0 means never
	}
	return h.objects.Beat.Put(uint32(0), last)
}

// Close removes the programs: connections go directly from then on.
func (h *Hooks) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	var errs []error
	for _, l := range h.lasting {
		errs = append(errs, h.detach(l))
	}
	for _, l := range h.staying {
		errs = append(errs, h.detach(l), l.program.Close())
	}
	for _, l := range h.links {
		errs = append(errs, l.Close())
	}
	h.lasting, h.staying, h.links = nil, nil, nil
	if !h.closed() {
		errs = append(errs, h.objects.Close())
		h.objects = bpfObjects{}
	}
	if h.routes != nil {
		h.routes.Close()
	}
	if h.cgroup != nil {
		errs = append(errs, h.cgroup.Close())
		h.cgroup = nil
	}
	return errors.Join(errs...)
}

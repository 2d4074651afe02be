package wansim

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// openTUN makes the device of an end and returns its descriptor, which does not block. The device lives as long as the
// descriptor, so nothing is left behind by a process that dies.
func openTUN(end NamespaceEnd, segments bool) (fd int, err error) {
	name := end.Device
	if name == "" {
		name = "wan0"
	}
	err = end.Namespace.Do(func() error {
		if fd, err = attachTUN(name); err != nil {
			return err
		}
		if err := setSegments(fd, segments); err != nil {
			unix.Close(fd)
			return err
		}
		return nil
	})
	if err == nil {
		if err = configure(end, name); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("wansim: device %s in namespace %s: %w%s", name, end.Namespace.name, err, hint(err))
	}
	return fd, nil
}

func attachTUN(name string) (fd int, err error) {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return 0, fmt.Errorf("name: %w (at most 15 bytes)", err)
	}
	if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return 0, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("TUNSETIFF: %w", err)
	}
	return fd, nil
}

// setSegments says whether the kernel may hand over TCP segments joined to packets of up to 64 KiB (TSO) with their
// checksums not yet computed. If not, packets are as on the wire.
func setSegments(fd int, joined bool) error {
	flags := 0
	if joined {
		flags = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, flags); err != nil {
		return fmt.Errorf("TUNSETOFFLOAD: %w", err)
	}
	return nil
}

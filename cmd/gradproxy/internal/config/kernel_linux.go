package config

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// Kernel finds settings that the kernel of this host does not have.
func (c *Config) Kernel() Problems {
	t := &c.Tunnel
	if t.Congestion == "" || t.Congestion == "auto" || t.Congestion == "default" || t.Carrier == tunnel.CarrierDTLS {
		return nil
	}
	warn := func(format string, args ...any) Problems {
		return Problems{{File: c.File, Line: t.line, Where: "tunnel.congestion", Message: fmt.Sprintf(format, args...), Warning: true}}
	}
	switch err := tunnel.TryCongestion(t.Congestion); {
	case errors.Is(err, unix.EPERM):
		return warn("this kernel lets only a process with CAP_NET_ADMIN choose %s: without it the kernel's default is used; give the capability, or add %[1]s to net.ipv4.tcp_allowed_congestion_control", t.Congestion)
	case errors.Is(err, unix.ENOENT):
		return warn("this kernel has no %s (it has %s): its default is used instead; load the module tcp_%[1]s if there is one, or choose auto", t.Congestion, congestionsHere())
	}
	return nil // other faults of a socket are not the file's
}

// congestionsHere lists the controls that are loaded.
func congestionsHere() string {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil || len(text) == 0 {
		return "a list of its own"
	}
	return strings.Join(strings.Fields(string(text)), ", ")
}

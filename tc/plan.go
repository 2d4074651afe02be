package tc

import (
	"fmt"
	"strings"
)

// EthernetHeader is the length of an Ethernet header in bytes: queueing disciplines count it, links do not.
const EthernetHeader = 14

// A Plan is a list of rules in the order in which they are applied. It is data: it can be printed, compared and kept.
type Plan []Rule

// A Rule is one thing to set up on a device: TBF, HTB, HTBClass, Netem, FQ, Clsact, Match, Redirect, IFB, Segments,
// Loss or Pace. It is a value; its fields say all that is to be done.
type Rule interface {
	// String returns the command line that does the same, without a trailing newline.
	String() string
	// Inverse returns the command line that takes it back.
	Inverse() string
	// On returns the device, for IFB and Segments the one that the rule makes or sets.
	On() Device
}

// String returns the command lines that do the same as Apply, one a line.
func (p Plan) String() string {
	var b strings.Builder
	for _, r := range p {
		fmt.Fprintln(&b, r)
	}
	return b.String()
}

// Inverse returns the command lines that do the same as Undo, one a line.
func (p Plan) Inverse() string {
	var b strings.Builder
	for i := len(p) - 1; i >= 0; i-- {
		fmt.Fprintln(&b, p[i].Inverse())
	}
	return b.String()
}

// A Device is a network device in a namespace.
type Device struct {
	Namespace string // as `ip netns` names it; "": that of the caller
	Name      string
}

// On returns the device itself, for the rules that embed it.
func (d Device) On() Device { return d }

// command returns the beginning of a command line of the program, "tc" or "ip".
func (d Device) command(program, rest string) string {
	if d.Namespace != "" {
		program += " -n " + d.Namespace
	}
	return program + " " + rest
}

// A Handle names a queueing discipline or a class: its upper 16 bits the discipline, its lower ones the class.
type Handle uint32

// Root is the parent of a device's outermost queueing discipline.
const Root Handle = 0xFFFFFFFF

// NewHandle returns the handle of class minor (0: the discipline itself) of the discipline major.
func NewHandle(major, minor uint16) Handle { return Handle(major)<<16 | Handle(minor) }

// String returns the handle as tc writes it, in hexadecimal: "1:", "1:a".
func (h Handle) String() string {
	if h == Root {
		return "root"
	}
	if minor := h & 0xFFFF; minor != 0 {
		return fmt.Sprintf("%x:%x", uint32(h>>16), uint32(minor))
	}
	return fmt.Sprintf("%x:", uint32(h>>16))
}

// under returns how a command line says that something hangs below h.
func (h Handle) under() string {
	if h == Root {
		return "root"
	}
	return "parent " + h.String()
}

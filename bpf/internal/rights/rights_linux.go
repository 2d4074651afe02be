// Package rights tells which capabilities this process lacks.
package rights

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// A Right is a capability, which others may stand for.
type Right struct {
	Name    string
	Numbers []uint // any of them is enough
}

// Missing names the rights that the process lacks, with the verb, as in "CAP_BPF and CAP_NET_ADMIN are"; "": none.
func Missing(rights []Right) (string, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return "", fmt.Errorf("capget: %w", err)
	}
	return missing(rights, uint64(data[1].Effective)<<32|uint64(data[0].Effective)), nil
}

// missing is Missing for the effective capabilities of a process.
func missing(rights []Right, effective uint64) string {
	var names []string
	for _, r := range rights {
		has := false
		for _, n := range r.Numbers {
			has = has || effective>>n&1 != 0
		}
		if !has {
			names = append(names, r.Name)
		}
	}
	switch last := len(names) - 1; last {
	case -1:
		return ""
	case 0:
		return names[0] + " is"
	default:
		return strings.Join(names[:last], ", ") + " and " + names[last] + " are"
	}
}

//go:build amd64 || arm64

package confine

import (
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

func apply(n Needs, log *slog.Logger) {
	missing := func(wall string, err error) {
		log.Info("this process is not confined in one way", "wall", wall, "err", err)
	}
	kept, err := keep(n)
	if err != nil {
		missing("capabilities", err)
	}
	// Set for all threads. seccomp and Landlock ask for it of processes without CAP_SYS_ADMIN.
	if _, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		missing("no_new_privs", err)
	}
	files, ports, err := restrict(n)
	if err != nil {
		missing("Landlock", err)
	}
	calls := "bounded"
	if err := filter(n); err != nil {
		missing("seccomp", err)
		calls = "any"
	}
	log.Info("this process is confined", "capabilities", names(kept), "files", files, "ports", ports, "system_calls", calls)
}

// names writes capabilities as capabilities(7) does.
func names(set []Capability) string {
	if len(set) == 0 {
		return "none"
	}
	var all string
	for i, c := range set {
		if i > 0 {
			all += " "
		}
		all += fmt.Sprint(cap.Value(c))
	}
	return all
}

package vm

import (
	"fmt"
	"path/filepath"
)

// uml is user-mode Linux.
type uml struct {
	kernel string
	mods   *modules
}

func openUML(dir string) (machine, error) {
	mods, err := openModules(filepath.Join(dir, "usr/lib/uml/modules/*"))
	if err != nil {
		return nil, err
	}
	return &uml{filepath.Join(dir, "usr/bin/linux.uml"), mods}, nil
}

func (u *uml) name() string      { return "uml" }
func (u *uml) modules() *modules { return u.mods }
func (u *uml) slowdown() int     { return 1 }

func (u *uml) command(g Guest, dir string) ([]string, error) {
	return u.commandLine(g.memory(), dir, filepath.Join(dir, initFile), JobVariable+"="+filepath.Join(dir, jobFile)), nil
}

// commandLine returns the kernel and its arguments: the host's root as its own, read-only, and one console, on stdout.
func (u *uml) commandLine(memory int, dir, first string, more ...string) []string {
	return append([]string{
		u.kernel, fmt.Sprintf("mem=%dM", memory), "root=none", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "uml_dir=" + dir,
		"con=null", "con0=null,fd:1", "init=" + first,
	}, more...)
}

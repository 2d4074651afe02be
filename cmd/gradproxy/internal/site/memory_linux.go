package site

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryAllowed returns how much memory this process may have: the least that its cgroups allow, or the memory of the
// host.
func memoryAllowed() memoryLimit {
	limit := unlimited
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		limit.bytes = int64(uint64(info.Totalram) * uint64(info.Unit))
	}
	if own, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		if c := cgroupLimit(os.DirFS("/"), own); c.bytes < limit.bytes {
			return c
		}
	}
	return limit
}

// cgroupLimit returns the least limit of the cgroups of a process, whose /proc/PID/cgroup is own, and of the cgroups
// around it. root holds the files; memory.max is of version 2 (Documentation/admin-guide/cgroup-v2.rst),
// memory.limit_in_bytes of version 1.
func cgroupLimit(root fs.FS, own []byte) memoryLimit {
	limit := unlimited
	for s := bufio.NewScanner(bytes.NewReader(own)); s.Scan(); {
		fields := strings.SplitN(s.Text(), ":", 3) // number, controllers, path
		if len(fields) < 3 {
			continue
		}
		var mounts []string
		file := "memory.max"
		switch {
		case fields[0] == "0" && fields[1] == "":
			mounts = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}
		case strings.Contains(","+fields[1]+",", ",memory,"):
			mounts, file = []string{"sys/fs/cgroup/memory"}, "memory.limit_in_bytes"
		}
		for _, mount := range mounts {
			for at := path.Clean("/" + fields[2]); ; at = path.Dir(at) {
				name := path.Join(mount, at, file)
				text, err := fs.ReadFile(root, name)
				if n, e := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && e == nil && n < limit.bytes {
					limit = memoryLimit{n, "/" + name}
				}
				if at == "/" {
					break
				}
			}
		}
	}
	return limit
}

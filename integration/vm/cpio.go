package vm

import (
	"bytes"
	"fmt"
)

// Kinds of files, in an entry's mode (inode(7)).
const (
	directory       = 0o040000
	characterDevice = 0o020000
	regularFile     = 0o100000
)

// An entry is a file of an initial file system. Its name has no slash in front.
type entry struct {
	name         string
	mode         uint32
	major, minor uint32
	data         []byte
}

// archive returns files in the "newc" format of cpio, which the kernel unpacks
// (https://docs.kernel.org/driver-api/early-userspace/buffer-format.html).
func archive(files []entry) []byte {
	var b bytes.Buffer
	align := func() {
		for b.Len()%4 != 0 {
			b.WriteByte(0)
		}
	}
	for i, f := range append(files, entry{name: "TRAILER!!!"}) {
		fmt.Fprintf(&b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", i+1, f.mode, 0, 0, 1, 0, len(f.data), 0, 0, f.major, f.minor, len(f.name)+1, 0)
		b.WriteString(f.name)
		b.WriteByte(0)
		align()
		b.Write(f.data)
		align()
	}
	return b.Bytes()
}

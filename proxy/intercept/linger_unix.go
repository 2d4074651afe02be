//go:build unix

package intercept

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// lingerNot has the connections that l accepts end by an RST, also where this process is killed before it has looked at
// them: accepted sockets inherit SO_LINGER.
func lingerNot(l *net.TCPListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
	})
	return errors.Join(err, os.NewSyscallError("setsockopt", set))
}

package tunnel

import (
	"log/slog"
	"net"

	"golang.org/x/sys/unix"
)

// tune sets the options of a carrier's connection, if it is TCP. One that the kernel refuses is left as it is.
func tune(conn net.Conn, congestion string, log *slog.Logger) {
	control(conn, func(fd int) {
		set := func(option, value int) {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, option, value); err != nil {
				log.Debug("TCP option refused", "option", option, "value", value, "err", err)
			}
		}
		set(unix.TCP_NODELAY, 1)
		set(unix.TCP_NOTSENT_LOWAT, notSentLowat)
		set(unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
		switch congestion {
		case "default":
			return
		case "":
			congestion = "bbr"
		}
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion); err != nil {
			log.Debug("TCP congestion control refused, the kernel's default stays", "name", congestion, "err", err)
		}
	})
}

func control(conn net.Conn, f func(fd int)) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { f(int(fd)) }) // fails only when closed
}

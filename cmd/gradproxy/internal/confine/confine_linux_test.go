//go:build amd64 || arm64

package confine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/gradproxy/gradproxy/integration/require"
)

// A trial is a process that is confined as Needs says, and the places that it tries to reach.
type trial struct {
	Needs  Needs
	Target string // TCP address on which the test listens
	Other  string // one more
	Dir    string // has the folders named by Needs, and hidden

	Tries bool // maps are used, which takes CAP_BPF as on an old kernel

	socket int // of TCP, from before

	Filtered bool // a filter of system calls from before refuses the ones that raise walls
}

func TestMain(m *testing.M) {
	if text := os.Getenv("GRADPROXY_CONFINED"); text != "" {
		confined(text)
		return
	}
	os.Exit(m.Run())
}

// confined is the process that is confined. Once it is, it writes a line to standard output and waits for the end of
// standard input; then it writes the result of each attempt.
func confined(text string) {
	var x trial
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		panic(err)
	}
	if x.Filtered {
		if err := loseWalls(); err != nil {
			panic(err)
		}
		Apply(x.Needs, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		return // it may still do everything: no attempts
	}
	var err error
	if x.socket, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err != nil {
		panic(err)
	}
	if x.Tries {
		x.Needs.TryMaps = takesBPF
	}
	Apply(x.Needs, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	fmt.Println("confined")
	io.Copy(io.Discard, os.Stdin)
	results := map[string]string{}
	for name, attempt := range attempts(&x) {
		results[name] = nameOf(attempt())
	}
	json.NewEncoder(os.Stdout).Encode(results)
}

// loseWalls has this process refused the calls that raise walls, as a service manager's filter does which does not name
// them.
func loseWalls() error {
	raw, err := bpf.Assemble([]bpf.Instruction{
		load(offNumber),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_SECCOMP, SkipTrue: 1}, refuse,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_LANDLOCK_CREATE_RULESET, SkipTrue: 1}, refuse, allow,
	})
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if _, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(code)
	if e != 0 {
		return e
	}
	return nil
}

// Where a service manager's filter refuses the calls that raise walls, the log names that filter, not the kernel.
func TestFilterOfTheServiceManagerIsNamed(t *testing.T) {
	require.Root(t)
	text, err := json.Marshal(trial{Dir: t.TempDir(), Filtered: true})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), "GRADPROXY_CONFINED="+string(text))
	log, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	for _, want := range []string{"wall=Landlock err=\"a filter of system calls", "wall=seccomp err=\"a filter of system calls", "files=any", "system_calls=any"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the log does not say %s: %s", want, log)
		}
	}
}

// takesBPF fails without CAP_BPF.
func takesBPF() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	if data[1].Effective&(1<<(unix.CAP_BPF-32)) == 0 {
		return unix.EPERM
	}
	return nil
}

func nameOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, fs.ErrPermission): // EPERM and EACCES
		return "refused"
	case errors.Is(err, syscall.ENOSYS):
		return "absent"
	}
	return err.Error()
}

func attempts(x *trial) map[string]func() error {
	call := func(number uintptr, args ...uintptr) func() error {
		var a [6]uintptr
		copy(a[:], args)
		return func() error {
			if _, _, e := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); e != 0 {
				return e
			}
			return nil
		}
	}
	socket := func(family, kind, protocol int) func() error {
		return func() error {
			fd, err := unix.Socket(family, kind, protocol)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
	}
	dial := func(address string) func() error {
		return func() error {
			c, err := net.DialTimeout("tcp", address, 10*time.Second)
			if err == nil {
				c.Close()
			}
			return err
		}
	}
	readFile := func(name string) func() error {
		return func() error { _, err := os.ReadFile(filepath.Join(x.Dir, name)); return err }
	}
	var info [256]byte
	attr := struct{ key, value, elements uint32 }{} // for BPF_MAP_CREATE: not valid
	return map[string]func() error{
		"run a program":            func() error { return exec.Command("/bin/true").Run() },
		"run this program":         func() error { return unix.Exec("/proc/self/exe", []string{"x", "-test.run=^$"}, nil) }, // without a test, since this one would start the program again
		"trace the parent":         call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(os.Getppid())),
		"write the parent":         call(unix.SYS_PROCESS_VM_WRITEV, uintptr(os.Getppid())),
		"read the parent":          call(unix.SYS_PROCESS_VM_READV, uintptr(os.Getppid())),
		"count events":             call(unix.SYS_PERF_EVENT_OPEN),
		"make a map":               call(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)),
		"use a map":                call(unix.SYS_BPF, unix.BPF_MAP_LOOKUP_ELEM, uintptr(unsafe.Pointer(&info)), 64),
		"mount":                    func() error { return unix.Mount("none", x.Dir, "tmpfs", 0, "") },
		"unshare":                  func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"make a ring":              call(unix.SYS_IO_URING_SETUP),
		"become nobody":            call(unix.SYS_SETUID, 65534),
		"clone3":                   call(unix.SYS_CLONE3),
		"make a packet socket":     socket(unix.AF_PACKET, unix.SOCK_RAW, 0),
		"make a vsock":             socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"make a Multipath socket":  socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
		"make a TCP socket":        socket(unix.AF_INET6, unix.SOCK_STREAM, 0),
		"make a Unix socket":       socket(unix.AF_UNIX, unix.SOCK_STREAM, 0),
		"make a netlink socket":    socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE),
		"mark a socket":            markSocket,
		"mark a socket of another": func() error { return unix.SetsockoptInt(x.socket, unix.SOL_SOCKET, unix.SO_MARK, 7) },
		"keep CAP_BPF":             takesBPF,
		"change another's file":    func() error { return os.Chown(filepath.Join(x.Dir, "state", "old"), 1, 1) },
		"dial":                     dial(x.Target),
		"dial another port":        dial(x.Other),
		"read a file":              readFile("read/a.yaml"),
		"read a new file":          func() error { return renewed(x.Dir) },
		"read a hidden file":       readFile("hidden/secret"),
		"write beside a file":      func() error { return os.WriteFile(filepath.Join(x.Dir, "read/b"), nil, 0o600) },
		"replace a state file":     func() error { return replaced(filepath.Join(x.Dir, "state")) },
		"remove a socket":          func() error { return os.Remove(filepath.Join(x.Dir, "run/s")) },
		"read a file of names":     func() error { _, err := os.ReadFile("/etc/hosts"); return err },
		"read the kernel's limits": func() error { _, err := os.ReadFile("/proc/sys/net/core/somaxconn"); return err },
		"start threads":            threads,
		"end":                      func() error { return unix.Kill(os.Getpid(), 0) },
	}
}

func markSocket() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 7)
}

// renewed reads a file that the test puts in the place of another after the start, through a link, as Kubernetes does.
func renewed(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "read", "linked.pem"))
	if err == nil && string(text) != renewal {
		return fmt.Errorf("it is %q, not the new one", text)
	}
	return err
}

const renewal = "new"

// renew puts a new file in the place of the one to which read/linked.pem leads.
func renew(dir string) error {
	link := filepath.Join(dir, "read", "linked.pem")
	return errors.Join(os.WriteFile(filepath.Join(dir, "elsewhere", "v2.pem"), []byte(renewal), 0o600),
		os.Symlink("../elsewhere/v2.pem", link+".new"), os.Rename(link+".new", link), os.Remove(filepath.Join(dir, "elsewhere", "v1.pem")))
}

func replaced(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "new"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close(), os.Rename(f.Name(), filepath.Join(dir, "old"))); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close(), os.Mkdir(filepath.Join(dir, "d"), 0o700), os.Remove(filepath.Join(dir, "d")))
}

// threads starts threads, and finds that each has the walls.
func threads() error {
	var group sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		group.Go(func() {
			unix.Nanosleep(&unix.Timespec{Nsec: 1e7}, nil) // in the kernel: the others get threads of their own
			if err := unix.Unshare(unix.CLONE_FS); !errors.Is(err, unix.EPERM) {
				errs[i] = fmt.Errorf("a thread may unshare: %w", err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// The walls refuse a real process all that they forbid, and everything that a proxy does after its start works.
func TestConfinedProcess(t *testing.T) {
	require.Root(t)
	abi, err := ll.LandlockGetABIVersion()
	landlocked := err == nil
	listen := func() (string, uint16) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l.Addr().String(), uint16(l.Addr().(*net.TCPAddr).Port)
	}
	target, port := listen()
	other, _ := listen()
	always := map[string]string{
		"run a program": "refused", "run this program": "refused", "trace the parent": "refused", "write the parent": "refused", "mount": "refused", "unshare": "refused",
		"make a ring": "refused", "become nobody": "refused", "clone3": "absent", "make a packet socket": "refused", "make a vsock": "refused",
		"make a Multipath socket": "refused", "make a netlink socket": "ok", "read a file": "ok",
		"read a new file": "ok", "replace a state file": "ok", "remove a socket": "ok", "read a file of names": "ok", "read the kernel's limits": "ok", "start threads": "ok",
		"end": "ok",
	}
	for _, x := range []struct {
		name  string
		needs Needs
		want  map[string]string
	}{
		{"forward", Needs{Ports: []uint16{port}}, map[string]string{"dial": "ok", "make a TCP socket": "ok", "make a Unix socket": "ok", "mark a socket": "refused", "change another's file": "refused",
			"dial another port": "refused", "read a hidden file": "refused", "write beside a file": "refused",
			"make a map": "refused", "use a map": "refused", "read the parent": "refused", "count events": "refused"}},
		{"redirect", Needs{}, map[string]string{"dial": "ok", "make a TCP socket": "ok", "make a Unix socket": "ok", "mark a socket": "refused", "dial another port": "ok",
			"read a hidden file": "refused", "make a map": "refused", "use a map": "refused"}},
		{"cgroup", Needs{Maps: true}, map[string]string{"dial": "ok", "make a TCP socket": "ok", "make a Unix socket": "ok", "make a map": "refused",
			"use a map": "invalid argument", "mark a socket": "refused", "keep CAP_BPF": "refused", "read the parent": "refused", "read a hidden file": "refused"}},
		{"maps that take a right", Needs{Maps: true}, map[string]string{"keep CAP_BPF": "ok", "mark a socket": "refused"}},
		{"warden", Needs{Capabilities: []Capability{NetAdmin}, Ports: []uint16{}, Rules: true}, map[string]string{"make a TCP socket": "refused", "make a Unix socket": "refused", "dial": "refused",
			"mark a socket of another": "ok", "read a hidden file": "refused", "make a map": "refused", "use a map": "refused", "read the parent": "refused", "count events": "refused"}},
		{"probes", Needs{Capabilities: []Capability{BPF, Perfmon, SysPtrace}, Trace: true}, map[string]string{"dial": "refused", "make a TCP socket": "refused", "make a Unix socket": "refused", "make a map": "invalid argument",
			"read the parent": "ok", "count events": "bad address", "read a hidden file": "ok"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := t.TempDir()
			put := func(name string) string {
				path := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
				return path
			}
			put("hidden/secret")
			put("state/old")
			put("run/s")
			put("elsewhere/v1.pem")
			x.needs.Files = []string{put("read/a.yaml"), filepath.Join(dir, "read/linked.pem")}
			if err := os.Symlink("../elsewhere/v1.pem", x.needs.Files[1]); err != nil {
				t.Fatal(err)
			}
			x.needs.Write, x.needs.Remove = []string{filepath.Join(dir, "state")}, []string{filepath.Join(dir, "run")}
			text, err := json.Marshal(trial{Needs: x.needs, Tries: x.name == "maps that take a right", Target: target, Other: other, Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), "GRADPROXY_CONFINED="+string(text))
			var log bytes.Buffer
			cmd.Stderr = &log
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			out := bufio.NewReader(stdout)
			line, err := out.ReadString('\n')
			if err == nil {
				err = errors.Join(renew(dir), stdin.Close())
			}
			got := map[string]string{}
			if err = errors.Join(err, json.NewDecoder(out).Decode(&got), cmd.Wait()); err != nil {
				t.Fatalf("after %q: %v: %s", line, err, log.String())
			}
			for _, wants := range []map[string]string{always, x.want} {
				for name, want := range wants {
					files := name == "read a hidden file" || name == "write beside a file"
					if files && !landlocked || name == "dial another port" && abi < portsABI {
						want = "ok"
					}
					if got[name] != want {
						t.Errorf("%s: %s, want %s", name, got[name], want)
					}
				}
			}
			if !strings.Contains(log.String(), "this process is confined") {
				t.Errorf("the log does not say so: %s", log.String())
			}
			if missing := strings.Contains(log.String(), "wall=Landlock"); missing != (x.needs.Trace || !landlocked) {
				t.Errorf("the log on a missing wall: %s", log.String())
			}
		})
	}
}

// A root whose files belong to another user keeps the right to read them, or a new key would not be read.
func TestKeepsWhatItsFilesTake(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	own, others := filepath.Join(dir, "own.key"), filepath.Join(dir, "others.key")
	for _, file := range []string{own, others} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(dir, "others")
	if err := errors.Join(os.Chown(others, 65534, 65534), os.Mkdir(folder, 0o700), os.Chown(folder, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		do   func() error
		fail bool
	}{
		{func() error { return readable([]string{own}) }, false},
		{func() error { return readable([]string{own, others}) }, true},
		{func() error { return writable([]string{dir}) }, false},
		{func() error { return writable([]string{dir, folder}) }, true},
	} {
		if err := with(nil, x.do); (err != nil) != x.fail {
			t.Errorf("without capabilities: %v", err)
		}
		if err := x.do(); err != nil {
			t.Errorf("afterwards the thread has its capabilities again: %v", err)
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/bpf/cgroup"
	"github.com/gradproxy/gradproxy/integration/require"
)

// needsHooks skips the test where programs cannot be attached to cgroups.
func needsHooks(t *testing.T) {
	t.Helper()
	require.Root(t)
	g, err := cgroup.New("probe")
	require.Named(t, "cgroup2", err == nil, "use a kernel with cgroups of version 2")
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

// lone is the site's name, this process's own: the programs that its proxies leave in cgroups are counted.
func lone() string { return "lone" + strconv.Itoa(os.Getpid()) }

// loneSite writes a configuration that needs no certificates, no peer and no port that another may have.
func loneSite(t *testing.T) string {
	t.Helper()
	file := filepath.Join(openFolder(t), "gradproxy.yaml")
	text := "site: " + lone() + `
tunnel: {listen: "off", insecure: true}
peers: [{name: far, dial: "127.0.0.1:1", networks: [192.0.2.0/24], may_dial: ["198.51.100.0/24:1024-65535"]}]
admin: "off"
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// openFolder makes a folder that every user may look into.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gradproxy-test-")
	if err := errors.Join(err, os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// gradproxyCommand is this test binary as the program.
func gradproxyCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{"gradproxy"}, args...)
	cmd.WaitDelay = time.Minute
	return cmd
}

// shell is gradproxy exec of a shell's script.
func shell(t *testing.T, script string) *exec.Cmd {
	return gradproxyCommand(t, "exec", "-c", loneSite(t), "--log-level", "error", "--", "sh", "-c", script)
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err == nil {
		return 0
	}
	return exit.ExitCode()
}

// The exit code is the command's, whatever ended it, and the standard files are the command's.
func TestExecExitsAsTheCommand(t *testing.T) {
	needsHooks(t)
	file := loneSite(t)
	for _, x := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"true"}, 0, ""},
		{[]string{"sh", "-c", "exit 1"}, 1, ""},
		{[]string{"sh", "-c", "exit 203"}, 203, ""},
		{[]string{"sh", "-c", "kill -TERM $$"}, 128 + 15, ""},
		{[]string{"sh", "-c", "kill -KILL $$"}, 128 + 9, ""},
		{[]string{"no-such-command"}, 127, "gradproxy: no-such-command: there is no such command: correct the name, or give its path\n"},
		{[]string{filepath.Dir(file)}, 126, "gradproxy: " + filepath.Dir(file) + " cannot be run: is a directory\n"},
		{[]string{"sh", "-c", "exec cat -n; false", "-c", "--stats"}, 0, ""}, // arguments that look like flags are the command's
	} {
		cmd := gradproxyCommand(t, append([]string{"exec", "-c", file, "--log-level", "error", "--"}, x.args...)...)
		cmd.Stdin = strings.NewReader("said\n")
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if code := exitCode(t, cmd.Run()); code != x.code || stderr.String() != x.stderr {
			t.Errorf("%q: exit code %d and %q, want %d and %q", x.args, code, stderr.String(), x.code, x.stderr)
		}
		if strings.Contains(strings.Join(x.args, " "), "cat") && out.String() != "     1\tsaid\n" {
			t.Errorf("%q says %q", x.args, out.String())
		}
	}
	left(t, 0)
}

// left checks how many groups of these tests' proxies there are.
func left(t *testing.T, want int) {
	t.Helper()
	if got := groups(t); len(got) != want {
		t.Errorf("cgroups left: %v, want %d", got, want)
	}
}

func groups(t *testing.T) []string {
	t.Helper()
	g, err := cgroup.New("look")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	all, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(g.Proxy())), "gradproxy-"+lone()+"-*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// startReady starts cmd and waits for the line "ready" of the command.
func startReady(t *testing.T, cmd *exec.Cmd) io.Reader {
	t.Helper()
	in, err1 := cmd.StdinPipe() // stays open
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill() })
	untilReads(t, out, "ready\n")
	return out
}

// untilReads reads until the text ends with want.
func untilReads(t *testing.T, r io.Reader, want string) string {
	t.Helper()
	var text []byte
	for one := make([]byte, 1); !bytes.HasSuffix(text, []byte(want)); text = append(text, one[0]) {
		if _, err := io.ReadFull(r, one); err != nil {
			t.Fatalf("%v after %q, want %q", err, text, want)
		}
	}
	return string(text)
}

func TestExecPassesSignals(t *testing.T) {
	needsHooks(t)
	for name, sig := range map[string]syscall.Signal{"HUP": unix.SIGHUP, "INT": unix.SIGINT, "QUIT": unix.SIGQUIT, "TERM": unix.SIGTERM, "USR1": unix.SIGUSR1, "USR2": unix.SIGUSR2, "WINCH": unix.SIGWINCH} {
		t.Run(name, func(t *testing.T) {
			caught := make(chan os.Signal, 1)
			signal.Notify(caught, sig) // or the shell could not trap signals that this process was started to ignore, as by nohup
			defer signal.Stop(caught)
			cmd := shell(t, fmt.Sprintf(`trap 'exit 77' %s; echo ready; while :; do sleep 0.02; done`, name))
			startReady(t, cmd)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code := exitCode(t, cmd.Wait()); code != 77 {
				t.Errorf("exit code %d, want that of the trap", code)
			}
		})
	}
	t.Run("untrapped", func(t *testing.T) {
		cmd := shell(t, `echo ready; read x`)
		startReady(t, cmd)
		cmd.Process.Signal(unix.SIGINT)
		if code := exitCode(t, cmd.Wait()); code != 130 {
			t.Errorf("exit code %d, want 130", code)
		}
	})
	t.Run("ignored as by nohup", func(t *testing.T) {
		inner := shell(t, `echo ready; read x; exit 3`)
		program := filepath.Join(openFolder(t), inner.Args[0])
		if err := os.Symlink(inner.Path, program); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", append([]string{"-c", `trap "" HUP INT; exec "$0" "$@"`, program}, inner.Args[1:]...)...)
		in, _ := cmd.StdinPipe()
		out, err := cmd.StdoutPipe()
		if err := errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		untilReads(t, out, "ready\n")
		cmd.Process.Signal(unix.SIGHUP)
		cmd.Process.Signal(unix.SIGINT)
		io.WriteString(in, "\n")
		if code := exitCode(t, cmd.Wait()); code != 3 {
			t.Errorf("exit code %d, want the command's", code)
		}
	})
}

// pty is a terminal that a command controls; bytes written to it are typed.
func pty(t *testing.T, cmd *exec.Cmd) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	number, err1 := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	err2 := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	slave, err3 := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return master
}

// waitStopped waits until a child of this process is stopped.
func waitStopped(t *testing.T, pid int) {
	t.Helper()
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("not stopped: %v %v", status, err)
	}
}

// untilReadsTerminal waits until a process group other than that one has the terminal, and its first process waits for
// what is typed. Some shells forget a signal that comes just before they wait.
func untilReadsTerminal(t *testing.T, tty *os.File, group int) {
	t.Helper()
	reads := fmt.Sprintf("%d 0x0 ", unix.SYS_READ) // from standard input
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		has, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
		if err != nil {
			t.Fatal(err)
		}
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", has))
		call, _ := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", has))
		if has != group && bytes.Contains(stat, []byte(") S ")) && strings.HasPrefix(string(call), reads) {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("the command does not read from the terminal: group %d has it, not %d, %q, call %q", has, group, stat, call)
		}
	}
}

// idles keeps a shell busy without programs of its own: one that is stopped between vfork and exec holds its shell,
// which then is not stopped, and nobody knows of it, whoever started them.
const idles = "while :; do :; done"

// Typed bytes reach the command, once, whether or not it reads from the terminal.
func TestExecTerminal(t *testing.T) {
	needsHooks(t)
	for name, idle := range map[string]string{"reads": "read x", "does not read": idles} {
		t.Run(name, func(t *testing.T) {
			cmd := shell(t, `trap 'echo interrupted; sleep 0.1; exit 5' INT; echo ready; `+idle)
			tty := pty(t, cmd)
			untilReads(t, tty, "ready\r\n")
			if name == "reads" {
				untilReadsTerminal(t, tty, cmd.Process.Pid)
			}
			io.WriteString(tty, "\x03") // Ctrl-C
			code := exitCode(t, cmd.Wait())
			rest, _ := io.ReadAll(tty) // ends with EIO once nobody has the terminal open
			if n := strings.Count(string(rest), "interrupted"); code != 5 || n != 1 {
				t.Errorf("exit code %d, interrupted %d times: %q", code, n, rest)
			}
		})
	}
	t.Run("reads lines", func(t *testing.T) {
		cmd := shell(t, `echo ready; read x; echo "got $x"; exit 6`)
		tty := pty(t, cmd)
		untilReads(t, tty, "ready\r\n")
		io.WriteString(tty, "a word\n")
		untilReads(t, tty, "got a word\r\n")
		if code := exitCode(t, cmd.Wait()); code != 6 {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("stops and goes on", func(t *testing.T) {
		cmd := shell(t, `trap 'echo again' CONT; trap 'exit 5' INT; echo ready; `+idles)
		tty := pty(t, cmd)
		untilReads(t, tty, "ready\r\n")
		io.WriteString(tty, "\x1a") // Ctrl-Z
		waitStopped(t, cmd.Process.Pid)
		cmd.Process.Signal(unix.SIGCONT)
		untilReads(t, tty, "again\r\n")
		io.WriteString(tty, "\x03")
		if code := exitCode(t, cmd.Wait()); code != 5 {
			t.Errorf("exit code %d", code)
		}
	})
}

// A killed proxy leaves the command running. Its cgroup goes with the next start after the command's end.
func TestExecKilled(t *testing.T) {
	needsHooks(t)
	cmd := shell(t, `echo ready; read x; echo alive; read x`)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	words, type_, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout = words, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	words.Close()
	untilReads(t, out, "ready\n")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	io.WriteString(type_, "\n")
	untilReads(t, out, "alive\n")
	left(t, 1) // though two have started since
	type_.Close()
	if _, err := io.ReadAll(out); err != nil { // it has ended
		t.Fatal(err)
	}
	for began := time.Now(); len(groups(t)) > 0; { // as soon as the kernel is done with it
		if time.Since(began) > time.Minute {
			t.Fatalf("left: %v", groups(t))
		}
	}
}

// A user without the privileges gets one line that names the missing one.
func TestExecWithoutPrivileges(t *testing.T) {
	require.Root(t)
	for want, caps := range map[string][]uintptr{
		"CAP_BPF and CAP_NET_ADMIN are missing": nil,
		"CAP_BPF is missing":                    {unix.CAP_NET_ADMIN},
		"CAP_NET_ADMIN is missing":              {unix.CAP_BPF},
	} {
		cmd := shell(t, "true")
		cmd.Path = readable(t, cmd.Path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, AmbientCaps: caps}
		out, err := cmd.CombinedOutput()
		if code := exitCode(t, err); code != 1 || !strings.HasPrefix(string(out), "gradproxy: bpf: "+want+": run gradproxy as root, or ") || strings.Count(string(out), "\n") != 1 {
			t.Errorf("with %v: exit code %d, %q", caps, code, out)
		}
	}
}

// readable returns a copy of a program that every user may run.
func readable(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	copied := filepath.Join(openFolder(t), "gradproxy")
	if err := errors.Join(err, os.WriteFile(copied, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	return copied
}

// A file that cannot be created is known before the command starts; one that cannot be written leaves its exit code.
func TestExecStatsFails(t *testing.T) {
	needsHooks(t)
	ran := filepath.Join(t.TempDir(), "ran")
	for _, x := range []struct {
		stats, said string
		code        int
		runs        bool
	}{
		{filepath.Join(t.TempDir(), "nowhere", "stats.json"), "--stats: open ", 2, false},
		{"/dev/full", "--stats is not written", 0, true},
	} {
		cmd := gradproxyCommand(t, "exec", "-c", loneSite(t), "--log-level", "error", "--stats", x.stats, "--", "touch", ran)
		out, err := cmd.CombinedOutput()
		if code := exitCode(t, err); code != x.code || !strings.Contains(string(out), x.said) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%s: exit code %d, want %d; it says %q, want one line with %q", x.stats, code, x.code, out, x.said)
		}
		if _, err := os.Stat(ran); (err == nil) != x.runs {
			t.Errorf("%s: the command has run: %v, want %v", x.stats, err == nil, x.runs)
		}
	}
}

// The command is in a cgroup of its own, below that of gradproxy, and --stats tells of no connection where there was
// none.
func TestExecStats(t *testing.T) {
	needsHooks(t)
	file := filepath.Join(t.TempDir(), "stats.json")
	cmd := gradproxyCommand(t, "exec", "-c", loneSite(t), "--log-level", "error", "--stats", file, "--", "cat", "/proc/self/cgroup")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "/gradproxy-"+lone()+"-") || !strings.HasSuffix(strings.TrimSpace(string(out)), "/job") {
		t.Errorf("the command is in %s", out)
	}
	text, err := os.ReadFile(file)
	var s stats
	if err := errors.Join(err, json.Unmarshal(text, &s)); err != nil || s.Connections == nil || len(s.Connections) != 0 {
		t.Errorf("%v: %s", err, text)
	}
}

// The command of --user is that user's, with the user's groups and home, has no capability, and takes signals from the
// proxy.
func TestExecRunsTheCommandAsAUser(t *testing.T) {
	needsHooks(t)
	run := func(user string, script string) (string, int) {
		cmd := gradproxyCommand(t, "exec", "-c", loneSite(t), "--log-level", "error", "--user", user, "--", "sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: []uint32{0, 4}}} // root's groups: the command must have none of them
		out, err := cmd.CombinedOutput()
		return string(out), exitCode(t, err)
	}
	for _, user := range []string{"nobody", "65534"} {
		out, code := run(user, `id -u; id -g; id -G; echo $USER; grep CapEff /proc/self/status; kill -TERM $PPID 2>/dev/null || echo no signal to root`)
		if want := "65534\n65534\n65534\nnobody\nCapEff:\t0000000000000000\nno signal to root\n"; out != want || code != 0 {
			t.Errorf("%s: %q and %d, want %q", user, out, code, want)
		}
	}
	if out, code := run("no-such-user", "true"); code != 1 || !strings.Contains(out, "there is no such user") || strings.Count(out, "\n") != 1 {
		t.Errorf("%q and %d", out, code)
	}
	cmd := gradproxyCommand(t, "exec", "-c", loneSite(t), "--log-level", "error", "--user", "nobody", "--", "sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	until := fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)
	for confined := false; !confined; time.Sleep(10 * time.Millisecond) { // the proxy has given up its rights
		status, err := os.ReadFile(until)
		if err != nil {
			t.Fatal(err)
		}
		confined = strings.Contains(string(status), "Seccomp:\t2")
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if code := exitCode(t, cmd.Wait()); code != 7 {
		t.Errorf("exit code %d of a command that SIGTERM reaches, want 7", code)
	}
}

// The proxy gives up its rights once the command runs, and the command keeps its own.
func TestExecConfinesTheProxyAndNotTheCommand(t *testing.T) {
	needsHooks(t)
	script := `for i in $(seq 500); do grep -q "NoNewPrivs:.1" /proc/$PPID/status && grep -q "Seccomp:.2" /proc/$PPID/status && break; sleep 0.02; done
grep -h -E "^(CapEff|NoNewPrivs|Seccomp):" /proc/self/status /proc/$PPID/task/*/status | sort | uniq`
	out, err := shell(t, script).Output()
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"CapEff", "NoNewPrivs", "Seccomp"} {
		of := func(text string) (values []string) {
			for line := range strings.Lines(text) {
				if value, ok := strings.CutPrefix(line, field+":\t"); ok {
					values = append(values, strings.TrimSpace(value))
				}
			}
			return values
		}
		command := of(string(own))
		if got := of(string(out)); len(got) != 2 || got[0] != command[0] && got[1] != command[0] {
			t.Errorf("%s of the command, which should be %s, and of the proxy, which should not: %s", field, command, got)
		}
	}
}

// With probes the proxy keeps the rights of exec and no others. The process that probes, which has the rights of
// probes, ends with it.
func TestExecProbesApart(t *testing.T) {
	needsHooks(t)
	file := loneSite(t)
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("policy: [{role: gradient, codec: int4}]\n")
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	script := `until grep -q "Seccomp:.2" /proc/$PPID/status; do sleep 0.02; done; grep CapEff /proc/$PPID/status`
	cmd := gradproxyCommand(t, "exec", "-c", file, "--log-level", "info", "--", "sh", "-c", script)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &log)
	}
	const dacOverride, kill = 1 << 1, 1 << 5
	var has uint64
	if _, err := fmt.Sscanf(string(out), "CapEff: %x", &has); err != nil || has&^dacOverride != kill { // the first one where root may not write to its cgroup
		t.Errorf("the process that parses bytes has the capabilities %x (%v), want %x", has, err, uint64(kill))
	}
	found := regexp.MustCompile(`jobs are probed by a process of its own" pid=([0-9]+)`).FindStringSubmatch(log.String())
	if found == nil {
		t.Fatalf("no process probes: %s", &log)
	}
	if name, err := os.ReadFile(filepath.Join("/proc", found[1], "cmdline")); err == nil && strings.HasPrefix(string(name), "gradproxy-prober") {
		t.Errorf("process %s still probes", found[1])
	}
}

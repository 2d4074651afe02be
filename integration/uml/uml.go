// Package uml runs a test's program under another kernel: Debian's user-mode Linux, which is a kernel that is an ordinary
// process, for what the machine's own kernel cannot test. It has what small kernels leave out (netem, fq and other queueing
// disciplines, nftables, TUN, BPF at clsact and cgroups), one processor, no BTF, and a BPF verifier that demands aligned
// access.
//
// The guest sees the host's files, read-only but for /run, where it finds a TMPDIR, and has its own processes, devices,
// cgroups and network. It is up in two seconds and runs programs at native speed. Install it by
// integration/env/install.sh uml.
package uml

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
)

// variable is set in the environment of guests' programs.
const variable = "GRADPROXY_UML"

// Inside reports whether this process runs in a guest.
func Inside() bool { return os.Getenv(variable) != "" }

// Networking are the modules of links, queueing disciplines and their filters.
var Networking = []string{
	"ipv6", "veth", "tun", "ifb", "sch_netem", "sch_tbf", "sch_htb", "sch_fq", "sch_fq_codel", "sch_ingress", "cls_u32", "cls_bpf", "act_mirred",
}

// A Guest says what a program finds. The zero Guest has the modules of Networking, 512 MB of memory and two minutes.
type Guest struct {
	Modules []string      // loaded besides Networking, by name; those that they need are loaded too
	Env     []string      // "NAME=value" added to the host's environment
	Memory  int           // MB; 0: 512
	Timeout time.Duration // after which the guest is killed and the test fails; 0: two minutes
}

// Run boots a zero Guest and runs the program in it, as Guest.Run does.
func Run(t testing.TB, program string, args ...string) string {
	t.Helper()
	return Guest{}.Run(t, program, args...)
}

// Run boots the guest, runs the program in it in the caller's working directory and returns what it wrote. The test fails
// if the program does, with what it wrote in the log. Skips t where user-mode Linux is not installed.
func (g Guest) Run(t testing.TB, program string, args ...string) string {
	t.Helper()
	kernel, modules := find(t)
	job, dir := g.job(t, program, args, modules)

	ctx, cancel := context.WithTimeout(t.Context(), g.timeout())
	defer cancel()
	var console bytes.Buffer
	err := runExactly(g.command(ctx, kernel, dir, job, &console))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatalf("the guest did not end within %v:\n%s", g.timeout(), console.String())
	}
	return verdict(t, console.String(), job.Nonce, err)
}

func (g Guest) timeout() time.Duration {
	if g.Timeout == 0 {
		return 2 * time.Minute
	}
	return g.Timeout
}

// runExactly runs a guest as a real-time process (sched(7)), so that its clock does not wait for the machine's other work,
// and what is timed in it is not the machine's load. Where that is forbidden the guest is less exact.
func runExactly(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, which hands its scheduling on to the guest, ends here
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0)
		started <- cmd.Start()
	}()
	if err := <-started; err != nil {
		return err
	}
	release, err := guard(cmd.Process.Pid)
	if err != nil {
		err = errors.Join(err, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
		return errors.Join(err, cmd.Wait())
	}
	defer release()
	return cmd.Wait()
}

// guard adds a process to the group that kills all of it when this process ends, however it does, and on release. The kernel
// alone (prctl(2), PR_SET_PDEATHSIG) would end only the group's first: the threads that a guest's processes run in stay.
func guard(group int) (release func(), err error) {
	watcher := exec.Command("sh", "-c", "read _; kill -KILL 0")
	watcher.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	alive, err := watcher.StdinPipe() // nobody writes to it: it is closed when its last owner has ended
	if err != nil {
		return nil, err
	}
	if err := watcher.Start(); err != nil {
		return nil, err
	}
	return func() {
		alive.Close()
		_ = watcher.Wait() // it kills itself
	}, nil
}

// A Job tells the guest's first process (integration/uml/init) what to do. It reads it from a file.
type Job struct {
	Nonce   string   // in the lines by which it says where the program's output begins and how it ended
	Program []string // the program, as a path, and its arguments
	Dir     string
	Env     []string
	Modules []string      // files, each after those that it needs
	Timeout time.Duration // after which the guest powers off, whatever runs in it
}

// job writes the Job of a guest that is about to boot into a directory of its own.
func (g Guest) job(t testing.TB, program string, args []string, modules string) (Job, string) {
	t.Helper()
	files, err := resolve(modules, append(Networking[:len(Networking):len(Networking)], g.Modules...))
	if err != nil {
		t.Fatal(err)
	}
	program, err1 := exec.LookPath(program)
	program, err2 := filepath.Abs(program)
	dir, err3 := os.Getwd()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	job := Job{
		Nonce:   filepath.Base(own) + "-" + fmt.Sprint(time.Now().UnixNano()),
		Program: append([]string{program}, args...),
		Dir:     dir,
		Env:     append(append(os.Environ(), g.Env...), variable+"=1", "TMPDIR=/run/tmp"),
		Modules: files,
		Timeout: g.timeout(),
	}
	text, err := json.Marshal(job)
	if err == nil {
		err = os.WriteFile(filepath.Join(own, "job.json"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	require.Command(t, "go")
	build := exec.Command("go", "build", "-o", filepath.Join(own, "init"), "github.com/gradproxy/gradproxy/integration/uml/init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return job, own
}

// command is the guest, which writes to console and dies with ctx.
func (g Guest) command(ctx context.Context, kernel, dir string, job Job, console io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, kernel, g.commandLine(dir, job)...)
	cmd.Stdout, cmd.Stderr = console, console
	// A guest's processes are the host's too. They are of one group, and die together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// commandLine returns the kernel's arguments: the host's root as its own, read-only, and one console, on stdout. Words that
// it does not know it hands to its first process as environment.
func (g Guest) commandLine(dir string, job Job) []string {
	memory := g.Memory
	if memory == 0 {
		memory = 512
	}
	return []string{
		fmt.Sprintf("mem=%dM", memory), "root=none", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "uml_dir=" + dir,
		"con=null", "con0=null,fd:1", "init=" + filepath.Join(dir, "init"), "UML_JOB=" + filepath.Join(dir, "job.json"),
	}
}

// Begin and End are the lines around a program's output, by the job's nonce.
func Begin(nonce string) string { return "uml begin " + nonce }

// End is the line's beginning; the program's exit code follows.
func End(nonce string) string { return "uml end " + nonce + " " }

// verdict finds the program's output on the console and fails the test if the program has not ended well.
func verdict(t testing.TB, console, nonce string, err error) string {
	t.Helper()
	console = strings.ReplaceAll(console, "\r", "")
	_, output, begun := strings.Cut(console, Begin(nonce)+"\n")
	output, code, ended := strings.Cut(output, End(nonce))
	if !begun || !ended {
		t.Fatalf("the guest did not come to its end (%v):\n%s", err, console)
	}
	if code, _, _ = strings.Cut(code, "\n"); code != "0" {
		t.Fatalf("in the guest: exit code %s:\n%s", code, output)
	}
	return output
}

// TestBinary returns the path of a test binary of the package, "." for the caller's, without race detector, whose memory
// layout a guest does not have.
func TestBinary(t testing.TB, pkg string) string {
	t.Helper()
	require.Command(t, "go")
	path := filepath.Join(t.TempDir(), "guest.test")
	build := exec.Command("go", "test", "-c", "-o", path, pkg)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return path
}

// find returns the kernel and its directory of modules, or skips t.
func find(t testing.TB) (kernel, modules string) {
	t.Helper()
	root := os.Getenv("GRADPROXY_ENV")
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		root = filepath.Join(cache, "gradproxy", "env")
	}
	root = filepath.Join(root, "uml")
	_, err := os.Stat(filepath.Join(root, ".complete"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	require.Named(t, "uml", err == nil, "integration/env/install.sh uml")
	found, err := filepath.Glob(filepath.Join(root, "usr/lib/uml/modules/*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: modules of one kernel expected, found %v: remove the directory and run integration/env/install.sh uml", root, found)
	}
	return filepath.Join(root, "usr/bin/linux.uml"), found[0]
}

// resolve returns the files of modules, each after those that it needs (modules.dep(5)).
func resolve(dir string, names []string) (files []string, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	lines := map[string][]string{} // by module name: its file, and those that it needs, the nearest first
	for line := range strings.Lines(string(text)) {
		file, needs, _ := strings.Cut(strings.TrimSpace(line), ":")
		name := strings.TrimSuffix(filepath.Base(file), ".ko")
		lines[name] = append([]string{file}, strings.Fields(needs)...)
	}
	have := map[string]bool{}
	for _, name := range names {
		line, ok := lines[name]
		if !ok {
			return nil, fmt.Errorf("%s has no module %s", dir, name)
		}
		for i := len(line) - 1; i >= 0; i-- {
			if !have[line[i]] {
				have[line[i]] = true
				files = append(files, filepath.Join(dir, line[i]))
			}
		}
	}
	return files, nil
}

// Package vm runs a test's program under another kernel, Linux 6.1, which has netem, fq and other queueing disciplines,
// nftables, TUN, and BPF at clsact and cgroups, whatever the machine's own kernel has. There are two kinds of virtual
// machine:
//
//   - uml: Debian's user-mode Linux, a kernel that is an ordinary process. The guest is up in two seconds, runs
//     programs at native speed, and has one processor, no BTF, and a BPF verifier that demands aligned access. It
//     cannot start on processors with AMX, whose register state exceeds its buffer.
//   - qemu: Debian's packaged kernel in QEMU without KVM, which starts everywhere. The guest is up in about five
//     seconds and runs programs many times slower.
//
// A guest runs in the first that is installed and starts here; the environment variable GRADPROXY_VM chooses one by
// name.
//
// The guest sees the host's files, read-only but for /run, where it finds a TMPDIR, and has its own processes, devices,
// cgroups and network. Install both kinds by integration/env/install.sh uml qemu.
package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
)

// insideVariable is set in the environment of guests' programs.
const insideVariable = "GRADPROXY_INSIDE_VM"

// Inside reports whether this process runs in a guest.
func Inside() bool { return os.Getenv(insideVariable) != "" }

// Networking are the modules of links, queueing disciplines and their filters.
var Networking = []string{
	"ipv6", "veth", "tun", "ifb", "sch_netem", "sch_tbf", "sch_htb", "sch_fq", "sch_fq_codel", "sch_ingress", "cls_u32", "cls_bpf", "act_mirred",
}

// A Guest describes the system that a program finds. The zero Guest has the modules of Networking, 512 MB of memory and
// two minutes.
type Guest struct {
	Kind    string        // of virtual machine: uml or qemu; "": that of the environment variable, or the first that starts here
	Modules []string      // names of modules that are loaded besides Networking and all that they need
	Env     []string      // "NAME=value" added to the host's environment
	Memory  int           // MB; 0: 512
	Timeout time.Duration // time until the guest is killed and the test fails, at native speed; 0: two minutes

	// Exact guests keep their time on a busy machine, as a test needs whose program measures rates or delays.
	// Everything else on the machine waits for them.
	Exact bool
}

// Run boots a zero Guest and runs the program in it, as Guest.Run does.
func Run(t testing.TB, program string, args ...string) string {
	t.Helper()
	return Guest{}.Run(t, program, args...)
}

// Run boots the guest, runs the program in it in the caller's working directory and returns the program's output. The
// test fails if the program fails. Skips t where no kind of virtual machine is installed and starts.
func (g Guest) Run(t testing.TB, program string, args ...string) string {
	t.Helper()
	return g.run(t, choose(t, g.Kind), program, args...)
}

// RunTests runs the tests of a package in the guest and returns their output. pkg is a package's path, "." for the
// caller's; flags are flags of test binaries, such as -test.run. The test fails if one of the package's tests does.
func (g Guest) RunTests(t testing.TB, pkg string, flags ...string) string {
	t.Helper()
	m := choose(t, g.Kind)
	return g.run(t, m, TestBinary(t, pkg), append(testFlags(g.timeout(m)), flags...)...)
}

// RunEach runs the tests of several test binaries in one guest, one after another, and returns their output. Each has
// its binary, of TestBinary, and its flags. The test fails with the first of them that does.
func (g Guest) RunEach(t testing.TB, tests ...[]string) string {
	t.Helper()
	m := choose(t, g.Kind)
	var script strings.Builder
	for _, test := range tests {
		fmt.Fprintf(&script, "%s || exit 1\n", quoted(slices.Concat(test[:1], testFlags(g.timeout(m)), test[1:])))
	}
	return g.run(t, m, "/bin/sh", "-c", script.String())
}

// quoted returns a command as a shell reads it.
func quoted(command []string) string {
	var words []string
	for _, w := range command {
		words = append(words, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
	}
	return strings.Join(words, " ")
}

// testFlags make a test binary print its stacks before a guest's time is over.
func testFlags(limit time.Duration) []string {
	return []string{"-test.v", fmt.Sprintf("-test.timeout=%v", limit-10*time.Second)}
}

func (g Guest) run(t testing.TB, m machine, program string, args ...string) string {
	t.Helper()
	job, dir := g.job(t, m, program, args)
	ctx, cancel := context.WithTimeout(t.Context(), g.timeout(m))
	defer cancel()
	var console bytes.Buffer
	err := g.boot(ctx, m, dir, &console)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatalf("the guest did not end within %v:\n%s", g.timeout(m), console.String())
	}
	return verdict(t, console.String(), job.Nonce, err)
}

// timeout returns the time that a guest has in a virtual machine of the kind m.
func (g Guest) timeout(m machine) time.Duration {
	limit := g.Timeout
	if limit == 0 {
		limit = 2 * time.Minute
	}
	return limit * time.Duration(m.slowdown())
}

func (g Guest) memory() int {
	if g.Memory == 0 {
		return 512
	}
	return g.Memory
}

// A Job tells the guest's first process (integration/vm/init) its work. The process reads it from a file of the host,
// whose path is the value of JobVariable in its environment.
type Job struct {
	Nonce   string   // in the lines by which it marks the begin and the end of the program's output
	Program []string // the program, as a path, and its arguments
	Dir     string
	Env     []string
	Modules []string      // files of the host, each after the modules that it needs
	Timeout time.Duration // time until the guest powers off, whatever runs in it
}

// JobVariable names the file of a Job. A kernel hands words of its command line that it does not know to its first
// process, as environment.
const JobVariable = "VM_JOB"

// jobFile and initFile are names in a guest's directory: of the Job, and of the first process.
const (
	jobFile  = "job.json"
	initFile = "init"
)

// job writes the Job of a guest that is about to boot, and its first process, into a directory of its own.
func (g Guest) job(t testing.TB, m machine, program string, args []string) (Job, string) {
	t.Helper()
	files, err := m.modules().resolve(append(Networking[:len(Networking):len(Networking)], g.Modules...))
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
		Env:     append(append(os.Environ(), g.Env...), insideVariable+"="+m.name(), "TMPDIR=/run/tmp"),
		Modules: files,
		Timeout: g.timeout(m),
	}
	text, err := json.Marshal(job)
	if err == nil {
		err = os.WriteFile(filepath.Join(own, jobFile), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	require.Command(t, "go")
	build := exec.Command("go", "build", "-o", filepath.Join(own, initFile), "github.com/gradproxy/gradproxy/integration/vm/init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return job, own
}

// Begin and End are the lines around a program's output, by the job's nonce.
func Begin(nonce string) string { return "vm begin " + nonce }

// End is the line's beginning; the program's exit code follows.
func End(nonce string) string { return "vm end " + nonce + " " }

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

// TestBinary returns the path of a test binary of the package, "." for the caller's, without race detector, whose
// memory layout a guest does not have.
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

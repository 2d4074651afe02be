//go:build amd64 || arm64

package probe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/vm"
)

// A kernel without uprobes is known by its devices, and nothing is known where they are not shown.
func TestKernelWithoutUprobesIsKnown(t *testing.T) {
	for folder, want := range map[string]string{"": "", "bus": "no uprobes", "bus/event_source/devices/software": "no uprobes", "bus/event_source/devices/uprobe": ""} {
		sys := t.TempDir()
		if err := os.MkdirAll(filepath.Join(sys, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := supported(sys); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", folder, err, want)
		}
	}
}

// The error of a kernel that is too old names a remedy.
func TestOldKernel(t *testing.T) {
	for _, err := range []error{ebpf.ErrNotSupported, syscall.ENOSYS, syscall.EINVAL} {
		if got := explain(fmt.Errorf("load program: %w", err)); !errors.Is(got, err) || !strings.Contains(got.Error(), "Linux 5.15") {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestRefusedLoad is for the process of TestRefusalsHaveAReason.
func TestRefusedLoad(t *testing.T) {
	if os.Getenv(refusedVariable) == "" {
		t.Skip("is for a process without some rights")
	}
	p, err := Load()
	if err == nil {
		p.Close()
		t.Fatal("the programs are loaded")
	}
	fmt.Printf("refused: %v\n", err)
}

// refusedVariable is set in the environment of processes that lack rights.
const refusedVariable = "GRADPROXY_PROBE_REFUSED"

// A process that may not probe says in one line which capability it lacks, or that it is in a place where none helps.
func TestRefusalsHaveAReason(t *testing.T) {
	require.Root(t)
	for _, c := range []struct {
		want    string
		command []string
	}{
		{"CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE are missing: run gradproxy as root", []string{"setpriv", "--inh-caps=-all", "--bounding-set=-all"}},
		{"CAP_PERFMON and CAP_SYS_PTRACE are missing: run gradproxy as root", []string{"setpriv", "--inh-caps=-all,+bpf", "--bounding-set=-all,+bpf"}},
		{"the kernel refuses uprobes in a user namespace: run gradproxy outside of it", []string{"unshare", "--user", "--map-root-user"}},
	} {
		require.Command(t, c.command[0])
		cmd := exec.Command(c.command[0], slices.Concat(c.command[1:], []string{os.Args[0], "-test.run", "^TestRefusedLoad$"})...)
		cmd.Env = append(os.Environ(), refusedVariable+"=1", "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		line, _, _ := strings.Cut(string(out), "\n")
		if err != nil || !strings.HasPrefix(line, "refused: probe: "+c.want) {
			t.Errorf("%v: %v\n%s\nwant %q", c.command, err, out, c.want)
		}
	}
}

// Lockdown keeps programs from the kernel's memory, of which these read none: calls are told at both of its levels.
func TestUnderLockdown(t *testing.T) {
	if !vm.Inside() {
		t.Skip("raises the kernel's lockdown, which lasts until it boots: for the guest of TestProbesUnderAnotherKernel")
	}
	const folder = "/sys/kernel/security"
	if err := unix.Mount("securityfs", folder, "securityfs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		t.Fatal(err)
	}
	if err := readsKernel(); err != nil {
		t.Fatalf("before lockdown: %v", err)
	}
	for _, level := range []string{"integrity", "confidentiality"} {
		file := filepath.Join(folder, "lockdown")
		err := os.WriteFile(file, []byte(level), 0)
		now, err1 := os.ReadFile(file)
		if err := errors.Join(err, err1); err != nil || !strings.Contains(string(now), "["+level+"]") {
			t.Fatalf("the kernel's lockdown is %q, %v, want %s", now, err, level)
		}
		p := load(t)
		j := built(t, releases[0]).start(t)
		j.do("new 0 4")
		j.find(p)
		j.do("announce 1")
		if c := j.call(j.do("reduce 0 1 0")); !c.Bucket || c.Elements != 1001 {
			t.Errorf("%s: a bucket's call is %+v", level, c)
		}
		if c := j.call(j.do("reduce 0 1 0")); c.Bucket || c.Elements != 1001 {
			t.Errorf("%s: somebody's call is %+v", level, c)
		}
	}
	if err := readsKernel(); err == nil {
		t.Error("a program may read the kernel's memory: this lockdown shows nothing")
	}
}

// readsKernel loads a program that reads a word of the kernel's memory.
func readsKernel() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, -8),
		asm.Mov.Imm(asm.R2, 8),
		asm.FnProbeReadKernel.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}})
	if err != nil {
		return err
	}
	return p.Close()
}

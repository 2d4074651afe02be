//go:build linux

// Init is the first process of a guest of package vm: it makes a Linux system of the bare kernel, runs the Job's
// program, says how that ended, and powers off.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/vm"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: is for guests of package vm, as their first process")
		os.Exit(2)
	}
	if err := start(); err != nil {
		fmt.Println("init:", err)
	}
	powerOff()
}

func powerOff() {
	// Never restart: a user-mode kernel would execute itself again, for ever.
	unix.Sync()
	fmt.Println("init: power off:", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

func start() error {
	if err := enterHost(); err != nil {
		return err
	}
	text, err := os.ReadFile(os.Getenv(vm.JobVariable))
	if err != nil {
		return err
	}
	var job vm.Job
	if err := json.Unmarshal(text, &job); err != nil {
		return err
	}
	time.AfterFunc(job.Timeout, func() { // also where no test is left that could end the guest
		fmt.Println("init: the guest's time is over:", job.Timeout)
		powerOff()
	})
	if err := errors.Join(mountAll(), loadModules(job.Modules), loopbackUp()); err != nil {
		return err
	}
	program := exec.Command(job.Program[0], job.Program[1:]...)
	program.Dir, program.Env = job.Dir, job.Env
	program.Stdout, program.Stderr = os.Stdout, os.Stdout
	fmt.Println(vm.Begin(job.Nonce))
	err = program.Run()
	code := program.ProcessState.ExitCode() // -1: killed by a signal, or not started
	if err != nil {
		fmt.Println("init:", err)
	}
	fmt.Println(vm.End(job.Nonce) + fmt.Sprint(code))
	return nil
}

// enterHost makes the host's root this process's, if the kernel has not: in QEMU the first root is the initial file
// system.
func enterHost() error {
	first, err := filepath.Glob(vm.FirstModules + "/*")
	if err != nil || len(first) == 0 {
		return err
	}
	if err := loadModules(first); err != nil {
		return err
	}
	if err := os.Mkdir("/host", 0o755); err != nil {
		return err
	}
	if err := unix.Mount(vm.HostTag, "/host", "9p", unix.MS_RDONLY, "trans=virtio,version=9p2000.L,msize=524288,cache=loose"); err != nil {
		return fmt.Errorf("mount the host's root: %w", err)
	}
	// An initial file system cannot be unmounted; the host's is moved over it.
	err = errors.Join(unix.Chdir("/host"), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), unix.Chdir("/"))
	if err != nil {
		return fmt.Errorf("enter the host's root: %w", err)
	}
	return nil
}

// mountAll mounts the file systems that a program expects besides the host's files.
func mountAll() error {
	for _, m := range []struct {
		kind, at, options string
	}{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"tmpfs", "/run", "mode=0755"},
		{"cgroup2", "/sys/fs/cgroup", ""},
		{"bpf", "/sys/fs/bpf", ""},
	} {
		err := unix.Mount(m.kind, m.at, m.kind, 0, m.options)
		if err != nil && !errors.Is(err, unix.EBUSY) { // the kernel may have mounted it itself
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.at, err)
		}
	}
	return errors.Join(os.Mkdir("/run/tmp", 0o777), os.Mkdir("/run/netns", 0o755))
}

func loadModules(files []string) error {
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", file, err)
		}
	}
	return nil
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

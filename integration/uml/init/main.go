// Init is the first process of a guest of package uml: it makes a Linux system of the bare kernel, runs the Job's program,
// says how that ended, and powers off.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/uml"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: is for guests of package uml, as their first process")
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
	text, err := os.ReadFile(os.Getenv("UML_JOB"))
	if err != nil {
		return err
	}
	var job uml.Job
	if err := json.Unmarshal(text, &job); err != nil {
		return err
	}
	time.AfterFunc(job.Timeout, func() { // also where nobody is left to end the guest
		fmt.Println("init: the guest's time is over:", job.Timeout)
		powerOff()
	})
	if err := errors.Join(mountAll(), loadModules(job.Modules), loopbackUp()); err != nil {
		return err
	}
	program := exec.Command(job.Program[0], job.Program[1:]...)
	program.Dir, program.Env = job.Dir, job.Env
	program.Stdout, program.Stderr = os.Stdout, os.Stdout
	fmt.Println(uml.Begin(job.Nonce))
	err = program.Run()
	code := program.ProcessState.ExitCode() // -1: killed by a signal, or not started
	if err != nil {
		fmt.Println("init:", err)
	}
	fmt.Println(uml.End(job.Nonce) + fmt.Sprint(code))
	return nil
}

// mountAll gives the guest what a program expects besides the host's files.
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

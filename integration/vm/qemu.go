package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// qemu is QEMU without KVM (its Tiny Code Generator), with a packaged kernel.
type qemu struct {
	program, kernel string
	mods            *modules
}

func openQEMU(dir string) (machine, error) {
	program, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return nil, err
	}
	kernel, err := one(filepath.Join(dir, "boot/vmlinuz-*"))
	if err != nil {
		return nil, err
	}
	mods, err := openModules(filepath.Join(dir, "lib/modules/*"))
	if err != nil {
		return nil, err
	}
	return &qemu{program, kernel, mods}, nil
}

func (q *qemu) name() string      { return "qemu" }
func (q *qemu) modules() *modules { return q.mods }
func (q *qemu) slowdown() int     { return 4 }

// HostTag is the tag of the host's root, which is a file system over 9P.
const HostTag = "host"

// FirstModules is the directory of the initial file system with the modules that mounting the host's root takes. They
// are loaded in the order of their names.
const FirstModules = "/first-modules"

// command writes the guest's initial file system, in which the first process mounts the host's.
func (q *qemu) command(g Guest, dir string) ([]string, error) {
	files, err := q.mods.resolve([]string{"virtio_pci", "9pnet_virtio", "9p"})
	if err != nil {
		return nil, err
	}
	content := []entry{
		{name: "dev", mode: directory | 0o755},
		{name: "dev/console", mode: characterDevice | 0o600, major: 5, minor: 1},
		{name: FirstModules[1:], mode: directory | 0o755},
	}
	add := func(name, file string, mode uint32) {
		data, err1 := os.ReadFile(file)
		if err1 != nil {
			err = err1
		}
		content = append(content, entry{name: name, mode: regularFile | mode, data: data})
	}
	add("init", filepath.Join(dir, initFile), 0o755)
	for i, file := range files {
		add(fmt.Sprintf("%s/%02d-%s", FirstModules[1:], i, filepath.Base(file)), file, 0o644)
	}
	if err != nil {
		return nil, err
	}
	initial := filepath.Join(dir, "initial.cpio")
	if err := os.WriteFile(initial, archive(content), 0o644); err != nil {
		return nil, err
	}
	// Without no_timer_check the kernel panics where the emulated timer does not tick in time for its check, as on a
	// busy machine.
	return []string{
		q.program, "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", fmt.Sprint(g.memory()),
		"-kernel", q.kernel, "-initrd", initial,
		"-append", "console=ttyS0 panic=-1 quiet no_timer_check " + JobVariable + "=" + filepath.Join(dir, jobFile),
		"-virtfs", "local,path=/,mount_tag=" + HostTag + ",security_model=none,readonly=on,multidevs=remap",
	}, nil
}

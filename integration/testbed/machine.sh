#!/bin/sh
# machine.sh FOLDER: becomes systemd on a copy of this host's files, whose changes lie in memory. It runs in mount, PID, IPC, UTS and cgroup
# namespaces of its own, so nothing of it outlives them.
set -e
mount --make-rprivate /
mount -t tmpfs machine "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay machine -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
r=$1/root
mount -t tmpfs run "$r/run"
mount -t proc proc "$r/proc"
mount --bind -o ro "$r/proc/sys" "$r/proc/sys" 2>/dev/null || true
mount -o remount,bind,ro "$r/proc/sys"
mount -t sysfs -o ro sys "$r/sys"
mount -t cgroup2 cgroup "$r/sys/fs/cgroup"
mount -t tmpfs dev "$r/dev"
for d in null zero full random urandom tty; do
	touch "$r/dev/$d"
	mount --bind "/dev/$d" "$r/dev/$d"
done
mkdir "$r/dev/pts" "$r/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$r/dev/pts"
ln -s pts/ptmx "$r/dev/ptmx"
ln -s /proc/self/fd "$r/dev/fd"
touch "$r/dev/console"

# Services of the host have no business here, and no unit may set parameters of the kernel that both share.
rm -rf "$r/etc/systemd/system" "$r/etc/gradproxy" "$r/var/lib/gradproxy" "$r/var/log/journal"
mkdir -p "$r/etc/systemd/system"
for unit in systemd-sysctl systemd-modules-load systemd-remount-fs systemd-udevd systemd-udev-trigger systemd-tmpfiles-setup-dev systemd-random-seed \
	systemd-firstboot systemd-networkd systemd-resolved systemd-timesyncd kmod-static-nodes systemd-update-utmp; do
	ln -s /dev/null "$r/etc/systemd/system/$unit.service"
done
ln -s /dev/null "$r/etc/systemd/system/getty.target"
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$r/etc/machine-id"
hostname machine
cd "$r"
exec chroot . env -i container=gradproxy PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --show-status=no --log-target=null --unit=basic.target

#!/bin/sh
# After an installation and after an upgrade, of .deb ("configure", and the old version if there was one) and of .rpm (the number of versions).
set -e
# /usr/sbin is not on every PATH.
PATH=$PATH:/usr/sbin:/sbin
getent passwd gradproxy >/dev/null || useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin gradproxy
chown root:gradproxy /etc/gradproxy
chmod 0750 /etc/gradproxy

upgraded=
case $1 in
configure) [ -z "${2:-}" ] || upgraded=yes ;;
[2-9]) upgraded=yes ;;
abort-*) exit 0 ;;
esac
# Without systemd (in a container, in a chroot) there is no service.
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || true
if [ -n "$upgraded" ]; then
	/usr/lib/gradproxy/upgrade || true
elif [ ! -e /etc/gradproxy/gradproxy.yaml ]; then
	echo 'gradproxy: "gradproxy init" writes the configuration of both sites; copy a site'\''s files to its /etc/gradproxy, then: systemctl enable --now gradproxy'
fi

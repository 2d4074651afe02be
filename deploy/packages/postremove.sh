#!/bin/sh
# After a removal. Configuration, certificates and keys in /etc/gradproxy are yours, and stay; so does the user that owns them.
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload || true
[ "$1" != purge ] || rm -rf /var/lib/gradproxy /run/gradproxy

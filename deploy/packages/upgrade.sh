#!/bin/sh
# Puts the gradproxy that is installed now in place of the one that runs, without the loss of a connection: gradproxy-next.service takes everything over
# from gradproxy.service, which ends by itself, and a new gradproxy.service takes it over in turn. Where a hand-over fails the process that has the connections
# carries on. Package upgrades run it; so may you.
set -u
say() { echo "gradproxy: $*" >&2; }
runs() { systemctl is-active --quiet "$1"; }
again='/usr/lib/gradproxy/upgrade'
if ! runs gradproxy && ! runs gradproxy-next; then
	say 'the service does not run: nothing to upgrade'
	exit 0
fi
config=/etc/gradproxy/gradproxy.yaml
if ! grep -q '^upgrade:' "$config" 2>/dev/null; then
	say "the old version runs on: without upgrade.socket in $config only systemctl restart gradproxy changes it, and that resets the job's connections"
	exit 0
fi
# Where gradproxy-next.service runs alone, an earlier upgrade has come half way: what is left to do is the same.
if runs gradproxy && ! systemctl start gradproxy-next; then
	systemctl reset-failed gradproxy-next 2>/dev/null
	say "the old version runs on, since the new one could not take over (journalctl -u gradproxy -u gradproxy-next says why); try again: $again"
	exit 0
fi
# The old process ends once the new one has everything, a moment after that is ready.
for _ in $(seq 300); do
	runs gradproxy || break
	sleep 0.1
done
if runs gradproxy; then
	say "the new version runs as gradproxy-next.service, and the old process has not ended; once it has: $again"
	exit 0
fi
for pause in 1 5 15 ''; do
	systemctl start gradproxy && { say 'the new version has taken over'; exit 0; }
	[ -n "$pause" ] && sleep "$pause"
done
say "the new version runs as gradproxy-next.service, which the next start of the host forgets; when its connections come to rest: $again"

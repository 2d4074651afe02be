//go:build linux

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// distVariable is the environment variable that names a folder which deploy/build.sh has filled.
const distVariable = "GRADPROXY_DIST"

var versionLine = regexp.MustCompile(`(?m)^Version: .*$`)

// buildPackages returns the .deb for this host's processor, and an older version of it, which differs in nothing but
// its version.
func buildPackages(t *testing.T) (older, newer string) {
	t.Helper()
	for _, program := range []string{"go", "git", "dpkg-deb"} {
		require.Command(t, program)
	}
	scratch, dist := t.TempDir(), os.Getenv(distVariable)
	if dist == "" {
		dist = t.TempDir()
		cmd := exec.Command("../deploy/build.sh", dist)
		cmd.Env = append(os.Environ(), "ARCHES="+runtime.GOARCH)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("deploy/build.sh: %v\n%s", err, out)
		}
	}
	newer, older = filepath.Join(dist, "gradproxy_"+runtime.GOARCH+".deb"), filepath.Join(scratch, "older.deb")
	content := filepath.Join(scratch, "content")
	run(t, "dpkg-deb", "-R", newer, content)
	control := filepath.Join(content, "DEBIAN", "control")
	text, err := os.ReadFile(control)
	if err != nil || len(versionLine.FindAll(text, -1)) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	if err := os.WriteFile(control, versionLine.ReplaceAll(text, []byte("Version: 0.0.0~before")), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "dpkg-deb", "--root-owner-group", "-Zgzip", "-b", content, older)
	return older, newer
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
}

// machines boots a machine with its own systemd at each site of w.
func machines(t *testing.T, w *testbed.WAN) (all []*testbed.Machine) {
	t.Helper()
	_, err := os.Stat("/lib/systemd/systemd")
	require.Named(t, "systemd", err == nil, "install systemd; it need not run")
	require.Command(t, "unshare")
	for _, site := range w.Sites {
		m, err := site.Boot(deadline(t, patience), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				if log, err := m.Run(deadline(t, time.Minute), "journalctl", "--no-pager", "--lines=60"); err == nil {
					t.Logf("the journal of a machine:\n%s", log)
				}
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
		all = append(all, m)
	}
	return all
}

// sh runs a line of shell on a machine.
func sh(t *testing.T, m *testbed.Machine, line string) string {
	t.Helper()
	out, err := m.Run(deadline(t, 3*time.Minute), "/bin/sh", "-ec", line)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fiveCommands returns the commands of README.md's first deployment, each with the site for which its comment names it:
// paris, tokyo or both sites.
func fiveCommands(t *testing.T) (commands [][2]string) {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## First deployment\n")
	_, rest, _ = strings.Cut(rest, "\n```sh\n")
	block, _, found := strings.Cut(rest, "\n```\n")
	if !found {
		t.Fatal("README.md has no commands for a first deployment")
	}
	for line := range strings.Lines(block) {
		command, where, said := strings.Cut(strings.TrimSpace(line), "  # ")
		where, _, _ = strings.Cut(where, ":")
		if !said || !slices.Contains([]string{"both", "paris"}, where) {
			t.Fatalf("README.md: %q does not begin its comment with both: or paris:", line)
		}
		commands = append(commands, [2]string{where, strings.TrimSpace(command)})
	}
	if len(commands) != 5 {
		t.Fatalf("README.md: %d commands, want 5", len(commands))
	}
	return commands
}

// A newcomer's five commands lead from the package to the first saved byte, on two hosts that have never seen
// gradproxy. Then both packages are upgraded while a job of DistributedDataParallel trains, which notices nothing.
// Removing the package leaves the host as it was, but for the configuration.
func TestPackageFromInstallToRemoval(t *testing.T) {
	t.Parallel()
	job := torchJob(t, "torch113", 2, "--timeout", "120", "--steps", "30")
	older, newer := buildPackages(t)
	want := direct(t, job)
	job.Args = append(job.Args, "--sleep", "0.4") // the upgrades, of 5 s each, come amid its steps
	w := newWAN(t, 2, lan)
	hosts := machines(t, w)
	paris, tokyo := hosts[0], hosts[1]

	// scp stands for the copying to the other host, as a person would do it by any means; the two hosts share no disk.
	const scp = "#!/bin/sh\nset -e\nmkdir -p /root/sent\nfor f; do case $f in root@*) ;; *) cp \"$f\" /root/sent/ ;; esac; done\n"
	const sudo = "#!/bin/sh\nexec \"$@\"\n"
	for _, m := range hosts {
		for name, text := range map[string]string{"/bin/scp": scp, "/bin/sudo": sudo} {
			if err := os.WriteFile(m.Path("/usr/local"+name), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Put(older, "/root/gradproxy_amd64.deb"); err != nil {
			t.Fatal(err)
		}
		if err := m.Put(newer, "/root/newer.deb"); err != nil {
			t.Fatal(err)
		}
	}
	place := strings.NewReplacer("10.1.0.1", w.Sites[0].Addr.String(), "10.2.0.1", w.Sites[1].Addr.String())
	began := time.Now()
	var running *testbed.Run
	for _, c := range fiveCommands(t) {
		where, command := c[0], "cd /root; export PATH=/usr/local/bin:$PATH; "+place.Replace(c[1])
		t.Logf("%s: %s", where, c[1])
		sh(t, paris, command)
		if where == "both" {
			sh(t, tokyo, command)
		}
		if strings.Contains(c[1], "scp ") {
			sent, err := filepath.Glob(paris.Path("/root/sent/*"))
			if err != nil || len(sent) != 4 {
				t.Fatalf("%d files were copied to the other site: %v", len(sent), err)
			}
			for _, file := range sent {
				if err := tokyo.Put(file, "/etc/gradproxy/"+filepath.Base(file)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if strings.Contains(c[1], "gradproxy ready") {
			before := w.LinkBytes()
			running = startJob(t, w, job)
			for _, rank := range running.Ranks {
				if err := rank.Step(deadline(t, 2*time.Minute), 2); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("step 2 after %.0f s, %d bytes on the link", time.Since(began).Seconds(), w.LinkBytes()-before)
		}
	}
	if running == nil {
		t.Fatal("README.md's commands do not wait for the proxies: gradproxy ready")
	}
	checkSaving(t, []byte(sh(t, paris, "gradproxy status --json")))
	_, noLandlock := ll.LandlockGetABIVersion()
	for _, m := range hosts { // the unit's own filter leaves the proxy the calls by which it confines itself
		said := sh(t, m, "journalctl --no-pager --unit gradproxy | grep 'this process is confined'")
		for _, want := range []string{"files=bounded", "system_calls=bounded"} {
			if !strings.Contains(said, want) && (noLandlock == nil || want != "files=bounded") {
				t.Errorf("the journal does not say %s: %s", want, said)
			}
		}
	}

	for i, m := range hosts {
		pid := strings.TrimSpace(sh(t, m, "systemctl show --property MainPID --value gradproxy"))
		began := time.Now()
		said := sh(t, m, "dpkg -i /root/newer.deb 2>&1")
		if !strings.Contains(said, "gradproxy: the new version has taken over") {
			t.Fatalf("the upgrade says:\n%s", said)
		}
		t.Logf("upgrade of site %d: %.1f s", i, time.Since(began).Seconds())
		if after := strings.TrimSpace(sh(t, m, "systemctl show --property MainPID --value gradproxy")); after == pid || after == "0" {
			t.Errorf("process %s of the service is %s after the upgrade", pid, after)
		}
		if state, _ := m.Run(deadline(t, time.Minute), "systemctl", "is-active", "gradproxy", "gradproxy-next"); state != "active\ninactive\n" {
			t.Errorf("the two units are %q", state)
		}
		for _, rank := range running.Ranks {
			if err := rank.Step(deadline(t, 2*time.Minute), 6+8*i); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := running.Wait()
	if err := testbed.Failures(got); err != nil {
		t.Fatal(err)
	}
	sameResults(t, want.results, got)

	sh(t, paris, `gzip -dc /usr/share/man/man1/gradproxy-run.1.gz | grep -q 'gradproxy-run - Run this site'`)
	sh(t, paris, `test ! -e /usr/share/man/man1/gradproxy-man.1.gz; bash -c '. /usr/share/bash-completion/completions/gradproxy && complete -p gradproxy' >&2`)
	sh(t, paris, "grep -q CAP_PERFMON /usr/share/gradproxy/probes.conf")
	sh(t, paris, "gradproxy check --no-files /usr/share/doc/gradproxy/examples/gradproxy.yaml")
	table := "nft list tables | grep gradproxy_"
	sh(t, paris, table)
	files := strings.Fields(sh(t, paris, "dpkg -L gradproxy"))
	sh(t, paris, "dpkg -r gradproxy >&2; ! systemctl is-active gradproxy; ! "+table)
	for _, file := range files {
		if info, err := os.Lstat(paris.Path(file)); err == nil && !info.IsDir() {
			t.Errorf("%s is left behind", file)
		}
	}
	sh(t, paris, "test -s /etc/gradproxy/gradproxy.yaml") // it is the user's

	// Without systemd, as in a container, the package installs and goes just so.
	sh(t, tokyo, `unshare -m sh -ec 'systemctl() { exit 9; }; mount -t tmpfs none /run; dpkg -r gradproxy; dpkg -i /root/newer.deb; gradproxy version; dpkg --purge gradproxy' >&2`)
}

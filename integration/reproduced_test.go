package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The same commit gives the same bytes in another folder, which is a work tree of git's, for another builder in another
// time zone, whose new files nobody else may read. The checksums match the files, the program tells the package's
// version and the commit, and everybody may read the files of a package.
func TestBuildIsReproducible(t *testing.T) {
	t.Parallel()
	require.Long(t)
	for _, program := range []string{"go", "git", "dpkg-deb", "sha256sum"} {
		require.Command(t, program)
	}
	scratch := t.TempDir()
	build := func(checkout, umask, zone, add string) (dist string) {
		t.Helper()
		dist = filepath.Join(checkout, "dist")
		cmd := exec.Command("sh", "-c", `umask "$1" && `+add+` "$2" && cd "$2" && VERSION=1.2.3 deploy/build.sh dist`, "sh", umask, checkout)
		cmd.Env = append(os.Environ(), "TZ="+zone, "LC_ALL=C", "ARCHES="+runtime.GOARCH)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", checkout, err, out)
		}
		return dist
	}
	first := filepath.Join(scratch, "one")
	one := build(first, "022", "UTC", "git clone -q ..")
	other := build(filepath.Join(scratch, "another", "checkout"), "077", "Asia/Tokyo", "git -C "+first+" worktree add -q --detach")
	if out, err := exec.Command("git", "-C", first, "status", "--porcelain").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("a second build would call the checkout changed: %s, %v", out, err)
	}
	files, err := os.ReadDir(one)
	if err != nil || len(files) != 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		a, err := os.ReadFile(filepath.Join(one, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(other, f.Name())); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs: %d and %d bytes, %v", f.Name(), len(a), len(b), err)
		}
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = other
	if out, err := sums.CombinedOutput(); err != nil || bytes.Count(out, []byte(": OK\n")) != 4 {
		t.Errorf("the checksums: %v\n%s", err, out)
	}
	commit, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command(filepath.Join(other, "gradproxy-linux-"+runtime.GOARCH), "version").Output()
	if want := fmt.Sprintf("gradproxy 1.2.3 (%s) ", bytes.TrimSpace(commit)); err != nil || !strings.HasPrefix(string(said), want) {
		t.Errorf("the program says %q, %v, want %q", said, err, want)
	}
	list, err := exec.Command("dpkg-deb", "--contents", filepath.Join(other, "gradproxy_"+runtime.GOARCH+".deb")).Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		if name := fields[len(fields)-1]; name != "./etc/gradproxy/" && (len(fields[0]) != 10 || fields[0][7] != 'r') {
			t.Errorf("%s has the mode %s", name, fields[0])
		}
		seen++
	}
	if seen < 30 {
		t.Errorf("the package has %d files", seen)
	}
}

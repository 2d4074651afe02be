package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The same commit gives the same bytes in another folder, for another builder in another time zone, whose new files
// nobody else may read. The checksums are those of the files, and the files of a package are readable by all.
func TestBuildIsReproducible(t *testing.T) {
	t.Parallel()
	require.Long(t)
	for _, program := range []string{"go", "git", "dpkg-deb", "sha256sum"} {
		require.Command(t, program)
	}
	scratch := t.TempDir()
	build := func(folder, umask, zone string) (dist string) {
		t.Helper()
		checkout := filepath.Join(scratch, folder)
		dist = filepath.Join(checkout, "dist")
		const script = `umask "$1" && git clone -q .. "$2" && cd "$2" && deploy/build.sh dist`
		cmd := exec.Command("sh", "-c", script, "sh", umask, checkout)
		cmd.Env = append(os.Environ(), "TZ="+zone, "LC_ALL=C", "ARCHES="+runtime.GOARCH)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", folder, err, out)
		}
		return dist
	}
	one, other := build("one", "022", "UTC"), build("another/checkout", "077", "Asia/Tokyo")
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

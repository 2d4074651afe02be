//go:build linux

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// The image of deploy/Dockerfile is built, and its containers, with NET_ADMIN and no other capability, in the network
// namespaces of a job's ranks, carry the job.
func TestImage(t *testing.T) {
	t.Parallel()
	require.Long(t)
	require.Root(t)
	require.Command(t, "buildah")
	python, complete := testbed.Python("torch113")
	require.Named(t, "torch113", complete, "run integration/env/install.sh torch113")
	source, store := t.TempDir(), t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(source, "gradproxy-linux-"+runtime.GOARCH), "../cmd/gradproxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	buildah := func(args ...string) []string {
		return append([]string{"buildah", "--storage-driver", "vfs", "--root", filepath.Join(store, "root"), "--runroot", filepath.Join(store, "run")}, args...)
	}
	run(t, buildah("bud", "--isolation", "chroot", "--format", "docker", "--build-arg", "TARGETARCH="+runtime.GOARCH, "-f", "../deploy/Dockerfile", "-t", "gradproxy", source)...)
	t.Cleanup(func() { exec.Command("buildah", buildah("rm", "--all")[1:]...).Run() })
	g := newGuide(t, python, func(site *testbed.Site, folder string) *exec.Cmd {
		run(t, buildah("from", "--name", site.Site, "gradproxy")...)
		limits := []string{"run", "--isolation", "chroot", "--cap-add", "CAP_NET_ADMIN"}
		for _, c := range strings.Fields("AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_CHROOT") {
			limits = append(limits, "--cap-drop", "CAP_"+c) // "all" would be stronger than --cap-add
		}
		argv := append(buildah(limits...), "-v", folder+":/etc/gradproxy", "-v", folder+":"+folder, site.Site, "--",
			"/gradproxy", "run", "-c", "/etc/gradproxy/gradproxy.yaml")
		return site.Command(argv[0], argv[1:]...)
	})
	g.follow("pytorch")
	g.saves()
}

//go:build linux

package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
)

// namespaceLines returns the commands of docs/operations.md, "Two network namespaces": the one that builds the program,
// and the ones that use it.
func namespaceLines(t *testing.T) (build, use string) {
	t.Helper()
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n## Two network namespaces\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	for _, lines := range []*string{&build, &use} {
		var found bool
		_, rest, _ = strings.Cut(rest, "\n```sh\n")
		if *lines, rest, found = strings.Cut(rest, "\n```\n"); !found {
			t.Fatal("docs/operations.md has no commands for two network namespaces")
		}
	}
	return build, use
}

// namespaceJob fetches a file over the WAN by programs that know nothing of gradproxy, and prints the status of both
// proxies.
const namespaceJob = `
ip netns exec tokyo python3 -m http.server --bind 10.2.0.1 8000 >/dev/null 2>&1 &
ip netns exec paris python3 -c '
import time, urllib.request
for last in range(200):
    try:
        assert urllib.request.urlopen("http://10.2.0.1:8000/tokyo/gradproxy.yaml").read() == open("tokyo/gradproxy.yaml", "rb").read()
        break
    except OSError:
        if last == 199: raise
        time.sleep(0.05)
'
ip netns exec paris gradproxy status --json >paris.json
ip netns exec tokyo gradproxy status --json >tokyo.json
`

// The commands of docs/operations.md lead to two proxies with a tunnel between two namespaces, which carries an app's
// connection. They run in a mount and a PID namespace, so that the names of network namespaces meet no others, and
// nothing outlives the script.
func TestNamespacesOfOperations(t *testing.T) {
	t.Parallel()
	require.Root(t)
	for _, program := range []string{"ip", "nft", "unshare", "python3", "go"} {
		require.Command(t, program)
	}
	dir, bin := t.TempDir(), t.TempDir()
	build, use := namespaceLines(t)
	const installed = "/usr/local/bin" // of the host, which a test must not change
	if !strings.Contains(build, installed+"/gradproxy") {
		t.Fatalf("%q does not install the program in %s", build, installed)
	}
	compile := exec.CommandContext(deadline(t, 10*time.Minute), "bash", "-ec", strings.ReplaceAll(build, installed, bin))
	compile.Dir = ".."
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	const begin = "set -e\nmount -t tmpfs none /run\nmkdir /run/netns\ntrap 'kill $(jobs -p); wait' EXIT\n"
	script := exec.CommandContext(deadline(t, 2*time.Minute), "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", begin+use+"\n"+namespaceJob)
	script.Dir = dir
	script.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, site := range []string{"paris", "tokyo"} {
		text, err := os.ReadFile(filepath.Join(dir, site+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var status struct {
			Ready     bool
			Raw       int64 `json:"raw_bytes"`
			Delivered int64 `json:"delivered_bytes"`
		}
		if err := json.Unmarshal(text, &status); err != nil {
			t.Fatal(err)
		}
		if !status.Ready || status.Raw == 0 || status.Delivered == 0 {
			t.Errorf("the proxy of %s is not ready, or the connection did not cross the tunnel:\n%s", site, text)
		}
	}
}

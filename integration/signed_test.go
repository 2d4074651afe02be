//go:build linux

package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

var nfpmModule = regexp.MustCompile(`(?m)^packer=(\S+)$`)

// With a key packages are signed: rpm and gpg find the signatures of both kinds good, and a changed package bad.
// Without one they are not signed. The packages hold small files in place of the program.
func TestPackagesAreSigned(t *testing.T) {
	t.Parallel()
	require.Long(t)
	for _, program := range []string{"go", "gpg", "rpm", "ar"} {
		require.Command(t, program)
	}
	scratch := t.TempDir()
	build, err := os.ReadFile("../deploy/build.sh")
	module := nfpmModule.FindSubmatch(build)
	if err != nil || module == nil {
		t.Fatalf("deploy/build.sh names no packer: %v", err)
	}
	environment := append(os.Environ(), "GOBIN="+scratch, "GOFLAGS=", "GNUPGHOME="+scratch, "NFPM="+filepath.Join(scratch, "nfpm"))
	do := func(more []string, dir string, argv ...string) []byte {
		t.Helper()
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = dir, append(environment, more...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
		return out
	}
	do(nil, ".", "go", "install", string(module[1]))
	t.Cleanup(func() { do(nil, "/", "gpgconf", "--kill", "all") })
	do(nil, ".", "gpg", "--batch", "--pinentry-mode", "loopback", "--passphrase", "a word", "--quick-generate-key", "test <test@example.invalid>", "rsa2048", "sign", "never")
	key, public := filepath.Join(scratch, `a "key" & more|`), filepath.Join(scratch, "public")
	do(nil, ".", "gpg", "--batch", "--pinentry-mode", "loopback", "--passphrase", "a word", "--armor", "--output", key, "--export-secret-keys")
	do(nil, ".", "gpg", "--batch", "--armor", "--output", public, "--export")
	stage := filepath.Join(scratch, "stage")
	for _, file := range []string{"gradproxy-amd64", "upgrade", "units/a.service", "man/a.1.gz", "completion/bash", "completion/zsh", "completion/fish"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(stage, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(stage, file), []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pack := func(name string, more ...string) string {
		t.Helper()
		out := filepath.Join(scratch, name)
		if err := os.Mkdir(out, 0o755); err != nil {
			t.Fatal(err)
		}
		do(more, "..", "deploy/packages/pack.sh", stage, "amd64", "1.2.3", out)
		return out
	}
	signed, plain := pack("signed", "GRADPROXY_SIGN_KEY="+key, "NFPM_PASSPHRASE=a word"), pack("plain", "GRADPROXY_SIGN_KEY=")

	rpm := func(argv ...string) *exec.Cmd {
		return exec.Command("rpm", append([]string{"--dbpath", filepath.Join(scratch, "db")}, argv...)...)
	}
	if out, err := rpm("--import", public).CombinedOutput(); err != nil {
		t.Fatalf("rpm --import: %v\n%s", err, out)
	}
	good := func(folder string) bool {
		out, err := rpm("--checksig", filepath.Join(folder, "gradproxy_amd64.rpm")).CombinedOutput()
		return err == nil && bytes.Contains(out, []byte("signatures OK"))
	}
	if !good(signed) || good(plain) {
		t.Errorf("rpm: the signed package is good: %v, the other one: %v", good(signed), good(plain))
	}

	parts := filepath.Join(scratch, "parts")
	if err := os.Mkdir(parts, 0o755); err != nil {
		t.Fatal(err)
	}
	do(nil, parts, "ar", "x", filepath.Join(signed, "gradproxy_amd64.deb"))
	verify := func() error {
		cmd := exec.Command("/bin/sh", "-c", "cat debian-binary control.tar.* data.tar.* | gpg --batch --verify _gpgorigin -")
		cmd.Dir, cmd.Env = parts, environment
		return cmd.Run()
	}
	if err := verify(); err != nil {
		t.Errorf("the signature of the .deb: %v", err)
	}
	data, err := filepath.Glob(filepath.Join(parts, "data.tar.*"))
	if err != nil || len(data) != 1 {
		t.Fatal(data, err)
	}
	do(nil, parts, "/bin/sh", "-c", "printf x >>"+data[0])
	if verify() == nil {
		t.Error("the signature of a changed .deb is good")
	}
	if out := do(nil, parts, "ar", "t", filepath.Join(plain, "gradproxy_amd64.deb")); bytes.Contains(out, []byte("gpg")) {
		t.Errorf("without a key the .deb has %s", out)
	}
}

//go:build unix

package site

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/residual"
	"github.com/gradproxy/gradproxy/tensor"
)

// startState makes a residual file with a log of its own, and closes it.
func startState(t *testing.T, dir string, key func() ([]byte, error)) (text, log string, reg *prometheus.Registry, err error) {
	t.Helper()
	o, said := &fakeResiduals{}, &buffer{}
	reg = prometheus.NewRegistry()
	k, err := newResidualFile(o, dir, "paris", key, reg, slog.New(slog.NewTextHandler(said, nil)))
	if err == nil {
		k.Close()
	}
	return o.text, said.String(), reg, err
}

// The key of the state comes from the private key alone. Other blocks of its file, such as the curve's parameters that
// openssl writes before it, are public.
func TestStateKeyIsSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "paris.key")
	c := &config.Config{Site: "paris", Tunnel: config.Tunnel{Key: file}}
	block := func(kind, content string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)}))
	}
	keyOf := func(text string) string {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := stateKey(c)()
		if err != nil {
			return err.Error()
		}
		return string(key)
	}
	parameters, certificate := block("EC PARAMETERS", "a curve"), block("CERTIFICATE", "a certificate")
	alone := keyOf(block("EC PRIVATE KEY", "one"))
	if other := keyOf(parameters + block("EC PRIVATE KEY", "another")); other == alone || other == keyOf(parameters+block("EC PRIVATE KEY", "one")) {
		t.Error("two private keys give one key")
	}
	for _, text := range []string{parameters + block("EC PRIVATE KEY", "one"), certificate + block("PRIVATE KEY", "one") + certificate} {
		if keyOf(text) != alone {
			t.Errorf("another key because of other blocks:\n%s", text)
		}
	}
	if got := keyOf(parameters + certificate); !strings.Contains(got, "has no PEM key") {
		t.Errorf("a file without a private key gives the key %q", got)
	}
}

// A file that somebody has changed, or that another key wrote, is not used. It is moved aside, so that nothing is lost.
func TestForgedStateIsRefused(t *testing.T) {
	key, _ := testKey()
	other := []byte("the key of tokyo")
	for _, x := range []struct {
		name   string
		change func(b []byte) []byte
		key    []byte
	}{
		{"a bit of the content", func(b []byte) []byte { b[len(stateMagic)+2] ^= 1; return b }, key},
		{"a bit of the HMAC", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, key},
		{"its end is cut off", func(b []byte) []byte { return b[:len(b)-1] }, key},
		{"nearly all is cut off", func(b []byte) []byte { return b[:7] }, key},
		{"a byte more", func(b []byte) []byte { return append(b, 0) }, key},
		{"another key", func(b []byte) []byte { return b }, other},
		{"of an earlier version", func([]byte) []byte { return []byte("gradproxy residuals, without an HMAC, long enough to hold one") }, key},
	} {
		dir := privateFolder(t)
		file := filepath.Join(dir, "paris.residuals")
		writeState(t, file, "residuals", x.key)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b = x.change(b)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		text, log, reg, err := startState(t, dir, testKey)
		if text != "" || err != nil || strings.Count(log, "\n") != 1 || !strings.Contains(log, "this site has not written it") {
			t.Errorf("%s: residuals %q, %v, log:\n%s", x.name, text, err, log)
		}
		wantMetric(t, reg, "gradproxy_state_refused_total", 1)
		if kept, err := os.ReadFile(file + ".bad"); err != nil || !bytes.Equal(kept, b) {
			t.Errorf("%s: the file is not kept: %v", x.name, err)
		}
	}
}

// A file that changes between its two readings is found out, though it changes to one that is good but for its HMAC,
// and nothing of it is loaded.
func TestStateThatChangesWhileItIsRead(t *testing.T) {
	key, _ := testKey()
	file := func(lost float32) []byte {
		s := residual.New(1<<20, residual.Events{})
		s.Dense("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000}, true).Part(0, 4000)[0] = lost
		var b bytes.Buffer
		if err := authenticated(key, s.Save)(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	first, second := file(1), file(2)
	for name, then := range map[string][]byte{"the same": bytes.Clone(first), "another": second} {
		b := bytes.Clone(first)
		r, err := authenticate(bytes.NewReader(b), int64(len(b)), key)
		if err != nil {
			t.Fatal(err)
		}
		copy(b, then)
		s := residual.New(1<<20, residual.Events{})
		err = s.Load(r)
		if n, _, _ := s.Held(); (err == nil) != (name == "the same") || (n == 1) != (name == "the same") || err != nil && !errors.Is(err, errForged) {
			t.Errorf("%s: %v, %d tensors are loaded", name, err, n)
		}
	}
}

// A link in the place of the file is not followed.
func TestStateIsNotReadThroughALink(t *testing.T) {
	dir := privateFolder(t)
	key, _ := testKey()
	target := filepath.Join(privateFolder(t), "target")
	writeState(t, target, "residuals", key)
	if err := os.Symlink(target, filepath.Join(dir, "paris.residuals")); err != nil {
		t.Fatal(err)
	}
	if text, log, _, err := startState(t, dir, testKey); text != "" || err != nil || !strings.Contains(log, "not used") {
		t.Errorf("residuals %q, %v, log:\n%s", text, err, log)
	}
}

// A folder to which others may write, or which is another user's, and a file that another process writes, are refused
// in one line.
func TestStateFolderOfOthersIsRefused(t *testing.T) {
	refused := func(dir, want string) {
		t.Helper()
		if _, _, _, err := startState(t, dir, testKey); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	for _, mode := range []os.FileMode{0o777, 0o770, 0o777 | os.ModeSticky} {
		dir := privateFolder(t)
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		refused(dir, "has mode")
	}
	dir := privateFolder(t)
	k, err := newResidualFile(&fakeResiduals{}, dir, "paris", testKey, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	refused(dir, "another gradproxy has locked")
	k.Close()
	if _, _, _, err := startState(t, dir, testKey); err != nil {
		t.Errorf("after the other's end: %v", err)
	}
	require.Root(t)
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	refused(dir, "belongs to user 65534")
}

// A site that has a new key writes its file again, so that the next start knows it.
func TestStateIsWrittenUnderANewKey(t *testing.T) {
	dir, key := privateFolder(t), "old"
	k, err := newResidualFile(&fakeResiduals{}, dir, "paris", func() ([]byte, error) { return []byte(key), nil }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k.of.(*fakeResiduals).set("residuals")
	k.save()
	key = "new"
	k.save()
	k.Close()
	if text, log, _, _ := startState(t, dir, func() ([]byte, error) { return []byte("new"), nil }); text != "residuals" {
		t.Errorf("residuals %q, log:\n%s", text, log)
	}
}

// Residuals that another process has handed over are newer than the file: the file is not loaded, and is written anew
// at once.
func TestInheritedResidualsReplaceTheFile(t *testing.T) {
	dir := privateFolder(t)
	key, _ := testKey()
	file := filepath.Join(dir, "paris.residuals")
	writeState(t, file, "older", key)
	o := &fakeResiduals{text: "handed over"}
	k, err := inheritResidualFile(o, dir, "paris", testKey, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if o.text != "handed over" {
		t.Errorf("residuals %q, want the ones that were handed over", o.text)
	}
	over, end := context.WithCancel(t.Context())
	end()
	if err := k.run(over); err != nil {
		t.Fatal(err)
	}
	wantState(t, file, "handed over")
}

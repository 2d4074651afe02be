//go:build linux

package integration

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// kubernetesTools returns helm and the program that checks objects against Kubernetes' own schemas.
func kubernetesTools(t *testing.T) (helm, validate string) {
	t.Helper()
	python, complete := testbed.Python("kubernetes")
	require.Named(t, "kubernetes", complete, "run integration/env/install.sh kubernetes")
	return filepath.Join(filepath.Dir(python), "helm"), filepath.Join(filepath.Dir(python), "kubernetes-validate")
}

// rendered returns the objects that helm makes of the chart.
func rendered(t *testing.T, helm, values string) (text []byte, objects []map[string]any) {
	t.Helper()
	for _, args := range [][]string{{"lint", "../deploy/chart", "--strict"}, {"template", "train", "../deploy/chart", "--kube-version", "1.33.0"}} {
		cmd := exec.Command(helm, append(args, "--values", values)...)
		var failed bytes.Buffer
		cmd.Stderr = &failed
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", cmd, err, out, &failed)
		}
		text = out
	}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o map[string]any
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return text, objects
		} else if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
}

// at returns the value below the keys.
func at(v any, keys ...string) any {
	for _, key := range keys {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// The chart's objects keep to the schemas of the oldest and of a late Kubernetes. The job's own pod spec stays as it
// is, with the proxy before it.
func TestChart(t *testing.T) {
	helm, validate := kubernetesTools(t)
	valid := func(text []byte, version string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "objects.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(validate, "--strict", "--kubernetes-version", version, file).CombinedOutput()
		if err != nil {
			return string(out) + err.Error()
		}
		return ""
	}
	all, err := filepath.Glob("../deploy/chart/ci/*.yaml")
	if err != nil || len(all) < 2 {
		t.Fatalf("%d values to try: %v", len(all), err)
	}
	for _, values := range all {
		text, objects := rendered(t, helm, values)
		for _, version := range []string{"1.29", "1.37"} {
			if said := valid(text, version); said != "" {
				t.Errorf("%s: Kubernetes %s: %s", values, version, said)
			}
		}
		if said := valid(bytes.Replace(text, []byte("restartPolicy: Always"), []byte("restartPolicz: Always"), 1), "1.29"); !strings.Contains(said, "restartPolicz") {
			t.Errorf("a mistake is not seen: %q", said)
		}
		source, err := os.ReadFile(values)
		if err != nil {
			t.Fatal(err)
		}
		var given map[string]any
		if err := yaml.Unmarshal(source, &given); err != nil {
			t.Fatal(err)
		}
		var pod any
		for _, o := range objects {
			if p := at(o, "spec", "template", "spec"); p != nil {
				pod = p
			}
		}
		if !reflect.DeepEqual(at(pod, "containers"), at(given, "pod", "containers")) {
			t.Errorf("%s: the job's containers became %v", values, at(pod, "containers"))
		}
		before, _ := at(given, "pod", "initContainers").([]any)
		now, _ := at(pod, "initContainers").([]any)
		if len(now) != len(before)+1 || at(now[0], "name") != "gradproxy" || at(now[0], "restartPolicy") != "Always" || len(before) > 0 && !reflect.DeepEqual(now[1:], before) {
			t.Errorf("%s: init containers %v", values, now)
		}
		if drop, _ := at(now[0], "securityContext", "capabilities", "drop").([]any); len(drop) != 1 || drop[0] != "ALL" {
			t.Errorf("%s: it drops %v", values, drop)
		}
		// The pod of job.yaml wants no user 0, as the kubelet would see to but for the container's own word.
		if at(now[0], "securityContext", "runAsNonRoot") != false {
			t.Errorf("%s: its security context is %v", values, at(now[0], "securityContext"))
		}
	}
}

// Values that cannot work are refused, with the reason.
func TestChartRefuses(t *testing.T) {
	helm, _ := kubernetesTools(t)
	for text, want := range map[string]string{
		"{}": "pod.containers is missing",
		"pod: {hostNetwork: true, containers: [{name: a, image: b}]}": "pod.hostNetwork",
		"pots: {}": "pots",
		"pod: {containers: [{name: a}]}\nkind: DaemonSet": "kind",
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(helm, "template", "train", "../deploy/chart", "--kube-version", "1.33.0", "--values", file).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", text, err, out)
		}
	}
}

// The commands of docs/kubernetes.md that need no cluster run as they stand there.
func TestKubernetesPage(t *testing.T) {
	helm, validate := kubernetesTools(t)
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	g, err := gradproxy()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(root, "deploy"), filepath.Join(dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(g.Path(), filepath.Join(dir, "gradproxy")); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, b := range guideBlocks(t, "kubernetes") {
		cmd := exec.Command("/bin/bash", "-euo", "pipefail", "-c", b.text)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + dir + ":" + filepath.Dir(helm) + ":/usr/bin:/bin", "HOME=" + dir}
		if out, err = cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", b.text, err, out)
		}
	}
	_, objects, _ := strings.Cut(string(out), "\n---\n")
	file := filepath.Join(dir, "objects.yaml")
	if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(validate, "--strict", file).CombinedOutput(); err != nil || !strings.Contains(objects, "registry.example/gradproxy:1") {
		t.Errorf("%v: %s\n%s", err, said, objects)
	}
}

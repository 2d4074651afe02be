//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

// guides lists the guides of docs/guides whose commands run on two hosts, with the environment of their framework.
var guides = map[string]string{"pytorch": "torch113", "jax": "jax", "mxnet": "mxnet", "tensorflow": "tensorflow", "flower": "flower", "nvflare": "nvflare"}

// A guideBlock is commands of a guide, with the comment above them: <!-- run: paris -->, <!-- start: tokyo -->, <!--
// run: both -->. A block that is started runs beside the next ones, until one that is run.
type guideBlock struct{ how, site, text string }

var guideComment = regexp.MustCompile(`^<!-- (run|start): (paris|tokyo|both) -->$`)

// guideBlocks reads the commands of a page of docs. Commands without a comment would be run by no test, so there must
// be none.
func guideBlocks(t *testing.T, name string) (blocks []guideBlock) {
	t.Helper()
	page, err := os.ReadFile("../docs/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(page), "\n")
	for i := 0; i < len(lines); i++ {
		if lines[i] != "```sh" {
			continue
		}
		said := guideComment.FindStringSubmatch(lines[i-1])
		if said == nil {
			t.Fatalf("%s.md:%d: no comment says where these commands run", name, i+1)
		}
		var text []string
		for i++; lines[i] != "```"; i++ {
			text = append(text, lines[i])
		}
		blocks = append(blocks, guideBlock{said[1], said[2], strings.Join(text, "\n")})
	}
	return blocks
}

// Every guide is in TestGuides.
func TestAllGuidesAreRun(t *testing.T) {
	pages, err := filepath.Glob("../docs/guides/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no guides: %v", err)
	}
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if _, run := guides[name]; !run {
			t.Errorf("no test runs the commands of %s", page)
		}
	}
}

// The commands of each guide, run at two sites, end well, and the link carries fewer bytes than the job.
func TestGuides(t *testing.T) {
	t.Parallel()
	for name, environment := range guides {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Long(t)
			python, complete := testbed.Python(environment)
			require.Named(t, environment, complete, "run integration/env/install.sh "+environment)
			g := newGuide(t, python, nil)
			g.follow(name)
			g.saves()
		})
	}
}

// A guide is two sites with gradproxy, in which commands of a guide run.
type guide struct {
	t       *testing.T
	wan     *testbed.WAN
	path    string // the variable
	folders [2]string
	running sync.WaitGroup
}

// newGuide deploys gradproxy at two sites by the files that gradproxy init makes. serve returns the command that runs a
// site's proxy with the files of a folder; nil: the program itself.
func newGuide(t *testing.T, python string, serve func(site *testbed.Site, folder string) *exec.Cmd) *guide {
	t.Helper()
	g := &guide{t: t, wan: newWAN(t, 2, lan)}
	program, bin := program(t).Path(), t.TempDir()
	if err := os.Symlink(program, filepath.Join(bin, "gradproxy")); err != nil {
		t.Fatal(err)
	}
	g.path = bin + ":" + filepath.Dir(python) + ":/usr/sbin:/usr/bin:/sbin:/bin"
	dir := t.TempDir()
	init := exec.Command(program, "init", "--output", dir, "--sites", "paris,tokyo", "--networks", "-,-", "--loss", "nothing",
		"--addresses", fmt.Sprintf("%v,%v", g.wan.Sites[0].Addr, g.wan.Sites[1].Addr))
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("gradproxy init: %v\n%s", err, out)
	}
	for i, site := range []string{"paris", "tokyo"} {
		g.folders[i] = t.TempDir()
		file := filepath.Join(dir, site, "gradproxy.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// Both sites share this host's /run.
		text = bytes.Replace(text, []byte("/run/gradproxy/"+site+".upgrade"), []byte(filepath.Join(dir, site, "run", "upgrade")), 1)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		run := g.wan.Sites[i].Command(program, "run", "-c", file)
		if serve != nil {
			run = serve(g.wan.Sites[i], filepath.Dir(file))
		}
		var log bytes.Buffer
		run.Stdout, run.Stderr = &log, &log
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			run.Process.Signal(syscall.SIGTERM)
			run.Process.Signal(syscall.SIGTERM)
			run.Wait()
			if t.Failed() {
				t.Logf("gradproxy at %s:\n%s", site, &log)
			}
		})
	}
	for i := range g.folders {
		g.start(i, "gradproxy ready --wait 1m")
	}
	g.wait()
	return g
}

// follow runs the commands of a guide.
func (g *guide) follow(name string) {
	g.t.Helper()
	for _, b := range guideBlocks(g.t, "guides/"+name) {
		if b.how == "run" {
			g.wait()
		}
		for i, site := range []string{"paris", "tokyo"} {
			if b.site == site || b.site == "both" {
				g.start(i, b.text)
			}
		}
		if b.how == "run" {
			g.wait()
		}
	}
	g.wait()
}

// start runs commands at a site, where the addresses and the device are the test's.
func (g *guide) start(i int, commands string) {
	own := g.wan.Sites[i]
	commands = strings.NewReplacer("10.1.0.1", g.wan.Sites[0].Addr.String(), "10.2.0.1", g.wan.Sites[1].Addr.String(), "eth0", own.Interface).Replace(commands)
	cmd := own.CommandContext(deadline(g.t, 2*patience), "/bin/bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = g.folders[i]
	cmd.Env = []string{"PATH=" + g.path, "HOME=" + g.folders[i], "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second // processes that a job leaves behind hold its output
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	g.running.Go(func() {
		if err := cmd.Wait(); err != nil && err != exec.ErrWaitDelay {
			g.t.Errorf("%s at %s: %v\n%s", commands, own.Site, err, &out)
		} else {
			g.t.Logf("%s: %s", own.Site, &out)
		}
	})
}

// wait waits for all commands that have started.
func (g *guide) wait() {
	g.t.Helper()
	g.running.Wait()
	if g.t.Failed() {
		g.t.FailNow()
	}
}

// saves checks that the link carried fewer bytes than the job has sent and got.
func (g *guide) saves() {
	g.t.Helper()
	cmd := g.wan.Sites[0].Command("env", "PATH="+g.path, "gradproxy", "status", "--json")
	out, err := cmd.Output()
	if err != nil {
		g.t.Fatal(err)
	}
	checkSaving(g.t, out)
}

// checkSaving checks the output of gradproxy status --json.
func checkSaving(t *testing.T, out []byte) {
	t.Helper()
	var s struct {
		Raw       int64 `json:"raw_bytes"`
		Delivered int64 `json:"delivered_bytes"`
		Network   struct {
			Sent     int64 `json:"sent_bytes"`
			Received int64 `json:"received_bytes"`
		}
	}
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	apps, link := s.Raw+s.Delivered, s.Network.Sent+s.Network.Received
	t.Logf("%d bytes of the job, %d of the link", apps, link)
	if apps < 10e6 || link >= apps {
		t.Errorf("nothing is saved: %s", out)
	}
}

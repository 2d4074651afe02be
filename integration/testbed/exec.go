//go:build linux

package testbed

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// An Exec runs jobs by "gradproxy exec", one at each site for all the job's processes there.
type Exec struct {
	program *Gradproxy
	wan     *WAN
	files   []string // configurations, by site

	// Samples: the metrics of each proxy are kept when the command has ended.
	Samples bool
}

// Exec writes configurations for such runs across w.
func (g *Gradproxy) Exec(w *WAN, c Config) (*Exec, error) {
	e := &Exec{program: g, wan: w}
	for i, site := range w.Sites {
		file := filepath.Join(g.dir, site.Name()+".yaml")
		if err := os.WriteFile(file, []byte(g.configuration(w, i, c)), 0o600); err != nil {
			return nil, fmt.Errorf("testbed: %w", err)
		}
		e.files = append(e.files, file)
	}
	return e, nil
}

// command returns the command line that runs argv at a site.
func (e *Exec) command(site int, argv []string) []string {
	if e.Samples {
		const copies = `"$@"; code=$?; python3 -c 'import urllib.request as u; print(u.urlopen("http://` + adminAddress + `/metrics").read().decode())' >"$0"; exit $code`
		argv = append([]string{"sh", "-c", copies, e.samples(site)}, argv...)
	}
	return append([]string{e.program.binary, "exec", "-c", e.files[site], "--stats", e.stats(site), "--"}, argv...)
}

func (e *Exec) stats(site int) string {
	return filepath.Join(e.program.dir, e.wan.Sites[site].Name()+".stats.json")
}

func (e *Exec) samples(site int) string {
	return filepath.Join(e.program.dir, e.wan.Sites[site].Name()+".metrics")
}

// Metrics returns the samples of each proxy that were kept at the end of the command.
func (e *Exec) Metrics() (all []map[string]float64, err error) {
	for i, site := range e.wan.Sites {
		text, err := os.ReadFile(e.samples(i))
		if err != nil {
			return nil, fmt.Errorf("testbed: the metrics of exec at site %s: %w", site.Site, err)
		}
		all = append(all, samplesOf(string(text)))
	}
	return all, nil
}

// A Taken is a connection that exec took from a job, as its --stats tells.
type Taken struct {
	Client        netip.AddrPort `json:"client"`
	Server        netip.AddrPort `json:"server"`
	SentBytes     uint64         `json:"sent_bytes"`
	ReceivedBytes uint64         `json:"received_bytes"`
}

// Taken returns the connections that were taken from the job at a site, once it has ended.
func (e *Exec) Taken(site int) ([]Taken, error) {
	var s struct {
		Connections []Taken `json:"connections"`
	}
	text, err := os.ReadFile(e.stats(site))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("testbed: what exec took at site %s: %w", e.wan.Sites[site].Site, err)
	}
	return s.Connections, nil
}

// A Command is a command that is asked and answers, line by line.
type Command struct {
	in  io.WriteCloser
	out *bufio.Reader
	*process
}

// Start starts a command at a site by exec. It ends with its standard input, and exec with ctx at the latest.
func (e *Exec) Start(ctx context.Context, site int, argv ...string) (*Command, error) {
	argv = e.command(site, argv)
	cmd := e.wan.Sites[site].CommandContext(ctx, argv[0], argv[1:]...)
	stdin, in, err1 := os.Pipe() // files of its own, since it may outlive exec
	out, stdout, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	defer stdin.Close()
	defer stdout.Close()
	cmd.Stdin, cmd.Stdout = stdin, stdout
	c := &Command{in: in, out: bufio.NewReader(out)}
	var err error
	c.process, err = startProcess(cmd, nil)
	return c, err
}

// Ask writes a line and returns the line that is the answer.
func (c *Command) Ask(line string) (string, error) {
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		return "", fmt.Errorf("testbed: %w\n%s", err, c.log)
	}
	answer, err := c.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("testbed: no answer: %w\n%s", err, c.log)
	}
	return strings.TrimSpace(answer), nil
}

// Kill ends exec as kill -9 does; the command lives on.
func (c *Command) Kill() { c.kill() }

// End ends the command and waits for its end.
func (c *Command) End() error {
	err := c.in.Close()
	_, end := io.Copy(io.Discard, c.out)
	return errors.Join(err, end)
}

// torchrun returns the command line of the agent that starts a rank, the only one at its site.
func (j *Job) torchrun(w *WAN, r int) []string {
	argv := []string{j.Python, "-m", "torch.distributed.run", "--nnodes", fmt.Sprint(j.Ranks), "--nproc_per_node", "1", "--node_rank", fmt.Sprint(r),
		"--master_addr", w.Sites[0].Addr.String(), "--master_port", fmt.Sprint(j.Port), j.Program}
	return append(argv, j.Args...)
}

// startSites starts the nodes of a job on parameter servers, the nodes of each site by one script. A site's
// rank is the script, with its worker's report: a site has one worker.
func (w *WAN) startSites(ctx context.Context, job Job) (*Run, error) {
	run := &Run{}
	for i, site := range w.Sites {
		script := ""
		for r, n := range job.Nodes {
			if n.Site != i {
				continue
			}
			words := append(append([]string{"env"}, job.environment(w, r, site)...), append([]string{job.Python, job.Program}, job.Args...)...)
			for _, word := range words {
				script += quote(word) + " "
			}
			if n.Role != Worker {
				script += ">/dev/null "
			}
			script += "&\n"
		}
		rank := &Rank{number: i, role: Worker, ctx: ctx, began: time.Now(), step: -1, moved: make(chan struct{})}
		argv := job.Exec.command(i, []string{"sh", "-c", script + "wait"})
		if err := w.begin(rank, site, job, argv, nil, false); err != nil {
			run.Kill()
			return nil, err
		}
		run.Ranks = append(run.Ranks, rank)
	}
	return run, nil
}

// quote writes a word as a shell reads it.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

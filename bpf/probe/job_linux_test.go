//go:build amd64 || arm64

package probe

import (
	"bufio"
	"embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/vm"
)

// A release says where a release of PyTorch keeps the parts of its objects.
type release struct {
	name                             string
	layout                           int // in a Call's Source
	storage, elements, kind, op, tag int
	members                          int  // of a process group: rank, ranks
	old                              bool // up to 1.12
}

// layouts is the number of layouts in which each call is read.
const layouts = uint64(len(probeCall{}.Sums))

var releases = []release{
	{"2.15", 0, 16, 152, 160, 16, 244, 16, false}, {"1.13", 1, 24, 168, 176, 24, 172, 24, false}, {"2.5", 2, 16, 160, 168, 16, 188, 16, false}, {"1.12", 1, 24, 168, 176, 0, 172, 24, true},
}

//go:embed testdata
var sources embed.FS

// A program is a job's: testdata/job.c with a library of testdata/torch.c.
type program struct {
	release
	path, library string
}

// programs holds the folders with the programs that built has compiled, by name of the release.
var (
	programs = map[string]program{}
	building sync.Mutex // of programs
	scratch  string
)

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "gradproxy-probe-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	require.ManyAtOnce()
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// programsVariable is the environment variable with the folder of programs that are compiled already. In an emulated
// guest a compiler takes a minute, so that the tests on the guest's host compile all programs into it before
// (TestProgramsOfAGuest), and the guest's copy them.
const programsVariable = "GRADPROXY_PROBE_PROGRAMS"

// The flags with which tests compile programs of releases[0] beside the one without flags.
const (
	stripped = "-s"
	marked   = "-fcf-protection" // with marks of jumps' targets
	static   = "-static"
	working  = "-DWORK" // with the functions that the order "after" runs
	renamed  = "-D_ZN4c10d7Reducer17all_reduce_bucketERNS0_6BucketE=renamed"
)

// strangeRelease keeps the parts of its objects where no known release does.
var strangeRelease = release{"unknown", 0, 232, 240, 248, 32, 244, 40, false}

// TestProgramsOfAGuest compiles the programs of all tests.
func TestProgramsOfAGuest(t *testing.T) {
	if os.Getenv(programsVariable) == "" || vm.Inside() {
		t.Skip("compiles programs into " + programsVariable + " for tests in a guest")
	}
	for _, r := range append(slices.Clone(releases), strangeRelease) {
		build(t, r)
	}
	flags := []string{stripped, static, renamed}
	if runtime.GOARCH == "amd64" {
		flags = append(flags, marked)
	}
	for _, f := range flags {
		build(t, releases[0], f)
	}
}

// built returns a job's program, compiled once for all tests, which must leave its files as they are.
func built(t testing.TB, r release) program {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	if _, ok := programs[r.name]; !ok {
		programs[r.name] = compile(t, filepath.Join(scratch, r.name), r)
	}
	return programs[r.name]
}

// build makes a job's program for one test. flags are for the compiler of the library, or of all if it is linked
// statically.
func build(t testing.TB, r release, flags ...string) program {
	t.Helper()
	return compile(t, t.TempDir(), r, flags...)
}

// libraryName is the name of the library's file, which a program finds in its own folder.
const libraryName = "libtorch_cpu.so.1.13"

func compile(t testing.TB, dir string, r release, flags ...string) program {
	t.Helper()
	kept := ""
	if all := os.Getenv(programsVariable); all != "" {
		kept = filepath.Join(all, fmt.Sprintf("%s%q", r.name, flags))
	}
	p := program{release: r, path: filepath.Join(dir, "job"), library: filepath.Join(dir, libraryName)}
	if kept != "" && vm.Inside() {
		if err := os.CopyFS(dir, os.DirFS(kept)); err != nil {
			t.Fatalf("%v: TestProgramsOfAGuest must compile the programs of all tests", err)
		}
		return p
	}
	require.Command(t, "gcc")
	if kept != "" {
		defer func() {
			if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
		}()
	}
	if err := os.CopyFS(dir, sources); err != nil { // a test in a guest runs in another folder
		t.Fatal(err)
	}
	job, torch := filepath.Join(dir, "testdata/job.c"), filepath.Join(dir, "testdata/torch.c")
	define := []string{"-O1", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror", fmt.Sprintf("-DSTORAGE=%d", r.storage), fmt.Sprintf("-DELEMENTS=%d", r.elements),
		fmt.Sprintf("-DTYPE=%d", r.kind), fmt.Sprintf("-DOP=%d", r.op), fmt.Sprintf("-DTAG=%d", r.tag), fmt.Sprintf("-DMEMBERS=%d", r.members)}
	if r.old {
		define = append(define, "-DOLD")
	}
	gcc := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("gcc %v: %v\n%s", args, err, out)
		}
	}
	if slices.Contains(flags, static) {
		gcc(append(define, "-o", p.path, job, torch, "-lpthread")...)
		return p
	}
	gcc(slices.Concat(define, flags, []string{"-shared", "-Wl,-soname," + libraryName, "-o", p.library, torch})...)
	gcc("-O1", fmt.Sprintf("-DTAG=%d", r.tag), "-Wl,-rpath,$ORIGIN", "-o", p.path, job, p.library, "-lpthread")
	return p
}

// A job is a running program. It connects to the test when it starts.
type job struct {
	program
	t       testing.TB
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Scanner
	conn    net.Conn // the test's end of the connection
	rank    *Process
	recent  *Recent // nil: calls are not compared with it
}

func (p program) start(t testing.TB, change ...func(*exec.Cmd)) *job {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	j := &job{program: p, t: t, cmd: exec.Command(p.path, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))}
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	j.cmd.Stderr = os.Stderr
	for _, c := range change {
		c(j.cmd)
	}
	var out io.Reader
	if j.orders, err = j.cmd.StdinPipe(); err == nil {
		out, err = j.cmd.StdoutPipe()
	}
	if err == nil {
		err = j.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.end)
	j.answers = bufio.NewScanner(out)
	if j.conn, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		j.do("tensor %d %d %d 6", i, 0x7f0000000000+i*0x1000, 1000+i) // float32
	}
	return j
}

// end kills the job and its children.
func (j *job) end() {
	if j.cmd.ProcessState == nil {
		_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL)
		_ = j.cmd.Wait()
	}
	if j.conn != nil {
		j.conn.Close()
	}
}

// do has the job obey an order, and returns its answer.
func (j *job) do(format string, args ...any) int {
	j.t.Helper()
	fmt.Fprintf(j.orders, format+"\n", args...)
	if !j.answers.Scan() {
		j.t.Fatalf("the job has ended at "+format, args...)
	}
	n, err := strconv.Atoi(strings.TrimSpace(j.answers.Text()))
	if err != nil {
		j.t.Fatal(err)
	}
	return n
}

// execute has the job execute its program anew, which connects to the test once more.
func (j *job) execute() {
	j.t.Helper()
	listener, err := net.Listen("tcp", j.conn.LocalAddr().String())
	if err != nil {
		j.t.Fatal(err)
	}
	defer listener.Close()
	fmt.Fprintln(j.orders, "execute")
	j.conn.Close()
	if j.conn, err = listener.Accept(); err != nil {
		j.t.Fatal(err)
	}
}

// find has p find the job by its connection.
func (j *job) find(p *Probes) *Process {
	j.t.Helper()
	found, pid, err := p.Find(address(j.conn.RemoteAddr()), address(j.conn.LocalAddr()))
	if err != nil {
		j.t.Fatal(err)
	}
	if pid != j.cmd.Process.Pid || found.Pid() != pid {
		j.t.Fatalf("found process %d, want %d", pid, j.cmd.Process.Pid)
	}
	j.rank, j.recent = found, recentOf(j.t, p)
	return found
}

// recentOf maps the newest calls.
func recentOf(t testing.TB, p *Probes) *Recent {
	t.Helper()
	r, err := MapRecent(p.Recent())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// calls returns the calls with a tag. The newest calls tell the same ones, or none.
func (j *job) calls(tag int) []Call {
	j.t.Helper()
	all := j.rank.Calls(nil, uint32(tag))
	if j.recent != nil && j.rank.Ended() == "" {
		if recent, known := j.recent.Calls(nil, j.rank.Place(), uint32(tag)); known && !slices.Equal(recent, all) {
			j.t.Fatalf("tag %d: calls %+v, but %+v among the newest ones", tag, all, recent)
		}
	}
	return all
}

// call returns the only call with a tag, in the layout that is right.
func (j *job) call(tag int) Call {
	j.t.Helper()
	all := j.calls(tag)
	if uint64(len(all)) != layouts {
		j.t.Fatalf("tag %d: calls %+v, want one in each of %d layouts", tag, all, layouts)
	}
	for i, c := range all {
		if c.Source/layouts != all[0].Source/layouts || c.Source%layouts != uint64(i) {
			j.t.Fatalf("tag %d: calls %+v of different groups, or layouts out of order", tag, all)
		}
	}
	return all[j.layout]
}

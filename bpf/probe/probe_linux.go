//go:build amd64 || arm64

package probe

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Symbols of libtorch_cpu.so, the same in PyTorch 1.12, 1.13 and every release from 2.0 to 2.15.
const (
	symAllReduceBucket = "_ZN4c10d7Reducer17all_reduce_bucketERNS0_6BucketE"
	symEndReducer      = "_ZN4c10d7ReducerD1Ev"
	symNewBuckets      = "_ZN4c10d7Reducer18initialize_bucketsESt6vectorIS1_ImSaImEESaIS3_EE"
	symAllreduce       = "_ZN4c10d16ProcessGroupGloo9allreduceERSt6vectorIN2at6TensorESaIS3_EERKNS_16AllreduceOptionsE"
	symNextTag         = "_ZN4c10d16ProcessGroupGloo7nextTagEv"
	symEndGroup        = "_ZN4c10d16ProcessGroupGlooD1Ev"
	symNewGroup        = "_ZN4c10d16ProcessGroupGlooC1ERKN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_target_default_null_typeIS3_EEEEiiNS2_INS0_7OptionsENS5_ISA_EEEE"
)

// symConnect is a method that process groups have where they can be reconfigured: in 2.14 and 2.15.
const symConnect = "_ZN4c10d16ProcessGroupGloo15connectContextsEiiRKN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_target_default_null_typeIS3_EEEE"

// symOldWork is a function of releases up to 1.12, in which a reduction's operator is a number and no object.
const symOldWork = "_ZN4c10d12ProcessGroup4Work4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE"

// symOthers are the methods of process groups, besides allreduce, that send the messages of an all-reduce. A release
// has some of them.
var symOthers = []string{
	"_ZN4c10d16ProcessGroupGloo19allreduce_coalescedERSt6vectorIN2at6TensorESaIS3_EERKNS_25AllreduceCoalescedOptionsE",
	"_ZN4c10d16ProcessGroupGloo16allreduce_sparseERSt6vectorIN2at6TensorESaIS3_EERKNS_16AllreduceOptionsE",
	"_ZN4c10d16ProcessGroupGloo14reduce_scatterERSt6vectorIN2at6TensorESaIS3_EERS1_IS5_SaIS5_EERKNS_20ReduceScatterOptionsE",
	"_ZN4c10d16ProcessGroupGloo20_reduce_scatter_baseERN2at6TensorES3_RKNS_20ReduceScatterOptionsE",
	"_ZN4c10d16ProcessGroupGloo21reduce_scatter_singleERN2at6TensorES3_RKNS_20ReduceScatterOptionsE",
	"_ZN4c10d16ProcessGroupGloo31reduce_scatter_single_coalescedERSt6vectorIN2at6TensorESaIS3_EES6_RKNS_20ReduceScatterOptionsE",
	"_ZN4c10d16ProcessGroupGloo31reduce_scatter_tensor_coalescedERSt6vectorIN2at6TensorESaIS3_EES6_RKNS_20ReduceScatterOptionsE",
}

// symUntold are the methods of process groups that take a tag and send other messages. A release has some of them.
var symUntold = []string{
	"_ZN4c10d16ProcessGroupGloo9broadcastERSt6vectorIN2at6TensorESaIS3_EERKNS_16BroadcastOptionsE",
	"_ZN4c10d16ProcessGroupGloo6reduceERSt6vectorIN2at6TensorESaIS3_EERKNS_13ReduceOptionsE",
	"_ZN4c10d16ProcessGroupGloo9allgatherERSt6vectorIS1_IN2at6TensorESaIS3_EESaIS5_EERS5_RKNS_16AllgatherOptionsE",
	"_ZN4c10d16ProcessGroupGloo19allgather_coalescedERSt6vectorIS1_IN2at6TensorESaIS3_EESaIS5_EERS5_RKNS_16AllgatherOptionsE",
	"_ZN4c10d16ProcessGroupGloo6gatherERSt6vectorIS1_IN2at6TensorESaIS3_EESaIS5_EERS5_RKNS_13GatherOptionsE",
	"_ZN4c10d16ProcessGroupGloo7scatterERSt6vectorIN2at6TensorESaIS3_EERS1_IS5_SaIS5_EERKNS_14ScatterOptionsE",
	"_ZN4c10d16ProcessGroupGloo8alltoallERSt6vectorIN2at6TensorESaIS3_EES6_RKNS_15AllToAllOptionsE",
	"_ZN4c10d16ProcessGroupGloo13alltoall_baseERN2at6TensorES3_RSt6vectorIlSaIlEES7_RKNS_15AllToAllOptionsE",
	"_ZN4c10d16ProcessGroupGloo17all_to_all_singleERN2at6TensorES3_RSt6vectorIlSaIlEES7_RKNS_15AllToAllOptionsE",
	"_ZN4c10d16ProcessGroupGloo7barrierERKNS_14BarrierOptionsE",
}

// symMonitoredBarrier is the method that takes two tags.
const symMonitoredBarrier = "_ZN4c10d16ProcessGroupGloo16monitoredBarrierERKNS_14BarrierOptionsEb"

// Probes are the programs, loaded once and attached to any number of libraries. Methods are safe for concurrent use.
type Probes struct {
	objects probeObjects
	recent  *Recent
	frozen  bool  // nobody but the programs can write to the newest calls
	many    bool  // the programs are of links of many uprobes: see manyAtOnce
	besides []int // processes that are never a job's

	finding sync.Mutex // one Find at a time
	owners  []int      // processes that were found last, of any kind; finding guards them

	mu        sync.Mutex // guards the fields below
	libraries map[inode]*library
	processes map[int]*Process
	names     uint32 // given to processes and libraries
	closed    bool
}

// Load loads the programs. Neither this process nor besides are ever taken for a job's. The caller must Close the
// Probes. An error says in one line what the kernel or this process lacks.
func Load(besides ...int) (*Probes, error) {
	if err := supported("/sys"); err != nil {
		return nil, err
	}
	return loadWith(manyAtOnce(), besides...)
}

// loadWith is Load on a kernel that has uprobes. many: the programs are attached by links of many uprobes.
func loadWith(many bool, besides ...int) (*Probes, error) {
	p := &Probes{many: many, besides: append([]int{os.Getpid()}, besides...), libraries: map[inode]*library{}, processes: map[int]*Process{}}
	spec, err := loadProbe()
	if err != nil {
		return nil, explain(err)
	}
	if err := setNamespace(spec); err != nil {
		return nil, err
	}
	if p.many {
		for _, program := range spec.Programs {
			program.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	if err := spec.LoadAndAssign(&p.objects, nil); err != nil {
		return nil, explain(err)
	}
	p.frozen = p.objects.Recent.Freeze() == nil
	if p.recent, err = MapRecent(p.objects.Recent.FD()); err != nil {
		return nil, errors.Join(err, p.objects.Close())
	}
	return p, nil
}

// Recent returns the descriptor of the newest calls' memory, for MapRecent; -1: there is none that only the programs
// can write to.
func (p *Probes) Recent() int {
	if !p.frozen {
		return -1
	}
	return p.objects.Recent.FD()
}

// setNamespace tells the programs in which PID namespace this process is, since it numbers the jobs' processes as that
// namespace does.
func setNamespace(spec *ebpf.CollectionSpec) error {
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	const first = 0xeffffffc // PROC_PID_INIT_INO of Linux's proc_ns.h
	st := info.Sys().(*syscall.Stat_t)
	if st.Ino == first {
		return nil
	}
	device := uint64(unix.Major(st.Dev))<<20 | uint64(unix.Minor(st.Dev)) // as the kernel writes it
	for name, value := range map[string]uint64{"namespace_device": device, "namespace_inode": st.Ino} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("probe: %s: %w", name, err)
		}
	}
	return nil
}

// Close detaches and unloads everything.
func (p *Probes) Close() error {
	p.finding.Lock()
	defer p.finding.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var errs []error
	for _, l := range p.libraries {
		errs = append(errs, l.detach())
	}
	clear(p.libraries)
	clear(p.processes)
	return errors.Join(append(errs, p.objects.Close())...)
}

// attach attaches the programs to the library in a file, once for all processes that have mapped it. path may lead
// through /proc/PID/root.
func (p *Probes) attach(path string) (*library, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	st := info.Sys().(*syscall.Stat_t)
	id := inode{st.Dev, st.Ino}
	p.mu.Lock()
	known := p.libraries[id]
	if known != nil && (known.users > 0 || !known.changed()) {
		p.mu.Unlock()
		return known, nil
	}
	delete(p.libraries, id)
	p.names++
	l := &library{inode: id, name: p.names}
	p.mu.Unlock()
	if known != nil {
		_ = known.detach()
	}
	if err := p.attachTo(l, path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Join(err, l.detach()))
	}
	p.mu.Lock()
	p.libraries[id] = l
	p.mu.Unlock()
	return l, nil
}

// link attaches a program at addresses of a file; the program finds cookie.
func (p *Probes) link(ex *link.Executable, program *ebpf.Program, addresses []uint64, cookie uint64) ([]link.Link, error) {
	if p.many {
		many, err := ex.UprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: addresses, Cookies: slices.Repeat([]uint64{cookie}, len(addresses))})
		if err != nil {
			return nil, err
		}
		return []link.Link{many}, nil
	}
	var links []link.Link
	for _, address := range addresses {
		one, err := ex.Uprobe("", program, &link.UprobeOptions{Address: address, Cookie: cookie})
		if err != nil {
			return links, err
		}
		links = append(links, one)
	}
	return links, nil
}

// exports are the functions that a library exports.
type exports struct {
	file      *elf.File
	functions map[string]function
}

// has reports whether the library exports a symbol.
func (x *exports) has(symbol string) bool { _, ok := x.functions[symbol]; return ok }

// find returns a function and its code.
func (x *exports) find(symbol string) (function, []byte, error) {
	at, ok := x.functions[symbol]
	if !ok {
		return at, nil, fmt.Errorf("probe: it does not export %s: this release of PyTorch is not known", symbol)
	}
	code, err := at.code(x.file)
	return at, code, err
}

// entries returns the addresses at which programs are attached to functions.
func (x *exports) entries(symbols []string) (addresses []uint64, err error) {
	for _, symbol := range symbols {
		at, code, err := x.find(symbol)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, at.entryOf(code, x.file.Machine))
	}
	return addresses, nil
}

// attachTo reads the library in a file, and attaches the programs to its functions. After an error l may have some
// links.
func (p *Probes) attachTo(l *library, path string) error {
	if err := l.open(path); err != nil {
		return err
	}
	f, err := elf.NewFile(l.file)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	x := &exports{file: f}
	if x.functions, err = functions(f); err != nil {
		return err
	}
	_, code, err := x.find(symNextTag)
	if err != nil {
		return err
	}
	if l.counter, err = counterOf(code, f.Machine); err != nil {
		return err
	}
	l.opFirst = x.has(symOldWork)
	ex, err := link.OpenExecutable(path)
	if err != nil {
		return err
	}
	attach := func(program *ebpf.Program, symbols ...string) error {
		addresses, err := x.entries(symbols)
		if err != nil {
			return err
		}
		links, err := p.link(ex, program, addresses, uint64(l.name))
		l.links = append(l.links, links...)
		if err != nil {
			return explain(err)
		}
		return nil
	}
	for _, optional := range []struct {
		program *ebpf.Program
		symbols []string
	}{{p.objects.ConnectGroup, []string{symConnect}}, {p.objects.Other, symOthers}, {p.objects.Untold, symUntold}, {p.objects.MonitoredBarrier, []string{symMonitoredBarrier}}} {
		symbols := slices.DeleteFunc(slices.Clone(optional.symbols), func(symbol string) bool { return !x.has(symbol) })
		if len(symbols) == 0 {
			continue
		}
		if err := attach(optional.program, symbols...); err != nil {
			return err
		}
	}
	// Last comes the function without which nothing is proved.
	return errors.Join(attach(p.objects.NewGroup, symNewGroup), attach(p.objects.EndGroup, symEndGroup),
		attach(p.objects.FreeBuckets, symEndReducer, symNewBuckets),
		attach(p.objects.Allreduce, symAllreduce), attach(p.objects.AllReduceBucket, symAllReduceBucket))
}

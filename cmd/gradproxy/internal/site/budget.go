package site

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/prober"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/warden"
	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/history"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
)

// A Budget is the most memory that a site takes, in bytes, part by part.
type Budget struct {
	parts []part
}

// A part is one entry of a Budget.
type part struct {
	name  string
	bytes int64
	size  *int64 // the key that sets it, where the configuration leaves it out; nil: it stays as it is
}

// Memory beside the keys.
const (
	programMemory = 64 << 20 // code, goroutines, logs and pages
	protocolFacts = 64 << 20 // facts of parsers on all jobs together
	jobFacts      = 26 << 20 // and of each configured job, as this site and each peer tell it: of Gloo's models 24 MiB, and of ps-lite's nodes and keys 2 MiB
	coreMemory    = 64 << 20 // of the codec that a core is at: the largest block, as it is and encoded, and its residual
	connections   = 1024     // that are counted, with the bytes that each may hold beside memory
	// oneConnection is the memory of each further connection: the bytes that it may hold beside memory, and 32 KiB for
	// its goroutines and its stream, of which 28 KiB were measured.
	oneConnection = 2*proxy.SpareMemory + 32<<10

	minFitted = 16 << 20 // of a key that is fitted
)

// BudgetOf returns the memory that a site with the configuration c may take. The parts of keys that c leaves out can be
// fitted.
func BudgetOf(c *config.Config) *Budget {
	b := &Budget{}
	add := func(name string, bytes int64) { b.parts = append(b.parts, part{name: name, bytes: bytes}) }
	key := func(name string, times int64, size *int64, set bool) {
		p := part{name: name, bytes: times * *size, size: size}
		if set {
			p.size = nil
		}
		b.parts = append(b.parts, p)
	}
	key("memory", 2, &c.Memory, c.Sets("memory")) // either direction
	add("parsers", c.Memory/proxy.ParsersShare)
	key("references", proxy.ValuesTimes*int64(len(c.Peers)), &c.References, c.Sets("references"))
	key("state.memory", 1, &c.State.Memory, c.Sets("state.memory"))
	tunnels := part{name: "tunnel.memory", bytes: c.Tunnel.Memory, size: &c.Tunnel.Memory}
	if c.Sets("tunnel.memory") {
		tunnels.size = nil
	}
	if c.Tunnel.Carrier == tunnel.CarrierDTLS || c.Tunnel.Carrier == tunnel.CarrierAuto {
		records, more := tunnel.DatagramMemory(c.Tunnel.Memory, len(c.Peers))
		tunnels.name, tunnels.bytes = "tunnel.memory and records over datagrams", tunnels.bytes+records
		add("carriers over datagrams", more)
	}
	b.parts = append(b.parts, tunnels)
	if len(c.Shadow) > 0 {
		add("shadow", proxy.ShadowMemory)
	}
	add("codecs", int64(runtime.GOMAXPROCS(0))*coreMemory)
	add("protocols", protocolFacts+jobFacts*int64(len(c.Jobs))*int64(1+len(c.Peers)))
	add(fmt.Sprintf("%d connections", connections), connections*2*proxy.SpareMemory)
	add("table of tensors", proxy.TableMemory(c.State.Memory))
	add("history", history.Memory+tensorHistoryMemory)
	add("program", programMemory)
	if probesJobs(c) && c.MayLose() {
		add(proberPart, prober.Memory)
	}
	if keepsRules(c) || keepsOptions(c) {
		add(wardenPart, warden.Memory)
	}
	return b
}

// Sum returns the bytes of all parts.
func (b *Budget) Sum() (sum int64) {
	for _, p := range b.parts {
		sum += p.bytes
	}
	return sum
}

// places returns how many connections there may be, by memory: the counted ones, and as many more as fit between the
// sum and what a cgroup allows. Where none bounds the process there may be any number.
func (b *Budget) places(allowed memoryLimit) int {
	if allowed.cgroup == "" {
		return math.MaxInt
	}
	return connections + int(max(roomOf(allowed)-b.Sum(), 0)/oneConnection)
}

// with returns the bytes of all parts with n connections.
func (b *Budget) with(n int) int64 { return b.Sum() + int64(max(n-connections, 0))*oneConnection }

// roomOf returns the memory for budgets. The rest is the kernel's, for sockets.
func roomOf(allowed memoryLimit) int64 { return allowed.bytes / 10 * 9 }

// apart returns the bytes of processes other than this one.
func (b *Budget) apart() (sum int64) {
	for _, p := range b.parts {
		if p.name == proberPart || p.name == wardenPart {
			sum += p.bytes
		}
	}
	return sum
}

// Names of the parts of other processes.
const (
	proberPart = "process that probes"
	wardenPart = "process that keeps rights"
)

// String returns the sum and its parts in one line.
func (b *Budget) String() string {
	var parts []string
	for _, p := range b.parts {
		parts = append(parts, p.name+" "+mebibytes(p.bytes))
	}
	return fmt.Sprintf("at most %s: %s", mebibytes(b.Sum()), strings.Join(parts, ", "))
}

func mebibytes(n int64) string { return fmt.Sprintf("%dMiB", (n+1<<19)>>20) }

// fit makes the sizes that the configuration leaves out so much smaller that all together take at most limit bytes, and
// reports whether that is possible.
func fit(c *config.Config, limit int64) bool {
	var fixed, scaled int64
	for _, p := range BudgetOf(c).parts {
		if p.size != nil {
			scaled += p.bytes
		} else {
			fixed += p.bytes
		}
	}
	if fixed+scaled <= limit {
		return true
	}
	if scaled == 0 || fixed >= limit {
		return false
	}
	by := float64(limit-fixed) / float64(scaled)
	for _, p := range BudgetOf(c).parts {
		if p.size != nil && *p.size > 0 {
			*p.size = max(int64(float64(*p.size)*by)&^(1<<20-1), min(*p.size, minFitted))
		}
	}
	return BudgetOf(c).Sum() <= limit
}

// budgeted returns c with sizes that fit the memory that this process may have, and sets the memory limit of Go's
// garbage collector unless the user has. A sum that cannot be made to fit is an error where a cgroup bounds the
// process: the kernel would kill it there, and connections would go by on_death whenever a peer has it use its whole
// budgets.
func budgeted(c *config.Config, allowed memoryLimit, log *slog.Logger) (*config.Config, error) {
	room := roomOf(allowed)
	c = carried(c, room, log)
	fitted := *c
	asked := BudgetOf(c)
	fits := fit(&fitted, room)
	b := BudgetOf(&fitted)
	switch {
	case !fits && allowed.cgroup != "":
		return nil, fmt.Errorf("memory: the budgets add up to %s, and %s allows %s, of which the kernel needs a tenth: set memory, references, state.memory and tunnel.memory to less, or raise the limit (%v)",
			mebibytes(b.Sum()), allowed.cgroup, mebibytes(allowed.bytes), b)
	case !fits:
		fitted, b = *c, asked
		log.Warn("the budgets add up to more memory than this host has: set memory, references, state.memory and tunnel.memory to less", "sum", mebibytes(b.Sum()), "host", mebibytes(allowed.bytes))
	case b.Sum() < asked.Sum():
		log.Info("budgets were made smaller to fit the memory limit", "limit", mebibytes(allowed.bytes), "of", cmp.Or(allowed.cgroup, "this host"), "asked", mebibytes(asked.Sum()),
			"memory", mebibytes(fitted.Memory), "references", mebibytes(fitted.References), "state.memory", mebibytes(fitted.State.Memory), "tunnel.memory", mebibytes(fitted.Tunnel.Memory))
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		apart := b.apart()
		debug.SetMemoryLimit(goLimit(b.Sum()-apart, memoryLimit{bytes: allowed.bytes - apart}))
	}
	return &fitted, nil
}

// grownBudget returns the memory of the peers and jobs of c, with the sizes and the carrier of started.
func grownBudget(started, c *config.Config) *Budget {
	with := *c
	with.Memory, with.References, with.State.Memory, with.Tunnel = started.Memory, started.References, started.State.Memory, started.Tunnel
	return BudgetOf(&with)
}

// grown compares the memory of the peers and jobs of c, with the sizes and the carrier of started, with the memory that
// this process may have. More than a cgroup allows is an error, as at the start.
func grown(started, c *config.Config, allowed memoryLimit, log *slog.Logger) error {
	b := grownBudget(started, c)
	switch sum := b.Sum(); {
	case sum <= allowed.bytes/10*9 || sum <= BudgetOf(started).Sum():
		return nil
	case allowed.cgroup != "":
		return fmt.Errorf("memory: with these peers and jobs the budgets add up to %s, and %s allows %s, of which the kernel needs a tenth: restart, so that sizes which the file leaves out are made smaller, or raise the limit (%v)",
			mebibytes(sum), allowed.cgroup, mebibytes(allowed.bytes), b)
	default:
		log.Warn("with these peers and jobs the budgets add up to more memory than this host has: restart, or set sizes to less", "sum", mebibytes(sum), "host", mebibytes(allowed.bytes))
		return nil
	}
}

// carried returns c with a carrier if it leaves the choice: either, where the memory for datagrams is there beside all
// that c asks for, else TLS.
func carried(c *config.Config, room int64, log *slog.Logger) *config.Config {
	if c.Tunnel.Carrier != "" {
		return c
	}
	with := *c
	if with.Tunnel.Carrier = tunnel.CarrierTLS; c.Tunnel.Insecure {
		return &with
	}
	both := overBoth(c)
	if sum := BudgetOf(&both).Sum(); sum > room {
		log.Info("carriers use TLS alone, since memory for datagrams as well is not there: set tunnel.carrier to auto to have other budgets made smaller for it, or to tls",
			"sum", mebibytes(sum), "room", mebibytes(room))
		return &with
	}
	return &both
}

// overBoth returns c with carriers over TLS and over datagrams.
func overBoth(c *config.Config) config.Config {
	both := *c
	both.Tunnel.Carrier = tunnel.CarrierAuto
	return both
}

// OfDatagrams returns how many bytes of memory more a site takes that uses datagrams because c leaves the carrier out;
// 0: c does not.
func OfDatagrams(c *config.Config) int64 {
	if c.Tunnel.Carrier != "" || c.Tunnel.Insecure {
		return 0
	}
	both := overBoth(c)
	return BudgetOf(&both).Sum() - BudgetOf(c).Sum()
}

// goLimit returns how much memory Go may take before it collects garbage more often: the budgets, and a tenth of
// garbage.
func goLimit(sum int64, allowed memoryLimit) int64 {
	return min(sum/10*11, allowed.bytes/20*19)
}

// A memoryLimit is how much memory this process may have.
type memoryLimit struct {
	bytes  int64  // math.MaxInt64: no limit is known
	cgroup string // the file that says so; "": the host has no more
}

var unlimited = memoryLimit{bytes: math.MaxInt64}

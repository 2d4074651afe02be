package site

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/warden"
	"github.com/gradproxy/gradproxy/integration/require"
)

// loadBudget reads a configuration of two peers and more.
func loadBudget(t *testing.T, more string) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "paris.yaml")
	text := "site: paris\npeers:\n  - {name: tokyo, networks: [10.2.0.0/16]}\n  - {name: osaka, networks: [10.3.0.0/16]}\n" + more
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, problems := config.Load(file, Known())
	if len(problems.Errors()) > 0 {
		t.Fatal(problems)
	}
	return c
}

// keepLimit restores the memory limit of the test's process.
func keepLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
}

// Whatever a cgroup allows, a site's budgets add up to less, or it does not start: a peer that has it use its whole
// budgets cannot have it killed.
func TestBudgetsFitTheCgroup(t *testing.T) {
	keepLimit(t)
	t.Setenv("GOMEMLIMIT", "")
	for _, limit := range []int64{64 << 20, 350 << 20, 512 << 20, 1 << 30, 2 << 30, 4 << 30, 64 << 30} {
		for name, more := range map[string]string{
			"defaults":     "",
			"memory set":   "memory: 64MiB\n",
			"all set":      "memory: 256MiB\nreferences: 512MiB\nstate: {memory: 1GiB}\ntunnel: {memory: 512MiB}\n",
			"all set, low": "memory: 16MiB\nreferences: 0\nstate: {memory: 16MiB}\ntunnel: {memory: 16MiB}\n",
		} {
			c := loadBudget(t, more)
			asked := *c
			fitted, err := budgeted(c, memoryLimit{limit, "/sys/fs/cgroup/memory.max"}, slog.New(slog.DiscardHandler))
			if err != nil {
				if text := err.Error(); BudgetOf(c).Sum() <= limit*9/10 || strings.Contains(text, "\n") || !strings.Contains(text, "/sys/fs/cgroup/memory.max allows "+mebibytes(limit)) {
					t.Errorf("%s in %s: %v", name, mebibytes(limit), err)
				}
				continue
			}
			b := BudgetOf(fitted)
			sum, apart := b.Sum(), b.apart()
			if sum > limit*9/10 {
				t.Errorf("%s in %s: budgets of %s", name, mebibytes(limit), mebibytes(sum))
			}
			for key, sizes := range map[string][3]int64{
				"memory": {asked.Memory, c.Memory, fitted.Memory}, "references": {asked.References, c.References, fitted.References},
				"state.memory": {asked.State.Memory, c.State.Memory, fitted.State.Memory}, "tunnel.memory": {asked.Tunnel.Memory, c.Tunnel.Memory, fitted.Tunnel.Memory},
			} {
				if sizes[0] != sizes[1] || c.Sets(key) && sizes[2] != sizes[0] || sizes[2] > sizes[0] || sizes[0] > 0 && sizes[2] < minFitted && sizes[2] != sizes[0] {
					t.Errorf("%s in %s: %s became %v", name, mebibytes(limit), key, sizes)
				}
			}
			if got := debug.SetMemoryLimit(-1); got < sum-apart && got != goLimit(sum-apart, memoryLimit{bytes: limit - apart}) || got > limit*19/20+20 {
				t.Errorf("%s in %s: Go may take %s", name, mebibytes(limit), mebibytes(got))
			}
		}
	}
}

// A site whose file leaves the carrier out uses datagrams as well where the memory for them is there beside all that
// the file asks for.
func TestCarrierLeftOut(t *testing.T) {
	keepLimit(t)
	t.Setenv("GOMEMLIMIT", "")
	plain := BudgetOf(loadBudget(t, "")).Sum()
	both := BudgetOf(loadBudget(t, "tunnel: {carrier: auto}\n")).Sum()
	for _, x := range []struct {
		more  string
		room  int64
		want  string
		whole bool // sizes stay
	}{
		{"", both, "auto", true},
		{"", both - 1<<20, "tls", true},
		{"", plain - 1<<20, "tls", false},
		{"tunnel: {carrier: tls}\n", both, "tls", true},
		{"tunnel: {carrier: auto}\n", plain, "auto", false},
		{"tunnel: {carrier: dtls}\n", plain, "dtls", false},
	} {
		c := loadBudget(t, x.more)
		fitted, err := budgeted(c, memoryLimit{x.room/9*10 + 10, "/sys/fs/cgroup/memory.max"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%q in %s: %v", x.more, mebibytes(x.room), err)
			continue
		}
		if got := fitted.Tunnel.Carrier; got != x.want || (fitted.Memory == c.Memory) != x.whole {
			t.Errorf("%q in %s: carrier %s and memory of %s, want %s", x.more, mebibytes(x.room), got, mebibytes(fitted.Memory), x.want)
		}
	}
	c := loadBudget(t, "")
	c.Tunnel.Insecure = true
	if got := carried(c, both, slog.New(slog.DiscardHandler)).Tunnel.Carrier; got != "tls" {
		t.Errorf("%s in clear", got)
	}
}

// A reload whose peers take more than the cgroup allows is refused, whatever the file says of sizes that need a
// restart.
func TestReloadBeyondTheCgroup(t *testing.T) {
	keepLimit(t)
	t.Setenv("GOMEMLIMIT", "")
	c := loadBudget(t, "")
	both := overBoth(c)
	limit := memoryLimit{BudgetOf(&both).Sum()/9*10 + 10, "/sys/fs/cgroup/memory.max"}
	log := slog.New(slog.DiscardHandler)
	fitted, err := budgeted(c, limit, log)
	if err != nil || fitted.Tunnel.Carrier != "auto" {
		t.Fatal(fitted.Tunnel.Carrier, err)
	}
	more := *c
	more.Peers = append(slices.Clone(c.Peers), c.Peers...)
	less := more
	less.Memory, less.References = 1, 0 // which take a restart
	for name, x := range map[string]struct {
		c     *config.Config
		limit memoryLimit
		ok    bool
	}{
		"the same":            {c, limit, true},
		"more peers":          {&more, limit, false},
		"and smaller sizes":   {&less, limit, false},
		"a larger cgroup":     {&more, memoryLimit{2 * limit.bytes, limit.cgroup}, true},
		"a host of that size": {&more, memoryLimit{bytes: limit.bytes}, true},
	} {
		if err := grown(fitted, x.c, x.limit, log); (err == nil) != x.ok || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A reload with more peers leaves room for fewer connections, and one with fewer peers for more again.
func TestReloadBoundsPlacesAnew(t *testing.T) {
	l := newLab(t)
	c := l.load(1, "")
	r := l.run(c)
	few, many := *c, *c
	few.Peers = c.Peers[:1]
	room := func(c *config.Config) int64 { return grownBudget(r.fitted, c).Sum() }
	if len(c.Peers) < 2 || room(&many) <= room(&few) {
		t.Fatal("the test shows nothing")
	}
	r.allowed = memoryLimit{(room(&many) + 100*oneConnection) / 9 * 10, "/sys/fs/cgroup/memory.max"}
	for _, x := range []*config.Config{&many, &few, &many} {
		if err := r.Reload(x); err != nil {
			t.Fatal(err)
		}
		n := 0
		for r.places.TryEnter() {
			n++
		}
		for range n {
			r.places.Leave()
		}
		if want := min(r.maxPlaces, grownBudget(r.fitted, x).places(r.allowed)); n < want-8 || n > want { // listeners hold one each
			t.Errorf("with %d peers %d connections may be open, want %d", len(x.Peers), n, want)
		}
	}
}

// Sizes that fit are not touched; and a limit of the garbage collector that the user has set stays.
func TestBudgetsThatFit(t *testing.T) {
	keepLimit(t)
	debug.SetMemoryLimit(math.MaxInt64)
	t.Setenv("GOMEMLIMIT", "123MiB")
	c := loadBudget(t, "tunnel: {carrier: tls}\n")
	fitted, err := budgeted(c, memoryLimit{64 << 30, "/sys/fs/cgroup/memory.max"}, slog.New(slog.DiscardHandler))
	if err != nil || BudgetOf(fitted).Sum() != BudgetOf(c).Sum() {
		t.Errorf("budgets of %v became %v, %v", BudgetOf(c), BudgetOf(fitted), err)
	}
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		t.Error("the user's GOMEMLIMIT was overruled")
	}
	if c = loadBudget(t, "memory: 8GiB\nreferences: 512MiB\nstate: {memory: 1GiB}\ntunnel: {memory: 512MiB}\n"); c.Memory != 8<<30 {
		t.Fatal(c.Memory)
	}
	if fitted, err = budgeted(c, memoryLimit{bytes: 4 << 30}, slog.New(slog.DiscardHandler)); err != nil || fitted.Memory != 8<<30 {
		t.Errorf("a host with less memory than the budgets: %v", err)
	}
}

// The least limit of all cgroups above the process counts, in both versions.
func TestCgroupLimit(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, c := range map[string]struct {
		own   string
		files fstest.MapFS
		want  memoryLimit
	}{
		"none":      {"", fstest.MapFS{}, unlimited},
		"version 2": {"0::/a/b\n", fstest.MapFS{"sys/fs/cgroup/a/b/memory.max": file("1000\n")}, memoryLimit{1000, "/sys/fs/cgroup/a/b/memory.max"}},
		"no limit":  {"0::/a\n", fstest.MapFS{"sys/fs/cgroup/a/memory.max": file("max\n")}, unlimited},
		"above": {"0::/a/b\n", fstest.MapFS{"sys/fs/cgroup/a/b/memory.max": file("1000\n"), "sys/fs/cgroup/a/memory.max": file("10\n")},
			memoryLimit{10, "/sys/fs/cgroup/a/memory.max"}},
		"a namespace's root": {"0::/\n", fstest.MapFS{"sys/fs/cgroup/memory.max": file("1000\n")}, memoryLimit{1000, "/sys/fs/cgroup/memory.max"}},
		"version 1": {"4:cpu:/x\n3:blkio,memory:/a\n0::/\n", fstest.MapFS{"sys/fs/cgroup/memory/a/memory.limit_in_bytes": file("2000\n")},
			memoryLimit{2000, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"}},
		"garbage": {"x\n:::\n0::/../../a\n", fstest.MapFS{"sys/fs/cgroup/a/memory.max": file("x\n")}, unlimited},
	} {
		if got := cgroupLimit(c.files, []byte(c.own)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// The sum counts the memory of carriers over datagrams, which is fitted with tunnel.memory: for each peer the records
// that came out of order, and the records that left and have not arrived.
func TestBudgetOfDatagrams(t *testing.T) {
	keepLimit(t)
	t.Setenv("GOMEMLIMIT", "")
	plain, datagrams := BudgetOf(loadBudget(t, "")).Sum(), BudgetOf(loadBudget(t, "tunnel: {carrier: dtls}\n")).Sum()
	if minimum := plain + 2*2*2*32<<20; datagrams < minimum { // peers, directions, carriers
		t.Errorf("%s with carrier dtls, %s without", mebibytes(datagrams), mebibytes(plain))
	}
	c := loadBudget(t, "tunnel: {carrier: dtls}\n")
	for _, limit := range []int64{1 << 30, 2 << 30} {
		fitted, err := budgeted(c, memoryLimit{limit, "/sys/fs/cgroup/memory.max"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("in %s: %v", mebibytes(limit), err)
			continue
		}
		if sum := BudgetOf(fitted).Sum(); sum > limit*9/10 {
			t.Errorf("in %s: budgets of %s", mebibytes(limit), mebibytes(sum))
		}
	}
}

// In a cgroup a site has places for no more connections than its memory has room for beside the budgets, and its peers
// no more streams. Elsewhere descriptors alone bound them.
func TestPlacesFitTheCgroup(t *testing.T) {
	keepLimit(t)
	t.Setenv("GOMEMLIMIT", "")
	free := limits(slog.New(slog.DiscardHandler)).places
	for _, limit := range []int64{700 << 20, 1 << 30, 2 << 30, 64 << 30} {
		allowed := memoryLimit{limit, "/sys/fs/cgroup/memory.max"}
		fitted, err := budgeted(loadBudget(t, ""), allowed, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s := &Site{fitted: fitted, allowed: allowed}
		s.divide(slog.New(slog.NewTextHandler(&log, nil)))
		places, sum := 0, BudgetOf(fitted).Sum()
		for s.places.TryEnter() {
			places++
		}
		if total := sum + int64(max(places-connections, 0))*oneConnection; total > limit/10*9 || total != BudgetOf(fitted).with(places) || places != s.limits.places {
			t.Errorf("in %s: %d places, which makes %s with all connections", mebibytes(limit), places, mebibytes(total))
		}
		if said := strings.Contains(log.String(), "the memory limit bounds the connections"); said != (places < free) {
			t.Errorf("in %s: %d places of %d, and the log says: %s", mebibytes(limit), places, free, log.String())
		}
		if places < min(connections, free) {
			t.Errorf("in %s: %d places", mebibytes(limit), places)
		}
		s.allowed.cgroup = ""
		if got := s.shares(slog.New(slog.DiscardHandler)).places; got != free {
			t.Errorf("without a cgroup's limit of %s: %d places, want %d", mebibytes(limit), got, free)
		}
	}
}

// The memory of the process that keeps rights counts where there will be one: for rules, for a congestion control that
// takes a capability, and for sockets of datagrams.
func TestBudgetOfTheWarden(t *testing.T) {
	require.Root(t)
	congestion := require.RestrictedCongestion(t)
	for _, x := range []struct {
		more string
		want int64
	}{
		{"tunnel: {carrier: tls, congestion: default}\n", 0},
		{"tunnel: {carrier: tls, congestion: " + congestion + "}\n", warden.Memory},
		{"tunnel: {carrier: tls, congestion: " + congestion + "}\nintercept: {mode: redirect}\n", warden.Memory},
		{"tunnel: {carrier: tls, congestion: default}\nintercept: {mode: redirect}\n", warden.Memory},
	} {
		c := loadBudget(t, x.more)
		if got := BudgetOf(c).apart(); got != x.want {
			t.Errorf("%q: %s for other processes, want %s", x.more, mebibytes(got), mebibytes(x.want))
		}
	}
}

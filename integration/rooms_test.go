package integration

import (
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rooms are the packages that a connection's bytes pass on their way between an app and the tunnel, the packages that
// bring the bytes there, and the packages that decide on them. Inside each of them calls run downwards too: a file that
// uses names of another is above it, so no two files may use each other, directly or by others.
var rooms = []string{"proxy/handover", "proxy/quota", "proxy/inquiry", "proxy/trials", "proxy/estimate", "proxy/shadow", "proxy/path", "proxy/path/send", "proxy/path/receive", "proxy/cache", "proxy/residual", "proxy/app", "proxy/tensors",
	"proxy/coder", "proxy/frame", "proxy/memory", "proxy/policy", "proxy/intercept", "proxy/admin", "proxy", "tensor",
	"parser", "parser/capture", "parser/gloo", "parser/gloo/gloosim", "parser/parsertest", "parser/pslite", "parser/pslite/pslitesim",
	"parser/pslite/pslitesim/zmtp", "proxy/relay", "proxy/tunnel/udp", "proxy/tunnel/datagram", "proxy/tunnel", "proxy/tunnel/pki",
	"proxy/internal/pollgate", "bpf", "bpf/probe", "bpf/cgroup", "proxy/internal/pipe", "proxy/logsample", "parser/lru", "parser/grpc", "parser/http2",
	"parser/flower", "parser/nvflare", "parser/grpcany", "parser/tensorflow", "parser/internal/cursor", "parser/internal/http1", "parser/internal/mix", "parser/internal/msgscan",
	"parser/internal/npy", "parser/internal/protoscan", "wan-sim"}

// stages is the order of a sender's stages: each may use the ones after it.
var stages = []string{"send.go", "read.go", "classify.go", "cut.go", "choose.go", "encode.go", "emit.go"}

// A room's files use each other one way, by the names of package scope and by the methods that they call. A call
// through an interface of the room counts as a call of that method of each type of the room that has the interface's
// methods.
func TestFilesOfARoomUseEachOtherOneWay(t *testing.T) {
	for _, system := range []string{"linux", "darwin"} {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			s := newRooms(t, system)
			for _, room := range rooms {
				oneWay(t, room, "names", s.names[room])
				oneWay(t, room, "methods", s.methods[room])
			}
			const room = "proxy/path/send"
			stagesInOrder(t, room, s.methods[room])
		})
	}
}

// oneWay checks that files of a room use each other's names or methods one way.
func oneWay(t *testing.T, room, what string, used uses) {
	t.Helper()
	if circle := circleIn(used); circle != nil {
		t.Errorf("%s: files use each other's %s in a circle: %s", room, what, strings.Join(circle, " ─▶ "))
	}
}

// stagesInOrder checks that no stage of a sender uses one before it.
func stagesInOrder(t *testing.T, room string, used uses) {
	t.Helper()
	for i, stage := range stages {
		if used[stage] == nil {
			t.Errorf("%s has no stage %s", room, stage)
		}
		for _, above := range stages[:i] {
			if name := used[stage][above]; name != "" {
				t.Errorf("%s: %s uses %s of %s, a stage before it", room, stage, name, above)
			}
		}
	}
}

// choosing lists the files of path/send that may import the packages on which a choice depends: the stage choose, its
// parts, and the work that it picks. The others know of policies only the name of a flow and of its bytes.
var choosing = map[string][]string{
	"proxy/cache":    {"choose.go"},
	"proxy/residual": {"past.go", "plan.go", "rows.go", "rowblock.go", "denseflush.go", "contribution.go"},
	"proxy/policy":   {"choose.go", "plan.go", "rows.go", "send.go", "direction.go"},
}

func TestOnlyOneStageChooses(t *testing.T) {
	folder := filepath.Join("..", "proxy/path/send")
	for _, name := range filesOf(t, folder) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, name), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range f.Imports {
			files, bound := choosing[strings.TrimPrefix(strings.Trim(imported.Path.Value, `"`), module)]
			if bound && !slices.Contains(files, name) {
				t.Errorf("%s imports %s: only %v may", name, imported.Path.Value, files)
			}
		}
	}
}

// filesOf returns the names of the files of a package, tests left out.
func filesOf(t *testing.T, folder string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if !strings.HasSuffix(path, "_test.go") {
			names = append(names, filepath.Base(path))
		}
	}
	if len(names) == 0 {
		t.Fatalf("no package in %s", folder)
	}
	return names
}

// circleIn returns files that use each other in a circle, or nil.
func circleIn(used uses) []string {
	done := map[string]bool{}
	var visit func(file string, way []string) []string
	visit = func(file string, way []string) []string {
		if i := slices.Index(way, file); i >= 0 {
			return append(way[i:], file)
		}
		if done[file] {
			return nil
		}
		for _, next := range slices.Sorted(maps.Keys(used[file])) {
			if circle := visit(next, append(slices.Clip(way), file)); circle != nil {
				return circle
			}
		}
		done[file] = true
		return nil
	}
	for _, file := range slices.Sorted(maps.Keys(used)) {
		if circle := visit(file, nil); circle != nil {
			return circle
		}
	}
	return nil
}

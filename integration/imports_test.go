package integration

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/integration/require"
)

const module = "github.com/gradproxy/gradproxy/"

// A layer says which packages of ours a package may import, tests left out. "x/..." is x and all below it.
type layer struct {
	pkg string
	may []string
}

// layers are tried in this order. Imports point one way:
//
//	cmd/gradproxy ─▶ proxy ─▶ proxy/policy ─▶ parser, codecs ─▶ tensor
//	     │             └────▶ proxy/tunnel, proxy/intercept (nothing of ours, but for the order of locks)
//	     ├─▶ parser/all ─▶ parser/<protocol> ─▶ parser
//	     ├─▶ codecs/all ─▶ codecs/<method> ─▶ codecs
//	     └─▶ bpf   tc   wan-sim (nothing of ours)
var layers = []layer{
	{"tensor/simd", nil},
	{"tensor", []string{"tensor/simd"}},

	{"parser", []string{"tensor", "parser/internal/..."}},
	{"parser/internal/mesh", []string{"parser/lru"}},
	{"parser/internal/...", []string{"tensor", "parser/internal/..."}},
	{"parser/lru", nil}, // parsers and the proxy share it
	{"parser/all", []string{"parser/..."}},
	{"parser/pslite/pslitesim/...", []string{"parser/pslite/pslitesim/..."}}, // makes connections, which parsers only read
	{"parser/pslite", []string{"parser/lru", "tensor", "parser", "parser/internal/..."}},
	{"parser/http2", []string{"parser"}},
	{"parser/grpc/grpctest", nil},
	{"parser/grpc", []string{"tensor", "parser", "parser/http2"}},
	{"parser/tensorflow/tensorflowsim", nil}, // makes connections, which parsers only read
	{"parser/nvflare/nvflaresim", nil},       // makes connections, which parsers only read
	{"parser/nvflare", []string{"parser/lru", "parser/grpc", "tensor", "parser", "parser/internal/..."}},
	{"parser/grpcany", []string{"parser/lru", "parser/grpc", "tensor", "parser", "parser/internal/..."}},
	{"parser/flower/flowersim", nil}, // makes connections, which parsers only read
	{"parser/flower", []string{"parser/lru", "parser/grpc", "tensor", "parser", "parser/internal/..."}},
	{"parser/tensorflow", []string{"parser/lru", "parser/grpc", "tensor", "parser", "parser/internal/..."}},
	{"parser/...", []string{"tensor", "parser", "parser/internal/..."}}, // protocols and parsertest

	{"codecs", []string{"tensor/...", "codecs/internal/..."}},
	{"codecs/internal/blockwise", []string{"codecs"}},
	{"codecs/internal/params", []string{"codecs"}},
	{"codecs/internal/sparse/...", []string{"tensor/...", "codecs", "codecs/internal/...", "codecs/keys"}},
	{"codecs/internal/...", []string{"tensor/...", "codecs/internal/..."}},
	{"codecs/all", []string{"codecs/..."}},
	{"codecs/codectest/...", []string{"tensor/...", "codecs", "codecs/internal/...", "codecs/feedback", "codecs/codectest/..."}},
	{"codecs/int255", []string{"codecs", "codecs/block", "codecs/internal/params"}},
	{"codecs/stochastic3", []string{"tensor/...", "codecs", "codecs/internal/...", "codecs/threelc"}},
	{"codecs/...", []string{"tensor/...", "codecs", "codecs/internal/...", "codecs/keys", "codecs/countsketch"}}, // methods; sparse ones code positions by another

	{"proxy", []string{"proxy/...", "parser/lru", "tensor", "parser", "codecs", "codecs/feedback", "codecs/reference"}},
	{"proxy/app", []string{"proxy/frame", "proxy/memory", "proxy/internal/pollgate", "proxy/internal/rank"}},
	{"proxy/residual", []string{"parser/lru", "tensor", "codecs/feedback", "proxy/internal/rank"}},
	{"proxy/policy", []string{"tensor", "parser", "codecs"}},
	{"proxy/tunnel", []string{"proxy/internal/allowance", "proxy/internal/rank", "proxy/tunnel/datagram", "proxy/tunnel/udp"}},
	{"proxy/tunnel/datagram", nil}, // packets, times and numbers only
	{"proxy/tunnel/udp", []string{"proxy/internal/rank"}},
	{"proxy/tunnel/...", []string{"proxy/tunnel/..."}},
	{"proxy/intercept/...", []string{"proxy/intercept/..."}},
	{"proxy/history", nil},
	{"proxy/admin", []string{"parser/lru", "proxy", "proxy/history", "proxy/trials"}},
	{"proxy/inquiry", []string{"proxy/path", "proxy/frame", "proxy/tunnel"}},
	{"proxy/trials", []string{"tensor", "parser", "codecs", "codecs/feedback", "proxy/policy", "proxy/estimate", "proxy/shadow", "proxy/tensors"}},
	{"proxy/estimate", []string{"tensor", "parser", "codecs", "proxy/policy", "proxy/internal/pipe", "proxy/path", "proxy/path/send", "proxy/cache", "proxy/residual", "proxy/tensors", "proxy/frame", "proxy/memory", "proxy/tunnel"}},
	{"proxy/quota", []string{"tensor", "parser", "proxy/internal/allowance", "proxy/internal/wait", "proxy/memory"}},
	{"proxy/handover", []string{"proxy/path", "proxy/app", "proxy/frame", "proxy/internal/rank", "proxy/internal/wait", "proxy/tunnel"}},
	{"proxy/path/pathtest", []string{"tensor", "parser", "codecs/...", "proxy/path", "proxy/policy", "proxy/internal/pipe", "proxy/residual", "proxy/tensors", "proxy/frame", "proxy/memory", "proxy/tunnel"}},
	{"proxy/path", []string{"tensor", "codecs", "proxy/policy", "proxy/internal/pipe", "proxy/internal/rank", "proxy/cache", "proxy/residual", "proxy/app", "proxy/tensors", "proxy/coder", "proxy/frame", "proxy/memory", "proxy/tunnel"}},
	{"proxy/path/receive", []string{"tensor", "parser", "codecs", "proxy/internal/pipe", "proxy/path", "proxy/coder", "proxy/frame", "proxy/memory"}},
	{"proxy/path/send", []string{"parser/lru", "tensor", "parser", "codecs", "codecs/feedback", "proxy/policy", "proxy/internal/pipe", "proxy/path", "proxy/cache", "proxy/residual", "proxy/app", "proxy/tensors", "proxy/coder", "proxy/frame", "proxy/memory"}},
	{"proxy/memory", nil},
	{"proxy/cache", []string{"parser/lru", "tensor", "codecs", "codecs/reference", "proxy/policy", "proxy/internal/pipe", "proxy/internal/rank", "proxy/tensors", "proxy/coder", "proxy/frame", "proxy/memory", "proxy/tunnel"}},
	{"proxy/coder", []string{"tensor", "codecs", "proxy/frame"}},
	{"proxy/tensors", []string{"parser/lru", "tensor", "proxy/policy", "proxy/shadow"}},
	{"proxy/shadow", []string{"parser/lru", "tensor", "codecs/codectest/cputime", "proxy/policy"}},
	{"proxy/frame", []string{"tensor", "proxy/memory", "proxy/tunnel"}},
	{"proxy/logsample", nil},
	{"proxy/relay", []string{"proxy/internal/rank"}},
	{"proxy/internal/rank/ranktest", []string{"proxy/internal/rank"}},
	{"proxy/internal/...", nil},

	{"bpf", []string{"bpf/internal/rights"}},
	{"bpf/cgroup", nil},
	{"bpf/internal/...", nil},
	{"bpf/probe", []string{"bpf/internal/rights"}},
	{"tc/...", nil},
	{"wan-sim/...", nil},

	{"cmd/gradproxy/train/...", []string{"cmd/gradproxy/train/..."}}, // which the demo and the papers' tables share

	{"cmd/...", []string{"cmd/...", "proxy/...", "parser/...", "codecs/...", "tensor", "bpf/...", "tc/...", "wan-sim/..."}},
	{"integration/...", []string{"integration/...", "cmd/...", "proxy/...", "parser/...", "codecs/...", "tensor", "bpf/...", "tc/...", "wan-sim/..."}},
}

// onlyIn says which files alone know a library, so that it can be replaced. A folder stands for all files below it.
var onlyIn = map[string][]string{
	"github.com/prometheus/":                     {"proxy/metrics.go", "cmd/"},
	"go.opentelemetry.io/":                       {"cmd/gradproxy/internal/otlp/"},
	"github.com/gdamore/":                        {"cmd/gradproxy/internal/top/"},
	"github.com/landlock-lsm/":                   {"cmd/gradproxy/internal/confine/"},
	module + "proxy/tunnel/udp":                  {"proxy/tunnel/dtls.go", "proxy/tunnel/dtls_gate.go", "proxy/tunnel/dtls_routing.go", "proxy/tunnel/dtls_writer.go", "proxy/tunnel/datagramlink.go"},
	"github.com/pion/":                           {"proxy/tunnel/dtls.go", "integration/cmd/benchtunnel/"},
	"github.com/quic-go/":                        {"integration/cmd/benchtunnel/"},
	"kernel.org/pub/linux/libs/security/libcap/": {"cmd/gradproxy/internal/confine/"},
	"crypto/tls":                                 {"proxy/tunnel/dtls.go", "proxy/tunnel/tls.go", "proxy/tunnel/identity.go", "proxy/tunnel/pki/", "cmd/", "integration/cmd/benchtunnel/"},
}

// forTests are the packages of integration that the tests of any package may import.
var forTests = []string{"integration/require", "integration/require/freeport", "integration/require/netns", "integration/require/paired", "integration/promtest", "integration/vm"}

// A listedPackage holds the fields of `go list -json` that this test reads.
type listedPackage struct {
	ImportPath  string
	Dir         string
	GoFiles     []string
	Imports     []string
	TestImports []string
	// Imports of external tests (package x_test).
	XTestImports []string
}

func TestImportsPointOneWay(t *testing.T) {
	for _, p := range packages(t, "./...") {
		name, ours := strings.CutPrefix(p.ImportPath, module)
		if !ours {
			t.Errorf("%s lies in the module's root, which holds no package", p.ImportPath)
			continue
		}
		layer := slices.IndexFunc(layers, func(l layer) bool { return fits(l.pkg, name) })
		if layer < 0 {
			t.Errorf("%s is in no layer: say in layers what it may import", name)
			continue
		}
		inTests := slices.Concat(p.TestImports, p.XTestImports)
		if slices.Contains(p.Imports, "testing") { // all of it is for tests
			inTests = append(inTests, p.Imports...)
		} else {
			for _, imported := range ofOurs(p.Imports) {
				if !slices.ContainsFunc(layers[layer].may, func(pattern string) bool { return fits(pattern, imported) }) {
					t.Errorf("%s imports %s, which %s may not", name, imported, layers[layer].pkg)
				}
			}
		}
		for _, imported := range ofOurs(inTests) {
			if fits("integration/...", imported) && !slices.Contains(forTests, imported) && !fits("integration/...", name) {
				t.Errorf("the tests of %s import %s, which is above them", name, imported)
			}
		}
	}
}

// Packages that help tests stay out of the program, and so do plotters, fonts and typesetting: it runs with
// CAP_NET_ADMIN.
func TestProgramLinksNoTests(t *testing.T) {
	foreign := regexp.MustCompile(`^gonum\.org/|^golang\.org/x/image/|/freetype|[-/]fonts?\b|latex|pdf|/svgo|sbinet/gg|quic-go|pion/sctp|/(svg|plot|scatter)$`)
	for _, p := range packages(t, "-deps", "./cmd/gradproxy") {
		if p.ImportPath == "testing" || strings.HasPrefix(p.ImportPath, module+"integration") || foreign.MatchString(p.ImportPath) {
			t.Errorf("cmd/gradproxy links %s", p.ImportPath)
		}
	}
}

func TestLibrariesStayInTheirFiles(t *testing.T) {
	for _, p := range packages(t, "./...") {
		folder := strings.TrimPrefix(p.ImportPath, module)
		for _, file := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range parsed.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				for library, files := range onlyIn {
					if path != library && !(strings.HasSuffix(library, "/") && strings.HasPrefix(path, library)) {
						continue
					}
					where := folder + "/" + file
					if !slices.ContainsFunc(files, func(f string) bool {
						return where == f || strings.HasSuffix(f, "/") && strings.HasPrefix(where, f)
					}) {
						t.Errorf("%s imports %s: only %v may", where, path, files)
					}
				}
			}
		}
	}
}

// fits reports whether a package is the pattern or, for "x/...", x or below it.
func fits(pattern, pkg string) bool {
	if base, subtree := strings.CutSuffix(pattern, "/..."); subtree {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pkg == pattern
}

// ofOurs returns the paths that are in this module, without its name.
func ofOurs(paths []string) (names []string) {
	for _, path := range paths {
		if name, ours := strings.CutPrefix(path, module); ours {
			names = append(names, name)
		}
	}
	return names
}

// packages lists packages as `go list` with args does in the module's root.
func packages(t *testing.T, args ...string) (list []listedPackage) {
	t.Helper()
	require.Command(t, "go")
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports"}, args...)...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

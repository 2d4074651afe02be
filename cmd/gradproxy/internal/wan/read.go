package wan

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/strict"
)

// maxFile bounds the bytes read: topologies and traces have a few kilobytes.
const maxFile = 4 << 20

// Load reads and checks a topology: the file of that name or, where there is none, the ready topology. Problems are all
// that was found, in the order of the lines; the Topology may be used only if there are none.
func Load(name string) (*Topology, strict.Problems) {
	text, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		if _, ok := Ready(name); ok {
			return LoadReady(name)
		}
		return nil, strict.Problems{{File: name, Message: fmt.Sprintf("there is no such file, and no ready topology of that name; the ready ones are %s", readyList())}}
	}
	if err != nil {
		return nil, strict.Problems{{File: name, Message: err.Error()}}
	}
	return parse(name, text, readFile)
}

// LoadReady reads the ready topology of that name.
func LoadReady(name string) (*Topology, strict.Problems) {
	text, _ := Ready(name)
	return parse(name, text, readFile)
}

func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
	case info.IsDir():
		return nil, errors.New("it is a folder: name the file in it")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("it has %d bytes, more than any topology or trace: name the right file", info.Size())
	}
	text, err := strict.ReadFile(name, maxFile)
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return nil, fmt.Errorf("it cannot be read: %w", path.Err)
	}
	return text, err
}

// parse reads and checks text as the content of file, and the files of traces by open.
func parse(file string, text []byte, open func(name string) ([]byte, error)) (*Topology, strict.Problems) {
	r := &reader{Document: strict.Document{File: file, Begin: "name: NAME"}, open: open, seed: 1}
	r.topology = &Topology{File: file, Currency: "USD"}
	if root := r.Parse(text); root != nil {
		r.file()(root, "")
		if len(r.Problems) == 0 {
			r.complete()
		}
		if len(r.Problems) == 0 {
			r.check()
		}
	}
	slices.SortStableFunc(r.Problems, func(a, b strict.Problem) int { return cmp.Compare(a.Line, b.Line) })
	return r.topology, r.Problems
}

// A reader reads one topology.
type reader struct {
	strict.Document
	open     func(name string) ([]byte, error)
	topology *Topology
	seed     uint64
	links    []writtenLink
	mesh     *writtenLink
}

// A writtenLink is a link as it is written: sites by name, the part that both directions have in common, and each one's
// own.
type writtenLink struct {
	from, to          string
	both, there, back writtenDirection
	line              int
}

// A writtenDirection is a direction as it is written; nil: not written.
type writtenDirection struct {
	rate, queue        *int64
	rtt, delay, jitter *time.Duration
	loss, price        *float64
	seed               *uint64
	via                *string
	trace              *writtenTrace
}

type writtenTrace struct {
	file    string
	changes []change
	period  time.Duration
	line    int
	where   string

	made map[Quality]Trace // of directions that are as good without it: the directions of a mesh share one
}

func (r *reader) file() strict.Reader {
	t := r.topology
	return r.Object(map[string]strict.Reader{
		"name":     strict.Value(&r.Document, &t.Name, parseTopologyName),
		"about":    strict.Value(&r.Document, &t.About, parseLine),
		"currency": strict.Value(&r.Document, &t.Currency, parseCurrency),
		"seed": r.Scalar(func(text string) (err error) {
			t.Seeded = true
			r.seed, err = parseSeed(text)
			return err
		}),
		"sites":       strict.Items(&r.Document, &t.Sites, r.site),
		"bottlenecks": strict.Items(&r.Document, &t.Bottlenecks, r.bottleneck),
		"links":       strict.Items(&r.Document, &r.links, r.link),
		"mesh": func(n ast.Node, where string) {
			r.mesh = &writtenLink{}
			r.At(&r.mesh.line, r.Object(r.ways(r.mesh)))(n, where)
		},
	})
}

func (r *reader) site(s *Site) strict.Reader {
	return r.At(&s.line, r.Object(map[string]strict.Reader{
		"name":     strict.Value(&r.Document, &s.Name, parseName),
		"networks": strict.Values(&r.Document, &s.Networks, parseNetwork),
		"price":    strict.Value(&r.Document, &s.Price, parsePrice),
	}))
}

func (r *reader) bottleneck(b *Bottleneck) strict.Reader {
	return r.At(&b.line, r.Object(map[string]strict.Reader{
		"name":  strict.Value(&r.Document, &b.Name, parseName),
		"rate":  strict.Value(&r.Document, &b.Rate, parseRate),
		"queue": strict.Value(&r.Document, &b.Queue, parseSize),
	}))
}

func (r *reader) link(l *writtenLink) strict.Reader {
	fields := r.ways(l)
	fields["from"] = strict.Value(&r.Document, &l.from, parseName)
	fields["to"] = strict.Value(&r.Document, &l.to, parseName)
	return r.At(&l.line, r.Object(fields))
}

// ways returns the keys of a link but for the keys of its ends.
func (r *reader) ways(l *writtenLink) map[string]strict.Reader {
	fields := r.direction(&l.both)
	fields["rtt"] = optional(r, &l.both.rtt, parseDelay)
	fields["there"] = r.Object(r.direction(&l.there))
	fields["back"] = r.Object(r.direction(&l.back))
	return fields
}

func (r *reader) direction(w *writtenDirection) map[string]strict.Reader {
	return map[string]strict.Reader{
		"rate":   optional(r, &w.rate, parseRate),
		"delay":  optional(r, &w.delay, parseDelay),
		"jitter": optional(r, &w.jitter, parseDelay),
		"loss":   optional(r, &w.loss, parseLoss),
		"queue":  optional(r, &w.queue, parseSize),
		"seed":   optional(r, &w.seed, parseSeed),
		"price":  optional(r, &w.price, parsePrice),
		"via":    optional(r, &w.via, parseName),
		"trace":  r.trace(&w.trace),
	}
}

// optional reads a single value by parse, and keeps whether there is one.
func optional[T any](r *reader, dst **T, parse func(string) (T, error)) strict.Reader {
	return r.Scalar(func(text string) error {
		v, err := parse(text)
		if err == nil {
			*dst = &v
		}
		return err
	})
}

// trace reads a list of steps, or a mapping of it or of a file and of the period.
func (r *reader) trace(dst **writtenTrace) strict.Reader {
	return func(n ast.Node, where string) {
		w := &writtenTrace{where: where}
		*dst = w
		steps := r.List(func(n ast.Node, where string) {
			var c change
			r.Object(map[string]strict.Reader{
				"at": c.reader(r, "at"), "rate": c.reader(r, "rate"), "delay": c.reader(r, "delay"), "loss": c.reader(r, "loss"),
			})(n, where)
			w.changes = append(w.changes, c)
		})
		if _, isList := r.Resolve(n).(*ast.SequenceNode); isList {
			w.line = strict.LineOf(n)
			steps(n, where)
			return
		}
		r.At(&w.line, r.Object(map[string]strict.Reader{
			"file":   strict.Value(&r.Document, &w.file, parseLine),
			"steps":  steps,
			"repeat": strict.Value(&r.Document, &w.period, parseDuration),
		}))(n, where)
	}
}

func (c *change) reader(r *reader, name string) strict.Reader {
	return r.Scalar(func(text string) error { return c.set(name, text) })
}

// errorf notes an error at a line.
func (r *reader) errorf(line int, where, format string, args ...any) {
	r.Problems = append(r.Problems, strict.Problem{File: r.File, Line: line, Where: where, Message: fmt.Sprintf(format, args...)})
}

// complete makes links of the written ones, and gives sites their networks.
func (r *reader) complete() {
	t := r.topology
	for i := range t.Sites {
		s := &t.Sites[i]
		if s.Networks == nil {
			s.Networks = []netip.Prefix{
				netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i + 1)}), 24),
				netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte((i + 1) >> 8), byte(i + 1)}), 48),
			}
		}
		slices.SortStableFunc(s.Networks, func(a, b netip.Prefix) int { return cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()) })
	}
	joined := map[[2]int]bool{}
	for i := range r.links {
		w := &r.links[i]
		where := fmt.Sprintf("links[%d]", i)
		from, ok := r.end(w, where+".from", w.from)
		to, ok2 := r.end(w, where+".to", w.to)
		if ok && ok2 {
			joined[[2]int{from, to}], joined[[2]int{to, from}] = true, true
			r.join(w, from, to, where)
		}
	}
	if r.mesh == nil {
		return
	}
	for from := range t.Sites {
		for to := from + 1; to < len(t.Sites); to++ {
			if !joined[[2]int{from, to}] {
				r.join(r.mesh, from, to, "mesh")
			}
		}
	}
}

// end returns the index of a site that a link names.
func (r *reader) end(w *writtenLink, where, name string) (i int, ok bool) {
	if name == "" {
		r.errorf(w.line, where, "it is missing: name a site")
		return 0, false
	}
	i, ok = r.topology.Site(name)
	if !ok {
		r.errorf(w.line, where, "there is no site %s", name)
	}
	return i, ok
}

// join appends the link that w describes.
func (r *reader) join(w *writtenLink, from, to int, where string) {
	t := r.topology
	seed := r.seed<<16 + uint64(len(t.Links))
	l := Link{From: from, To: to, line: w.line}
	l.There = r.merge(w, w.there, t.Sites[from], seed, where)
	l.Back = r.merge(w, w.back, t.Sites[to], seed, where)
	t.Links = append(t.Links, l)
}

// merge returns the direction that leaves from, with the keys of own before the keys that both directions share.
func (r *reader) merge(w *writtenLink, own writtenDirection, from Site, seed uint64, where string) Direction {
	d := Direction{Price: from.Price, Seed: seed}
	if w.both.rtt != nil {
		if w.both.delay != nil {
			r.errorf(w.line, where, "both rtt and delay are given: leave one out")
		}
		d.Delay = *w.both.rtt / 2
	}
	var trace *writtenTrace
	for _, x := range []writtenDirection{w.both, own} {
		put(&d.Rate, x.rate)
		put(&d.Delay, x.delay)
		put(&d.Loss, x.loss)
		put(&d.Jitter, x.jitter)
		put(&d.Queue, x.queue)
		put(&d.Seed, x.seed)
		r.topology.Seeded = r.topology.Seeded || x.seed != nil
		put(&d.Price, x.price)
		put(&d.Via, x.via)
		if x.trace != nil {
			trace = x.trace
		}
	}
	if trace != nil {
		d.Trace = r.follow(trace, d.Quality)
	}
	return d
}

func put[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// follow returns the trace that w says of a direction of quality base.
func (r *reader) follow(w *writtenTrace, base Quality) Trace {
	t, ok := w.made[base]
	if !ok {
		if w.made == nil {
			w.made = map[Quality]Trace{}
		}
		t = r.newTrace(w, base)
		w.made[base] = t
	}
	return t
}

func (r *reader) newTrace(w *writtenTrace, base Quality) Trace {
	changes := w.changes
	if w.file != "" {
		if changes != nil {
			r.errorf(w.line, w.where, "both file and steps are given: leave one out")
			return Trace{}
		}
		name := w.file
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(r.File), name)
		}
		text, err := r.open(name)
		if err == nil {
			changes, err = parseTrace(string(text))
		}
		if err != nil {
			r.errorf(w.line, w.where+".file", "%s: %s", w.file, strict.OneLine(err.Error()))
			return Trace{}
		}
	}
	if err := checkChanges(changes, w.period); err != nil {
		r.errorf(w.line, w.where, "%v", err)
		return Trace{}
	}
	return Trace{Steps: steps(base, changes), Period: w.period}
}

package tensorflow

import (
	"unsafe"

	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
)

// A graphPath says where a message holds a graph.
type graphPath struct {
	whole, name, node protoscan.Path // name 0: the graph has none in it
}

var (
	pathOfGraph    = graphPath{whole: protoscan.Of(2), node: protoscan.Of(2, 1)}                                                // GraphDef of RegisterGraphRequest
	pathOfFunction = graphPath{whole: protoscan.Of(3, 4, 1), name: protoscan.Of(3, 4, 1, 1, 1), node: protoscan.Of(3, 4, 1, 3)} // FunctionDef of EnqueueRequest
)

// Fields of a NodeDef (tensorflow/core/framework/node_def.proto), below its own path.
const (
	fieldNodeName  = 1
	fieldNodeOp    = 2
	fieldNodeInput = 3
	fieldNodeAttr  = 5
	fieldKey       = 1 // of an entry of a map
	fieldValue     = 2
	fieldString    = 2 // of an AttrValue
)

// graphs reads the graphs of a message.
type graphs struct {
	conn  *connection
	path  graphPath
	build *build // of the current graph
	name  string
	attr  string // whose value follows; "": of no use
	done  []named
	size  int // bytes of done
}

// A named graph is a function, or a graph without a name.
type named struct {
	name  uint64 // hash; 0: none
	graph *graph
}

// maxFunctions bounds the functions that one message registers, in number and, by maxEdges, in bytes.
const maxFunctions = 1 << 10

// held returns about how many bytes g holds; the graph under way is bounded for all connections together, and left out.
func (g *graphs) held() int {
	if g == nil {
		return 0
	}
	return g.size + int(unsafe.Sizeof(named{}))*cap(g.done) + len(g.name) + len(g.attr)
}

func newGraphs(x *connection, p graphPath) *graphs { return &graphs{conn: x, path: p} }

// field says how to read a field of a graph; ok is false if it is of none.
func (g *graphs) field(p protoscan.Path) (a protoscan.Action, ok bool) {
	if g == nil {
		return 0, false
	}
	node := g.path.node
	switch p {
	case g.path.whole:
		g.build, g.name = g.conn.facts.begin(g.conn.scope.peer), ""
		return protoscan.Descend, true
	case node:
		g.build.node()
		return protoscan.Descend, true
	case node.In(fieldNodeAttr), node.In(fieldNodeAttr).In(fieldValue):
		if p == node.In(fieldNodeAttr) {
			g.attr = ""
		}
		return protoscan.Descend, true
	case g.path.name, node.In(fieldNodeName), node.In(fieldNodeOp), node.In(fieldNodeInput), node.In(fieldNodeAttr).In(fieldKey):
		return protoscan.Keep, true
	case node.In(fieldNodeAttr).In(fieldValue).In(fieldString):
		if g.attr != "" {
			return protoscan.Keep, true
		}
		return protoscan.Skip, true
	}
	if p.Leads(node) || g.path.name != 0 && p.Leads(g.path.name) {
		return protoscan.Descend, true
	}
	return protoscan.Skip, false
}

// kept takes a field of a graph.
func (g *graphs) kept(p protoscan.Path, b []byte) {
	if g == nil || g.build == nil {
		return
	}
	node := g.path.node
	switch p {
	case g.path.name:
		g.name = string(b)
	case node.In(fieldNodeName):
		g.build.named(b)
	case node.In(fieldNodeOp):
		g.build.operation(string(b))
	case node.In(fieldNodeInput):
		g.build.input(string(b))
	case node.In(fieldNodeAttr).In(fieldKey):
		switch key := string(b); key {
		case attrFrom, attrTo, attrName:
			g.attr = key
		}
	case node.In(fieldNodeAttr).In(fieldValue).In(fieldString):
		g.build.attribute(g.attr, string(b))
	}
}

// leave ends a graph.
func (g *graphs) leave(p protoscan.Path) {
	if g == nil || p != g.path.whole || g.build == nil {
		return
	}
	x := g.build.finish()
	g.conn.facts.end(g.build)
	if g.build = nil; x != nil && len(g.done) < maxFunctions && g.size+x.size <= maxEdges {
		g.done = append(g.done, named{hashOf(g.name), x})
		g.size += x.size
	}
}

package gloo

import (
	"encoding/binary"
	"slices"

	"github.com/gradproxy/gradproxy/parser"
)

// metadata collects the announcements of DistributedDataParallel on one connection.
type metadata struct {
	job     *job
	said    [2]*facts // by each side, and by others of its site
	gathers []gathering
	models  []*model   // whose shapes, or whose all-gather, passed here
	pending [2]pending // of each side
}

// A gathering is an all-gather of 8 bytes per rank, which travel as two messages of 4 bytes.
type gathering struct {
	tag      uint32
	messages [2]int // of each side
	low      uint32
	bad      bool // other lengths, or other values
}

// pending is the first half of an announcement.
type pending struct {
	model   *model
	tag     uint32
	order   []int
	buckets int
}

// wants reports whether the payload of a side's op must be kept and given to take.
func (m *metadata) wants(from parser.Side, o op) bool {
	tag := o.slot.tag()
	switch o.slot.kind() {
	case allGather:
		return m.gathering(o)
	case broadcast:
		if o.length > maxMetadata || o.length%4 != 0 {
			return false
		}
		if p := m.pending[from]; p.model != nil && p.tag+1 == tag && o.length == 4*p.buckets {
			return true
		}
		for _, x := range m.saidBy(from) {
			if o.length == 4*(x.params+1) {
				return true
			}
		}
		return o.length%8 == 0 && len(m.after(tag)) > 0
	}
	return false
}

// gathering counts a message of an all-gather, and reports whether the all-gather may be one of an int64.
func (m *metadata) gathering(o op) bool {
	i := slices.IndexFunc(m.gathers, func(g gathering) bool { return g.tag == o.slot.tag() })
	if o.length != 4 {
		if i >= 0 {
			m.gathers[i].bad = true
		}
		return false
	}
	if i < 0 {
		if len(m.gathers) >= maxModels {
			m.gathers = slices.Delete(m.gathers, 0, 1)
		}
		m.gathers = append(m.gathers, gathering{tag: o.slot.tag()})
	}
	return true
}

// take reads a payload that was wanted.
func (m *metadata) take(from parser.Side, o op, b []byte) {
	tag := o.slot.tag()
	if o.slot.kind() == allGather {
		if i := slices.IndexFunc(m.gathers, func(g gathering) bool { return g.tag == tag }); i >= 0 && len(b) == 4 {
			m.gathered(&m.gathers[i], from, binary.LittleEndian.Uint32(b))
		}
		return
	}
	if p := m.pending[from]; p.model != nil && p.tag+1 == tag && p.model.announce(p.order, p.buckets, b) {
		m.pending[from] = pending{}
		return
	}
	for _, x := range m.saidBy(from) {
		if order, buckets, ok := x.parseOrder(b); ok {
			m.pending[from] = pending{x, tag, order, buckets}
			return
		}
	}
	for _, g := range m.after(tag) {
		if x := m.said[from].addModel(g, b); x != nil {
			m.link(x)
		}
	}
}

// gathered notes one half of an int64. The low half comes first.
func (m *metadata) gathered(g *gathering, from parser.Side, half uint32) {
	k := g.messages[from]
	g.messages[from]++
	switch {
	case k%2 == 1:
		g.bad = g.bad || half != 0
	case k == 0 && g.messages[1-from] == 0:
		g.low = half
	default:
		g.bad = g.bad || half != g.low
	}
	if k == 1 && !g.bad && g.low >= 1 && g.low <= maxParams {
		m.said[from].addGather(countGather{g.tag, int(g.low)})
	}
}

func (m *metadata) link(x *model) {
	if slices.Contains(m.models, x) {
		return
	}
	if len(m.models) >= maxModels {
		m.models = slices.Delete(m.models, 0, 1)
	}
	m.models = append(m.models, x)
}

// relevant returns the models whose gradients may pass on this connection: the connection's own models or, if there are
// none, all models that the sites of its two ends have told of. If these have told of none, relevant returns the job's
// models whose all-gathers passed on this connection: rank 0 announces its models to each other rank, but two other
// ranks do not announce them to each other.
func (m *metadata) relevant() []*model {
	told := m.all()
	for _, g := range m.gathers {
		if g.bad {
			continue
		}
		if i := slices.IndexFunc(told, g.of); i >= 0 {
			m.link(told[i])
		}
	}
	switch {
	case len(m.models) > 0:
		return m.models
	case len(told) > 0:
		return told
	}
	return m.others()
}

// of reports whether the all-gather is the one that comes before the shapes of model x.
func (g *gathering) of(x *model) bool { return x.countGather == countGather{g.tag, int(g.low)} }

// all returns the models that either side's site has told of, the newest of each first.
func (m *metadata) all() []*model { return merged(m.said[:], func(*model) bool { return true }) }

// others returns the models of the job whose all-gathers passed here, whoever has told of them.
func (m *metadata) others() []*model {
	passed := func(x *model) bool {
		return slices.ContainsFunc(m.gathers, func(g gathering) bool { return !g.bad && max(g.messages[0], g.messages[1]) >= 2 && g.of(x) })
	}
	if len(m.gathers) == 0 {
		return nil
	}
	return merged(m.job.everyone(), passed)
}

// merged returns the wanted models of several sayers, the newest of each first. A model that several sayers have told
// of is returned once, from a sayer that has announced its buckets if there is one.
func merged(said []*facts, wanted func(*model) bool) []*model {
	var all []*model
	for k, f := range said {
		if slices.Contains(said[:k], f) {
			continue
		}
		before := len(all)
		for _, x := range f.all() {
			if !wanted(x) {
				continue
			}
			i := slices.IndexFunc(all[:before], x.same)
			switch {
			case i < 0:
				all = append(all, x)
			case all[i].announced() == nil && x.announced() != nil:
				all[i] = x
			}
		}
	}
	return all
}

// after returns the all-gathers with the tag before tag that either side's site has told of. It asks both sides, since
// in a ring the rank that receives an all-gather from its neighbour may be the one that broadcasts shapes to it.
func (m *metadata) after(tag uint32) []countGather {
	found := m.said[parser.Client].after(tag)
	for _, g := range m.said[parser.Server].after(tag) {
		if !slices.Contains(found, g) {
			found = append(found, g)
		}
	}
	return found
}

// saidBy returns the relevant models that the site of a side has told of. Nobody else announces their buckets or their
// weights.
func (m *metadata) saidBy(from parser.Side) []*model {
	own := m.said[from].all()
	return slices.DeleteFunc(slices.Clone(m.relevant()), func(x *model) bool { return !slices.Contains(own, x) })
}

// ranks returns the number of ranks of the group, or 0 if it is not known. It counts the messages of the all-gather of
// a model's number of parameters, in which each rank sends the blocks of all ranks but one.
func (m *metadata) ranks(models []*model) int {
	for _, g := range m.gathers {
		for _, x := range models {
			if !g.bad && g.of(x) {
				if n := max(g.messages[0], g.messages[1]); n > 0 && n%2 == 0 {
					return n/2 + 1
				}
			}
		}
	}
	return 0
}

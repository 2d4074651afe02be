package send

// A spare has the memory of the last group that was one block and left at once, for the groups that follow: of small
// blocks many thousands come a second. The sender's own goroutine alone uses it. The zero spare is empty.
type spare struct {
	lastGroup *group
	lastBlock *block
	runs      []run
	blocks    []*block
}

// keep takes a released group, whose parts nobody uses any more. It leaves unusual groups to the garbage collector.
func (s *spare) keep(g *group) {
	if len(g.blocks) != 1 || cap(g.runs) > 8 || g.blocks[0].around != nil {
		return
	}
	s.lastGroup, s.lastBlock = g, g.blocks[0]
	*s.lastBlock = block{}
	clear(g.blocks)
	s.runs, s.blocks = g.runs[:0], g.blocks[:0]
	*g = group{}
}

// group returns memory for a group, whose content is nothing.
func (s *spare) group() *group {
	g := s.lastGroup
	if s.lastGroup = nil; g == nil {
		g = new(group)
	}
	return g
}

// block returns memory for a block, whose content is nothing.
func (s *spare) block() *block {
	b := s.lastBlock
	if s.lastBlock = nil; b == nil {
		b = new(block)
	}
	return b
}

// empty returns a group of nothing.
func (s *spare) empty() group {
	g := group{runs: s.runs, blocks: s.blocks}
	s.runs, s.blocks = nil, nil
	return g
}

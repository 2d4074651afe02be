package cache

// A name is a framework's own name of content, and the place of a value in it.
type name struct {
	job string
	id  uint64
	off int
}

// nameOf returns the name of v's bytes; zero: they have none.
func nameOf(v *Put) name {
	if v.ID == 0 {
		return name{}
	}
	return name{v.Decl.Job, v.ID, v.Decl.Off}
}

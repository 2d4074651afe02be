package wan

import "fmt"

// Choose plans t with the back end b; "": the one that this kernel can do best.
func Choose(t *Topology, b BackEnd) (*Plan, error) {
	switch b {
	case "":
		return NewPlan(t, User, "works everywhere"), nil
	case User:
		return NewPlan(t, User, "asked for"), nil
	}
	return nil, fmt.Errorf("%q is none of user, kernel, ebpf", b)
}

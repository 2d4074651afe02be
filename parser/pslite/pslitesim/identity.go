package pslitesim

import (
	"fmt"
	"strconv"
	"strings"
)

// identity returns how a node calls itself (zmq_van.h, Connect).
func identity(id int32) string { return "ps" + strconv.Itoa(int(id)) }

// parseIdentity reads an identity that identity made. A node without one, which is to register, has id 0.
func parseIdentity(s string) (int32, error) {
	if s == "" {
		return 0, nil
	}
	digits, ok := strings.CutPrefix(s, "ps")
	id, err := strconv.ParseInt(digits, 10, 32)
	if !ok || err != nil || id <= 0 {
		return 0, fmt.Errorf("identity %q, want ps and an id", s)
	}
	return int32(id), nil
}

// name is how errors call a node.
func name(id int32) string {
	switch {
	case id == SchedulerID:
		return "the scheduler"
	case id == 0:
		return "a node that registers"
	case id%2 == 0:
		return fmt.Sprintf("server %d", Rank(id))
	}
	return fmt.Sprintf("worker %d", Rank(id))
}

//go:build linux

package testbed

import "strconv"

// A Node is a process of a job on ps-lite's parameter servers.
type Node struct {
	Role string // Scheduler, Server or Worker
	Site int    // where it runs
}

// Roles of ps-lite's nodes. A job has one scheduler.
const (
	Scheduler = "scheduler"
	Server    = "server"
	Worker    = "worker"
)

// place returns the site of a process, of n sites, and its role if it is one of Nodes.
func (j *Job) place(r, n int) (site int, role string) {
	if j.Nodes != nil {
		return j.Nodes[r].Site, j.Nodes[r].Role
	}
	return r % n, ""
}

// processes returns how many a job has.
func (j *Job) processes() int {
	if j.Nodes != nil {
		return len(j.Nodes)
	}
	return j.Ranks
}

// environment returns the variables that give a process its rank or role and the others' addresses: the variables of torch
// and JAX, or of ps-lite.
func (j *Job) environment(w *WAN, r int, own *Site) []string {
	port := strconv.Itoa(j.Port)
	if j.Nodes == nil {
		return []string{
			"RANK=" + strconv.Itoa(r), "WORLD_SIZE=" + strconv.Itoa(j.Ranks),
			"MASTER_ADDR=" + w.Sites[0].Addr.String(), "MASTER_PORT=" + port, "GLOO_SOCKET_IFNAME=" + own.Interface,
		}
	}
	var scheduler *Site
	count := map[string]int{}
	for _, n := range j.Nodes {
		count[n.Role]++
		if n.Role == Scheduler {
			scheduler = w.Sites[n.Site]
		}
	}
	return []string{
		"DMLC_ROLE=" + j.Nodes[r].Role, "DMLC_NODE_HOST=" + own.Addr.String(),
		"DMLC_PS_ROOT_URI=" + scheduler.Addr.String(), "DMLC_PS_ROOT_PORT=" + port,
		"DMLC_NUM_SERVER=" + strconv.Itoa(count[Server]), "DMLC_NUM_WORKER=" + strconv.Itoa(count[Worker]),
	}
}

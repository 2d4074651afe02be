//go:build linux

package testbed

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// A Node is a process of a job whose processes have roles.
type Node struct {
	Role string // of ps-lite: Scheduler, Server or Worker; of other frameworks, whose jobs have no scheduler, any
	Site int    // where it runs
}

// Roles of ps-lite's nodes. A job on ps-lite has one scheduler.
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

// environment returns the variables that give a process its rank or role and the others' addresses: the variables of
// torch and JAX, of ps-lite, or NODES and NODE.
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
	if scheduler == nil {
		return []string{"NODES=" + j.nodes(w), "NODE=" + strconv.Itoa(r)}
	}
	return []string{
		"DMLC_ROLE=" + j.Nodes[r].Role, "DMLC_NODE_HOST=" + own.Addr.String(),
		"DMLC_PS_ROOT_URI=" + scheduler.Addr.String(), "DMLC_PS_ROOT_PORT=" + port,
		"DMLC_NUM_SERVER=" + strconv.Itoa(count[Server]), "DMLC_NUM_WORKER=" + strconv.Itoa(count[Worker]),
	}
}

// nodes describes the processes of a job to each of them, in JSON: an array in their order. The next nine ports are a
// process's own as well.
func (j *Job) nodes(w *WAN) string {
	type node struct {
		Role string `json:"role"`
		Host string `json:"host"`
		Port int    `json:"port"`
	}
	var all []node
	for r, n := range j.Nodes {
		all = append(all, node{n.Role, w.Sites[n.Site].Addr.String(), j.Port + portsOfNode*r})
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(fmt.Sprintf("testbed: %v", err))
	}
	return string(b)
}

// portsOfNode is how many ports each of Nodes has.
const portsOfNode = 10
